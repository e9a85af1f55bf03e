# Agents on EKS by IAM roles for service accounts: a role for each team, for its own runs only.

module "store" {
  source = "../.."

  bucket       = var.bucket
  prefix       = "agents"
  run_prefixes = [for team in var.teams : "${team}-"]
}

locals {
  issuer = split(":oidc-provider/", var.oidc_provider_arn)[1]
}

data "aws_iam_policy_document" "assume" {
  for_each = var.teams

  statement {
    actions = ["sts:AssumeRoleWithWebIdentity"]

    principals {
      type        = "Federated"
      identifiers = [var.oidc_provider_arn]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:sub"
      values   = ["system:serviceaccount:${each.key}:agent"]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "agent" {
  for_each           = var.teams
  name               = "${var.bucket}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.assume[each.key].json
}

resource "aws_iam_role_policy_attachment" "store" {
  for_each   = var.teams
  role       = aws_iam_role.agent[each.key].name
  policy_arn = module.store.run_policy_arns["${each.key}-"]["writer"]
}
