# Who may do what, by variable. On a bucket that is there: its ARN is known when planning. Plans only: nothing is asked of Amazon.

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
  bucket           = "checkpoints"
  create_bucket    = false
  configure_bucket = true
  prefix           = "agents"
}

override_data {
  target = data.aws_s3_bucket.this[0]
  values = {
    id  = "checkpoints"
    arn = "arn:aws:s3:::checkpoints"
  }
}

run "a_bucket_that_is_there_is_used_and_configured" {
  command = plan

  assert {
    condition     = length(aws_s3_bucket.this) == 0 && output.bucket == "checkpoints"
    error_message = "No bucket is created."
  }

  assert {
    condition     = length(aws_s3_bucket_policy.this) == 1 && length(aws_s3_bucket_public_access_block.this) == 1 && length(aws_s3_bucket_lifecycle_configuration.this) == 1
    error_message = "It is configured."
  }

  assert {
    condition     = output.store_url == "s3://checkpoints/agents" && output.environment.CLOUDCKPT_URL == output.store_url
    error_message = "The store's URL has its prefix."
  }
}

run "a_bucket_that_is_there_is_left_alone_unless_asked" {
  command = plan

  variables {
    configure_bucket = null
  }

  assert {
    condition     = length(aws_s3_bucket_policy.this) + length(aws_s3_bucket_public_access_block.this) + length(aws_s3_bucket_lifecycle_configuration.this) + length(aws_s3_bucket_versioning.this) + length(aws_s3_bucket_server_side_encryption_configuration.this) + length(aws_s3_bucket_ownership_controls.this) == 0
    error_message = "Nothing of somebody's bucket is replaced."
  }

  assert {
    condition     = length(aws_iam_policy.this) == 3 && output.bucket_policy == null
    error_message = "The policies are there all the same."
  }
}

run "versions_of_a_bucket_that_is_there_are_stopped" {
  command = plan

  variables {
    versioning = false
  }

  assert {
    condition     = aws_s3_bucket_versioning.this[0].versioning_configuration[0].status == "Suspended"
    error_message = "It makes no new versions."
  }
}

run "a_store_without_a_prefix_is_the_bucket" {
  command = plan

  variables {
    prefix = ""
  }

  assert {
    condition     = output.store_url == "s3://checkpoints"
    error_message = "The URL has no slash at its end."
  }

  assert {
    condition     = [for each in jsondecode(data.aws_iam_policy_document.bucket[0].json).Statement : each if each.Sid == "ConditionalWritesOnly"][0].Resource == "arn:aws:s3:::checkpoints/*"
    error_message = "The policy is for the whole bucket."
  }
}

run "nobody_deletes_unless_named" {
  command = plan

  assert {
    condition     = !can([for each in jsondecode(data.aws_iam_policy_document.bucket[0].json).Statement : each if each.Sid == "OnlyMaintainersDelete"][0].Condition)
    error_message = "The denial has no exception."
  }

  assert {
    condition     = [for each in jsondecode(data.aws_iam_policy_document.bucket[0].json).Statement : each if each.Sid == "ConditionalWritesOnly"][0].Resource == "arn:aws:s3:::checkpoints/agents/*"
    error_message = "The policy is for the store."
  }
}

run "maintainers_may_delete" {
  command = plan

  variables {
    maintainer_arns = ["arn:aws:iam::123456789012:role/m", "arn:aws:iam::123456789012:user/u"]
  }

  assert {
    condition     = toset(tolist([for each in jsondecode(data.aws_iam_policy_document.bucket[0].json).Statement : each if each.Sid == "OnlyMaintainersDelete"][0].Condition.ArnNotLike["aws:PrincipalArn"])) == toset(["arn:aws:iam::123456789012:role/m", "arn:aws:iam::123456789012:user/u"])
    error_message = "The denial excepts those that were named."
  }
}

run "more_policies_are_merged" {
  command = plan

  variables {
    additional_bucket_policies = ["{\"Version\":\"2012-10-17\",\"Statement\":[{\"Sid\":\"Mine\",\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::checkpoints/secret\"}]}"]
  }

  assert {
    condition     = [for each in jsondecode(data.aws_iam_policy_document.bucket[0].json).Statement : each if each.Sid == "Mine"][0].Resource == "arn:aws:s3:::checkpoints/secret" && [for each in jsondecode(data.aws_iam_policy_document.bucket[0].json).Statement : each if each.Sid == "TlsOnly"][0].Effect == "Deny"
    error_message = "Both are in the bucket's policy."
  }
}

run "each_run_prefix_has_three_policies_of_its_own" {
  command = plan

  variables {
    run_prefixes = ["team-a-", "b"]
    policy_name  = "ckpt"
  }

  assert {
    condition     = toset([for each in aws_iam_policy.this : each.name]) == toset(concat([for role in ["writer", "reader", "maintainer"] : "ckpt-${role}"], [for role in ["writer", "reader", "maintainer"] : "ckpt-team-a-${role}"], [for role in ["writer", "reader", "maintainer"] : "ckpt-b${role}"]))
    error_message = "Nine policies, named by run prefix and role."
  }

  assert {
    condition     = contains(flatten([for each in jsondecode(aws_iam_policy.this["team-a-/reader"].policy).Statement : each.Resource]), "arn:aws:s3:::checkpoints/agents/objects/team-a-*/*")
    error_message = "A policy of a run prefix is for its runs."
  }

  assert {
    condition     = !strcontains(aws_iam_policy.this["team-a-/writer"].policy, "objects/*/")
    error_message = "It is for no other runs."
  }
}

run "policies_are_left_out" {
  command = plan

  variables {
    create_policies = false
  }

  assert {
    condition     = length(aws_iam_policy.this) == 0 && length(output.policy_arns) == 0 && length(output.run_policy_arns) == 0
    error_message = "There is none."
  }
}

run "policies_name_the_key" {
  command = plan

  variables {
    kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/own"
  }

  assert {
    condition     = alltrue([for each in aws_iam_policy.this : strcontains(each.policy, "arn:aws:kms:us-east-1:123456789012:key/own")])
    error_message = "Each may use the key."
  }
}

run "policies_name_no_key_without_one" {
  command = plan

  assert {
    condition     = !anytrue([for each in aws_iam_policy.this : strcontains(each.policy, "kms:")])
    error_message = "There is no key to use."
  }
}
