# The bucket: pointers move by conditional writes, nothing here ever deletes a live checkpoint.

locals {
  path = var.prefix == "" ? "" : "${var.prefix}/"
}

resource "google_storage_bucket" "store" {
  #checkov:skip=CKV_GCP_78:soft delete keeps what was replaced or deleted; versioning is a choice, since each save leaves a version

  project  = var.project
  name     = var.bucket_name
  location = var.location
  labels   = var.labels

  storage_class               = "STANDARD" # pointers are replaced all the time; a colder class bills each for 30 days
  uniform_bucket_level_access = true       # conditions by name need it
  public_access_prevention    = "enforced"
  force_destroy               = false
  enable_object_retention     = var.object_retention

  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 24 * 60 * 60
  }

  versioning {
    enabled = var.versioning
  }

  dynamic "encryption" {
    for_each = var.kms_key_name == null ? [] : [var.kms_key_name]

    content {
      default_kms_key_name = encryption.value
    }
  }

  dynamic "logging" {
    for_each = var.log_bucket == null ? [] : [var.log_bucket]

    content {
      log_bucket        = logging.value
      log_object_prefix = var.bucket_name
    }
  }

  # Without a condition on noncurrent time this would delete what is current.
  dynamic "lifecycle_rule" {
    for_each = var.versioning ? [var.noncurrent_days] : []

    content {
      action {
        type = "Delete"
      }
      condition {
        days_since_noncurrent_time = lifecycle_rule.value
        matches_prefix             = ["${local.path}manifests/", "${local.path}objects/"]
        with_state                 = "ARCHIVED"
      }
    }
  }

  # What a probe or the doctor left behind when it was killed; nothing reads it again.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age            = 1
      matches_prefix = ["${local.path}probe/"]
      with_state     = "ANY"
    }
  }

  dynamic "lifecycle_rule" {
    for_each = var.cold_objects == null ? [] : [var.cold_objects]

    content {
      action {
        type          = "SetStorageClass"
        storage_class = lifecycle_rule.value.storage_class
      }
      condition {
        age            = lifecycle_rule.value.after_days
        matches_prefix = ["${local.path}objects/"]
        with_state     = "LIVE"
      }
    }
  }

  depends_on = [google_kms_crypto_key_iam_member.storage]
}

# A key is used by Google's own account for Cloud Storage; callers need no right on it.

data "google_storage_project_service_account" "storage" {
  count = var.kms_key_name == null ? 0 : 1

  project = var.project
}

resource "google_kms_crypto_key_iam_member" "storage" {
  count = var.kms_key_name == null ? 0 : 1

  crypto_key_id = var.kms_key_name
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = data.google_storage_project_service_account.storage[0].member
}
