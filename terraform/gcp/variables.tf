# ---- the store

variable "project" {
  type        = string
  description = "Id of the project that gets the bucket and the custom roles."

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "A project id is 6 to 30 lower-case letters, digits and hyphens, from a letter on."
  }
}

variable "bucket_name" {
  type        = string
  description = "Name of the bucket, unique in all of Google Cloud."

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9_.-]{1,220}[a-z0-9]$", var.bucket_name))
    error_message = "A bucket's name is lower-case letters, digits, hyphens, underscores and dots, at least 3."
  }
}

variable "location" {
  type        = string
  description = "Where the bucket is, such as EU or europe-west3. Next to the agents: each save waits for it."

  validation {
    condition     = length(var.location) > 0
    error_message = "Name a location, such as europe-west3."
  }
}

variable "prefix" {
  type        = string
  description = "Path of the store in the bucket, without slashes at its ends. Empty: the whole bucket is the store."
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$", var.prefix))
    error_message = "A prefix is letters, digits, dots, underscores and hyphens, parted by single slashes."
  }
}

variable "labels" {
  type        = map(string)
  description = "Labels of the bucket."
  default     = {}
}

# ---- what the bucket keeps

variable "soft_delete_days" {
  type        = number
  description = "Days for which Google keeps what was replaced or deleted: 7 to 90, or 0 for not at all."
  default     = 7

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90)
    error_message = "Google takes 0, or 7 to 90 days."
  }
}

variable "versioning" {
  type        = bool
  description = "Keep replaced pointers and deleted payloads as noncurrent versions too, beside soft delete."
  default     = false
}

variable "noncurrent_days" {
  type        = number
  description = "Days after which a noncurrent version goes. Only with versioning."
  default     = 7

  validation {
    condition     = var.noncurrent_days >= 1 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "Give a whole number of days, at least 1: each save leaves a version of its pointer."
  }
}

variable "cold_objects" {
  type = object({
    after_days    = number
    storage_class = string
  })
  description = "Move payloads of this age to a colder class. Google reads each class at once, and bills the read."
  default     = null

  validation {
    condition = var.cold_objects == null ? true : (
      var.cold_objects.after_days >= 1
      && contains(["NEARLINE", "COLDLINE", "ARCHIVE"], var.cold_objects.storage_class)
    )
    error_message = "Give after_days of at least 1, and NEARLINE, COLDLINE or ARCHIVE as storage_class."
  }
}

variable "object_retention" {
  type        = bool
  description = "Let a save lock its payloads, by lock= of cloudckpt.open. Can't be switched off again on a bucket."
  default     = false
}

variable "kms_key_name" {
  type        = string
  description = "Full name of a Cloud KMS key that encrypts the bucket, in the bucket's location. Null: Google's own key."
  default     = null

  validation {
    condition = var.kms_key_name == null ? true : can(
      regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key_name)
    )
    error_message = "Write projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY."
  }
}

variable "log_bucket" {
  type        = string
  description = "Bucket that gets the access logs. Null: none; Cloud Audit Logs are the newer way."
  default     = null
}

# ---- who may do what

variable "role_id_prefix" {
  type        = string
  description = "How the ids of the custom roles begin. Change it for a second store in the same project."
  default     = "cloudckpt"

  validation {
    condition     = can(regex("^[a-zA-Z0-9_.]{3,40}$", var.role_id_prefix))
    error_message = "Use 3 to 40 letters, digits, dots and underscores."
  }
}

variable "writers" {
  type = map(object({
    member     = string
    run_prefix = optional(string, "")
  }))
  description = "Who runs agents, by a name of yours: an IAM member, and how the ids of its runs begin (empty: any)."
  default     = {}

  validation {
    condition     = alltrue([for one in var.writers : can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", one.run_prefix))])
    error_message = "A run_prefix is lower-case letters, digits, hyphens, underscores and inner dots."
  }
}

variable "readers" {
  type = map(object({
    member     = string
    run_prefix = optional(string, "")
  }))
  description = "Who looks at runs, by a name of yours: an IAM member, and how the ids of the runs begin (empty: any)."
  default     = {}

  validation {
    condition     = alltrue([for one in var.readers : can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", one.run_prefix))])
    error_message = "A run_prefix is lower-case letters, digits, hyphens, underscores and inner dots."
  }
}

variable "maintainers" {
  type = map(object({
    member     = string
    run_prefix = optional(string, "")
  }))
  description = "Who collects, deletes and forgets, by a name of yours: an IAM member, and how the runs begin (empty: any)."
  default     = {}

  validation {
    condition     = alltrue([for one in var.maintainers : can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", one.run_prefix))])
    error_message = "A run_prefix is lower-case letters, digits, hyphens, underscores and inner dots."
  }
}

variable "service_account" {
  type = object({
    account_id = string
    run_prefix = optional(string, "")
  })
  description = "Make a service account with this id, and let it run agents. Null: make none."
  default     = null

  validation {
    condition = var.service_account == null ? true : (
      can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.service_account.account_id))
      && can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", var.service_account.run_prefix))
    )
    error_message = "An account_id is 6 to 30 lower-case letters, digits and hyphens; a run_prefix has no capitals."
  }
}

variable "kubernetes_writers" {
  type = map(object({
    namespace       = string
    service_account = string
    run_prefix      = optional(string, "")
  }))
  description = "Kubernetes service accounts that run agents, by Workload Identity Federation for GKE, without keys."
  default     = {}

  validation {
    condition = alltrue([
      for one in var.kubernetes_writers :
      length(one.namespace) > 0 && length(one.service_account) > 0
      && can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", one.run_prefix))
    ])
    error_message = "Give a namespace, a service_account, and a run_prefix without capitals."
  }
}

variable "kubernetes_project" {
  type        = string
  description = "Project of the GKE clusters of kubernetes_writers. Null: the bucket's."
  default     = null
}
