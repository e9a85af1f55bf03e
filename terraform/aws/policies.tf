# Who may do what. The documents are in policies/, where docs/security.md explains them.

locals {
  roles       = ["writer", "reader", "maintainer"]
  policy_name = coalesce(var.policy_name, var.bucket)
  # By name: which runs, and which role.
  policies = var.create_policies ? merge(
    { for role in local.roles : role => { run = "*", role = role } },
    { for pair in setproduct(var.run_prefixes, local.roles) : "${pair[0]}/${pair[1]}" => { run = "${pair[0]}*", role = pair[1] } },
  ) : {}
}

data "aws_iam_policy_document" "bucket" {
  count = local.configured ? 1 : 0

  source_policy_documents = concat(
    [
      templatefile("${path.module}/policies/bucket.json.tftpl", {
        bucket_arn      = local.bucket_arn
        prefix          = local.root
        run             = "*"
        kms_key_arn     = local.by_kms ? local.kms_key : ""
        maintainer_arns = jsonencode(var.maintainer_arns)
      })
    ],
    var.additional_bucket_policies,
  )
}

resource "aws_s3_bucket_policy" "this" {
  count  = local.configured ? 1 : 0
  bucket = local.bucket
  policy = data.aws_iam_policy_document.bucket[0].json
  # S3 refuses one while the other is being changed.
  depends_on = [aws_s3_bucket_public_access_block.this]
}

resource "aws_iam_policy" "this" {
  for_each    = local.policies
  name        = "${local.policy_name}-${replace(each.key, "/", "")}"
  description = "cloudckpt: ${each.value.role} of ${each.value.run == "*" ? "all runs" : "the runs ${each.value.run}"} in ${var.bucket}"
  tags        = var.tags

  policy = templatefile("${path.module}/policies/${each.value.role}.json.tftpl", {
    bucket_arn      = local.bucket_arn
    prefix          = local.root
    run             = each.value.run
    kms_key_arn     = local.by_kms ? local.kms_key : ""
    maintainer_arns = jsonencode(var.maintainer_arns)
  })
}
