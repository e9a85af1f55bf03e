# An agent on GKE: the pod logs in as its Kubernetes service account, without a key.
# The cluster has Workload Identity Federation for GKE (an Autopilot cluster always has).

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
  description = "Id of the project that has the cluster and gets the bucket."
}

variable "region" {
  type        = string
  description = "Where the bucket is: the cluster's region."
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

variable "namespace" {
  type        = string
  description = "The agents' namespace, which exists."
  default     = "agents"
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

  kubernetes_writers = {
    nightly = {
      namespace       = var.namespace
      service_account = "nightly-agent"
      run_prefix      = "nightly-"
    }
  }
}

output "manifest" {
  description = "For the cluster: terraform output -raw manifest | kubectl apply -f -"
  value = templatefile("${path.module}/agent.yaml.tftpl", {
    namespace   = var.namespace
    image       = var.image
    environment = module.checkpoints.environment
  })
}
