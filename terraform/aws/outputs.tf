output "bucket" {
  description = "Name of the bucket."
  value       = local.bucket
}

output "bucket_arn" {
  description = "ARN of the bucket."
  value       = local.bucket_arn
}

output "store_url" {
  description = "The store, as cloudckpt.open and CLOUDCKPT_URL take it."
  value       = trimsuffix("s3://${local.bucket}/${local.root}", "/")
}

output "environment" {
  description = "Environment variables of whoever uses the store."
  value       = { CLOUDCKPT_URL = trimsuffix("s3://${local.bucket}/${local.root}", "/") }
}

output "policy_arns" {
  description = "ARNs of the IAM policies for all runs, by role: writer, reader, maintainer."
  value       = var.create_policies ? { for role in local.roles : role => aws_iam_policy.this[role].arn } : {}
}

output "run_policy_arns" {
  description = "ARNs of the IAM policies by run prefix, and then by role."
  value = var.create_policies ? {
    for prefix in var.run_prefixes : prefix => { for role in local.roles : role => aws_iam_policy.this["${prefix}/${role}"].arn }
  } : {}
}

output "kms_key_arn" {
  description = "ARN of the KMS key, or null where S3's own keys encrypt."
  value       = local.kms_key
}

output "bucket_policy" {
  description = "The bucket's policy as JSON, or null where the bucket is not configured here."
  value       = one(data.aws_iam_policy_document.bucket[*].json)
}
