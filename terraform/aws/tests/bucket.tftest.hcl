# What the bucket is like, by variable. Plans only: nothing is asked of Amazon.

provider "aws" {
  region                      = "us-east-1"
  access_key                  = "none"
  secret_key                  = "none"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  skip_requesting_account_id  = true
}

variables {
  bucket = "checkpoints"
}

run "a_bucket_is_private_versioned_and_encrypted_by_default" {
  command = plan

  assert {
    condition     = aws_s3_bucket.this[0].bucket == "checkpoints" && !aws_s3_bucket.this[0].force_destroy
    error_message = "The bucket has the name that was given, and is not emptied by a destroy."
  }

  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.this[0].block_public_acls,
      aws_s3_bucket_public_access_block.this[0].block_public_policy,
      aws_s3_bucket_public_access_block.this[0].ignore_public_acls,
      aws_s3_bucket_public_access_block.this[0].restrict_public_buckets,
    ])
    error_message = "All four kinds of public access are blocked."
  }

  assert {
    condition     = aws_s3_bucket_ownership_controls.this[0].rule[0].object_ownership == "BucketOwnerEnforced"
    error_message = "No ACL counts."
  }

  assert {
    condition     = aws_s3_bucket_versioning.this[0].versioning_configuration[0].status == "Enabled"
    error_message = "Versions are kept."
  }

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.this[0].rule[*]).apply_server_side_encryption_by_default).sse_algorithm == "AES256"
    error_message = "S3's own keys encrypt."
  }

  assert {
    condition     = length(aws_kms_key.this) == 0 && length(aws_s3_bucket_logging.this) == 0 && !aws_s3_bucket.this[0].object_lock_enabled
    error_message = "There is no key, no log and no lock unless asked for."
  }

  assert {
    condition     = length(aws_s3_bucket_policy.this) == 1
    error_message = "The bucket has a policy."
  }
}

run "no_rule_ends_a_current_pointer_or_object" {
  command = plan

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.id if length([for each in rule.expiration : each if each.days > 0 || each.date != null]) > 0] == ["cloudckpt: probes"]
    error_message = "Only what a probe left may expire."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: probes"][0].filter[0].prefix == "probe/"
    error_message = "Probes are under probe/."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: replaced pointers"][0].filter[0].prefix == "manifests/" && [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: replaced pointers"][0].noncurrent_version_expiration[0].noncurrent_days == 30
    error_message = "Replaced pointers end after 30 days."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: collected objects"][0].filter[0].prefix == "objects/" && [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: collected objects"][0].noncurrent_version_expiration[0].noncurrent_days == 30
    error_message = "Collected objects end after 30 days."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: incomplete uploads"][0].abort_incomplete_multipart_upload[0].days_after_initiation == 7
    error_message = "Incomplete uploads end after 7 days."
  }

  assert {
    condition     = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : length(rule.transition) == 0])
    error_message = "Nothing moves."
  }
}

run "a_prefix_is_that_of_each_rule" {
  command = plan

  variables {
    prefix = "teams/agents"
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.filter[0].prefix] == ["teams/agents/manifests/", "teams/agents/objects/", "teams/agents/probe/", "teams/agents/"]
    error_message = "The rules are for the store alone."
  }
}

run "the_days_are_those_that_were_given" {
  command = plan

  variables {
    pointer_versions_days = 1
    object_versions_days  = 90
    abort_uploads_days    = 2
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: replaced pointers"][0].noncurrent_version_expiration[0].noncurrent_days == 1
    error_message = "Replaced pointers end after 1 day."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: collected objects"][0].noncurrent_version_expiration[0].noncurrent_days == 90
    error_message = "Collected objects end after 90 days."
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: incomplete uploads"][0].abort_incomplete_multipart_upload[0].days_after_initiation == 2
    error_message = "Incomplete uploads end after 2 days."
  }
}

run "objects_move_to_a_colder_class_and_pointers_stay" {
  command = plan

  variables {
    objects_transition = { days = 45, storage_class = "STANDARD_IA" }
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.id if length(rule.transition) > 0] == ["cloudckpt: collected objects"]
    error_message = "Objects alone move."
  }

  assert {
    condition     = [for each in [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule if rule.id == "cloudckpt: collected objects"][0].transition : "${each.days} ${each.storage_class}"] == ["45 STANDARD_IA"]
    error_message = "They move when and where it was said."
  }
}

run "a_bucket_without_versions_is_left_without" {
  command = plan

  variables {
    versioning = false
  }

  assert {
    condition     = length(aws_s3_bucket_versioning.this) == 0
    error_message = "A new bucket has no versions unless told."
  }
}

run "a_key_is_created_and_used" {
  command = plan

  variables {
    create_kms_key = true
  }

  override_data {
    target = data.aws_caller_identity.this[0]
    values = { account_id = "123456789012" }
  }

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.this[0].rule[*]).apply_server_side_encryption_by_default).sse_algorithm == "aws:kms" && one(aws_s3_bucket_server_side_encryption_configuration.this[0].rule[*]).bucket_key_enabled
    error_message = "The key encrypts, by way of a bucket key."
  }

  assert {
    condition     = aws_kms_key.this[0].enable_key_rotation
    error_message = "The key rotates."
  }

  assert {
    condition     = jsondecode(aws_kms_key.this[0].policy).Statement[0].Principal.AWS == "arn:aws:iam::123456789012:root"
    error_message = "The account's policies say who uses it."
  }
}

run "a_key_of_ones_own_is_used" {
  command = plan

  variables {
    kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/own"
  }

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.this[0].rule[*]).apply_server_side_encryption_by_default).sse_algorithm == "aws:kms" && one(one(aws_s3_bucket_server_side_encryption_configuration.this[0].rule[*]).apply_server_side_encryption_by_default).kms_master_key_id == "arn:aws:kms:us-east-1:123456789012:key/own"
    error_message = "The key that was named encrypts."
  }

  assert {
    condition     = length(aws_kms_key.this) == 0 && output.kms_key_arn == "arn:aws:kms:us-east-1:123456789012:key/own"
    error_message = "No other is created."
  }
}

run "a_lock_a_log_tags_and_a_destroy_are_as_asked_for" {
  command = plan

  variables {
    object_lock   = true
    force_destroy = true
    tags          = { team = "a" }
    access_log    = { bucket = "logs", prefix = "checkpoints/" }
  }

  assert {
    condition     = aws_s3_bucket.this[0].object_lock_enabled && aws_s3_bucket.this[0].force_destroy
    error_message = "The bucket can lock, and is emptied by a destroy."
  }

  assert {
    condition     = aws_s3_bucket.this[0].tags.team == "a" && alltrue([for each in aws_iam_policy.this : each.tags.team == "a"])
    error_message = "All is tagged."
  }

  assert {
    condition     = aws_s3_bucket_logging.this[0].target_bucket == "logs" && aws_s3_bucket_logging.this[0].target_prefix == "checkpoints/"
    error_message = "The log goes where it was said."
  }
}
