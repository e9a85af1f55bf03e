# What is refused before anything is planned, with a word on what to do. Plans only: nothing is asked of Amazon.

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

run "refused_is_a_name_with_capitals" {
  command = plan

  variables {
    bucket = "Checkpoints"
  }

  expect_failures = [var.bucket]
}

run "refused_is_a_prefix_with_a_slash_at_its_end" {
  command = plan

  variables {
    prefix = "agents/"
  }

  expect_failures = [var.prefix]
}

run "refused_is_a_prefix_with_a_slash_in_front" {
  command = plan

  variables {
    prefix = "/agents"
  }

  expect_failures = [var.prefix]
}

run "refused_is_a_prefix_that_goes_up" {
  command = plan

  variables {
    prefix = "a/../b"
  }

  expect_failures = [var.prefix]
}

run "refused_is_a_new_bucket_that_is_not_configured" {
  command = plan

  variables {
    configure_bucket = false
  }

  expect_failures = [var.configure_bucket]
}

run "refused_is_a_policy_name_with_a_space" {
  command = plan

  variables {
    policy_name = "my policies"
  }

  expect_failures = [var.policy_name]
}

run "refused_is_a_run_prefix_with_capitals" {
  command = plan

  variables {
    run_prefixes = ["Team-"]
  }

  expect_failures = [var.run_prefixes]
}

run "refused_is_a_run_prefix_that_ends_in_a_dot" {
  command = plan

  variables {
    run_prefixes = ["team."]
  }

  expect_failures = [var.run_prefixes]
}

run "refused_is_a_run_prefix_with_a_wildcard" {
  command = plan

  variables {
    run_prefixes = ["*"]
  }

  expect_failures = [var.run_prefixes]
}

run "refused_is_an_empty_run_prefix" {
  command = plan

  variables {
    run_prefixes = [""]
  }

  expect_failures = [var.run_prefixes]
}

run "refused_is_a_maintainer_that_is_everybody" {
  command = plan

  variables {
    maintainer_arns = ["*"]
  }

  expect_failures = [var.maintainer_arns]
}

run "refused_is_a_maintainer_with_a_wildcard" {
  command = plan

  variables {
    maintainer_arns = ["arn:aws:iam::123456789012:role/*"]
  }

  expect_failures = [var.maintainer_arns]
}

run "refused_is_a_policy_that_is_not_json" {
  command = plan

  variables {
    additional_bucket_policies = ["none"]
  }

  expect_failures = [var.additional_bucket_policies]
}

run "refused_is_no_days_for_pointers" {
  command = plan

  variables {
    pointer_versions_days = 0
  }

  expect_failures = [var.pointer_versions_days]
}

run "refused_is_half_days_for_objects" {
  command = plan

  variables {
    object_versions_days = 1.5
  }

  expect_failures = [var.object_versions_days]
}

run "refused_is_no_days_for_uploads" {
  command = plan

  variables {
    abort_uploads_days = 0
  }

  expect_failures = [var.abort_uploads_days]
}

run "refused_is_an_unknown_storage_class" {
  command = plan

  variables {
    objects_transition = { days = 30, storage_class = "REDUCED_REDUNDANCY" }
  }

  expect_failures = [var.objects_transition]
}

run "refused_is_a_move_to_infrequent_access_too_soon" {
  command = plan

  variables {
    objects_transition = { days = 29, storage_class = "STANDARD_IA" }
  }

  expect_failures = [var.objects_transition]
}

run "refused_is_two_keys" {
  command = plan

  variables {
    create_kms_key = true
    kms_key_arn    = "arn:aws:kms:us-east-1:123456789012:key/own"
  }

  expect_failures = [var.create_kms_key]
}

run "refused_is_a_key_by_an_alias" {
  command = plan

  variables {
    kms_key_arn = "alias/checkpoints"
  }

  expect_failures = [var.kms_key_arn]
}

run "refused_is_a_lock_without_versions" {
  command = plan

  variables {
    object_lock = true
    versioning  = false
  }

  expect_failures = [var.object_lock]
}

run "refused_is_a_bucket_that_logs_into_itself" {
  command = plan

  variables {
    access_log = { bucket = "checkpoints" }
  }

  expect_failures = [var.access_log]
}
