# The AWS module against a server that speaks for all of Amazon, at one address.

terraform {
  required_version = ">= 1.9, < 2.0"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60, < 7.0"
    }
  }
}

variable "endpoint" {
  description = "Where the server listens."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket."
  type        = string
}

variable "prefix" {
  description = "Prefix of the store."
  type        = string
}

provider "aws" {
  region                      = "us-east-1"
  access_key                  = "cloudckpt"
  secret_key                  = "cloudckpt-secret"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true

  endpoints {
    iam = var.endpoint
    kms = var.endpoint
    s3  = var.endpoint
    sts = var.endpoint
  }
}

module "store" {
  source = "../../../terraform/aws"

  bucket             = var.bucket
  prefix             = var.prefix
  create_kms_key     = true
  force_destroy      = true
  run_prefixes       = ["team-a-"]
  maintainer_arns    = ["arn:aws:iam::123456789012:role/maintainer"]
  objects_transition = { days = 90, storage_class = "GLACIER_IR" }
  tags               = { team = "agents" }
}

output "store" {
  description = "All that the module tells."
  value       = module.store
}
