# An agent as a Cloud Run job: each try resumes the run where the last one ended.

terraform {
  required_version = ">= 1.5, < 2.0"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 9.0"
    }
  }
}

variable "project" {
  type        = string
  description = "Id of the project."
}

variable "region" {
  type        = string
  description = "Where all of it is."
  default     = "europe-west3"
}

variable "bucket_name" {
  type        = string
  description = "Name of the bucket, unique in all of Google Cloud."
}

variable "image" {
  type        = string
  description = "The agent's image, with cloudckpt[gcs] in it."
}

variable "maintainers" {
  type        = string
  description = "IAM member that collects and deletes, such as group:operators@example.com."
}

provider "google" {
  project = var.project
  region  = var.region
}

module "checkpoints" {
  source = "../.."

  project     = var.project
  bucket_name = var.bucket_name
  location    = var.region

  service_account = {
    account_id = "nightly-agent"
    run_prefix = "nightly-"
  }
  maintainers = {
    operators = { member = var.maintainers }
  }
}

resource "google_cloud_run_v2_job" "agent" {
  name     = "nightly-agent"
  location = var.region

  template {
    task_count  = 1
    parallelism = 1

    template {
      service_account = module.checkpoints.service_account_email
      timeout         = "14400s"
      max_retries     = 10 # a crash costs at most the last step

      containers {
        image = var.image

        resources {
          limits = {
            cpu    = "1"
            memory = "2Gi"
          }
        }

        dynamic "env" {
          for_each = module.checkpoints.environment

          content {
            name  = env.key
            value = env.value
          }
        }
      }
    }
  }
}

output "store_url" {
  description = "The store, for cloudckpt --store."
  value       = module.checkpoints.store_url
}
