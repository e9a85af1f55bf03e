# What becomes of old versions. No rule here ends a current pointer or object: what is
# in use, only the product's own collect can tell.

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  #checkov:skip=CKV_AWS_300:there is such a rule, for the store's prefix; the rest of the bucket is its owner's
  count  = local.configured ? 1 : 0
  bucket = local.bucket
  # S3 wants versioning before a rule on versions.
  depends_on = [aws_s3_bucket_versioning.this]

  rule {
    id     = "cloudckpt: replaced pointers"
    status = "Enabled"

    filter {
      prefix = "${local.root}manifests/"
    }

    noncurrent_version_expiration {
      noncurrent_days = var.pointer_versions_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  rule {
    id     = "cloudckpt: collected objects"
    status = "Enabled"

    filter {
      prefix = "${local.root}objects/"
    }

    noncurrent_version_expiration {
      noncurrent_days = var.object_versions_days
    }

    expiration {
      expired_object_delete_marker = true
    }

    dynamic "transition" {
      for_each = var.objects_transition[*]

      content {
        days          = transition.value.days
        storage_class = transition.value.storage_class
      }
    }
  }

  # A writer may not delete what its probe wrote, and nobody reads it again.
  rule {
    id     = "cloudckpt: probes"
    status = "Enabled"

    filter {
      prefix = "${local.root}probe/"
    }

    expiration {
      days = 1
    }

    noncurrent_version_expiration {
      noncurrent_days = 1
    }
  }

  rule {
    id     = "cloudckpt: incomplete uploads"
    status = "Enabled"

    filter {
      prefix = local.root
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = var.abort_uploads_days
    }
  }
}
