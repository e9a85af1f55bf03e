# The bucket of a store: nothing public, TLS only, encrypted, versions that end.
# What may be done to it is in policies.tf, what becomes of its old versions in lifecycle.tf.

locals {
  configured = coalesce(var.configure_bucket, var.create_bucket)
  bucket     = var.create_bucket ? one(aws_s3_bucket.this[*].id) : one(data.aws_s3_bucket.this[*].id)
  bucket_arn = var.create_bucket ? one(aws_s3_bucket.this[*].arn) : one(data.aws_s3_bucket.this[*].arn)
  root       = var.prefix == "" ? "" : "${var.prefix}/"
  kms_key    = var.create_kms_key ? one(aws_kms_key.this[*].arn) : var.kms_key_arn
  # Known when planning, even while the key's ARN is not.
  by_kms = var.create_kms_key || var.kms_key_arn != null
}

data "aws_s3_bucket" "this" {
  count  = var.create_bucket ? 0 : 1
  bucket = var.bucket
}

resource "aws_s3_bucket" "this" {
  #checkov:skip=CKV2_AWS_62:nothing listens to single saves; cloudckpt watch follows a run
  #checkov:skip=CKV_AWS_144:a second region is a choice; cloudckpt copy makes one of whole runs
  count               = var.create_bucket ? 1 : 0
  bucket              = var.bucket
  force_destroy       = var.force_destroy
  object_lock_enabled = var.object_lock
  tags                = var.tags
}

resource "aws_s3_bucket_public_access_block" "this" {
  count                   = local.configured ? 1 : 0
  bucket                  = local.bucket
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  count  = local.configured ? 1 : 0
  bucket = local.bucket

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_versioning" "this" {
  # A bucket that never had versions can't be told to have none.
  count  = local.configured && (var.versioning || !var.create_bucket) ? 1 : 0
  bucket = local.bucket

  versioning_configuration {
    status = var.versioning ? "Enabled" : "Suspended"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  count  = local.configured ? 1 : 0
  bucket = local.bucket

  rule {
    # One data key for many objects: each save would cost a request to KMS.
    bucket_key_enabled = local.by_kms

    apply_server_side_encryption_by_default {
      sse_algorithm     = local.by_kms ? "aws:kms" : "AES256"
      kms_master_key_id = local.kms_key
    }
  }
}

resource "aws_s3_bucket_logging" "this" {
  count         = local.configured && var.access_log != null ? 1 : 0
  bucket        = local.bucket
  target_bucket = var.access_log.bucket
  target_prefix = var.access_log.prefix
}

# ---- the key

data "aws_caller_identity" "this" {
  count = var.create_kms_key ? 1 : 0
}

data "aws_partition" "this" {
  count = var.create_kms_key ? 1 : 0
}

resource "aws_kms_key" "this" {
  count                   = var.create_kms_key ? 1 : 0
  description             = "Encrypts the checkpoints in ${var.bucket}"
  enable_key_rotation     = true
  deletion_window_in_days = 30
  tags                    = var.tags

  # The account's IAM policies say who may use it, as those of this module do.
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "IamPoliciesDecide"
      Effect    = "Allow"
      Principal = { AWS = "arn:${data.aws_partition.this[0].partition}:iam::${data.aws_caller_identity.this[0].account_id}:root" }
      Action    = "kms:*"
      Resource  = "*"
    }]
  })
}
