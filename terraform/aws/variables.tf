# ---- where

variable "bucket" {
  description = "Name of the bucket: to create, or of one that is there when create_bucket is false."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "The bucket's name has 3 to 63 characters: lower-case letters, digits, dots and hyphens, a letter or digit at either end."
  }
}

variable "create_bucket" {
  description = "Whether to create the bucket. False: it is there."
  type        = bool
  default     = true
  nullable    = false
}

variable "configure_bucket" {
  description = "Whether to set the bucket's policy, lifecycle, versioning, encryption and public access block. A bucket has one of each, so on a bucket that is there this replaces what it had. Null: only on a bucket that is created here."
  type        = bool
  default     = null

  validation {
    condition     = var.configure_bucket != false || !var.create_bucket
    error_message = "A bucket that is created here is configured here: leave configure_bucket out, or set create_bucket to false."
  }
}

variable "prefix" {
  description = "Prefix of the store in the bucket, without a slash at either end, such as agents. Empty: the store is the whole bucket."
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = var.prefix == "" || can(regex("^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$", var.prefix))
    error_message = "The prefix is made of names of letters, digits, dots, hyphens and underscores, with one slash between them and none at either end."
  }
}

variable "force_destroy" {
  description = "Whether destroying the module deletes all checkpoints with the bucket. Refused by the bucket while it keeps anything, if false."
  type        = bool
  default     = false
  nullable    = false
}

variable "tags" {
  description = "Tags of everything that is created here."
  type        = map(string)
  default     = {}
  nullable    = false
}

# ---- who

variable "create_policies" {
  description = "Whether to create the three IAM policies."
  type        = bool
  default     = true
  nullable    = false
}

variable "policy_name" {
  description = "What the names of the IAM policies begin with. Null: the bucket's name."
  type        = string
  default     = null

  validation {
    condition     = var.policy_name == null || can(regex("^[A-Za-z0-9+=,.@_-]{1,64}$", var.policy_name))
    error_message = "The name of the policies has 1 to 64 characters: letters, digits and any of +=,.@_-"
  }
}

variable "run_prefixes" {
  description = "Beginnings of run ids, such as team-a-: for each there are three more policies, for the runs whose id begins so and no others."
  type        = set(string)
  default     = []
  nullable    = false

  # Other characters have another form in a key (docs/FORMAT.md), and so has a dot at either end.
  validation {
    condition     = alltrue([for each in var.run_prefixes : can(regex("^[a-z0-9_-]([a-z0-9._-]{0,46}[a-z0-9_-])?$", each))])
    error_message = "A run prefix has 1 to 48 characters: lower-case letters, digits, hyphens, underscores, and dots that are not at either end."
  }
}

variable "maintainer_arns" {
  description = "ARNs of the IAM roles or users who may delete: they run collect and forget. The bucket refuses it to everybody else, and to all while the list is empty."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for each in var.maintainer_arns : can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[A-Za-z0-9+=,.@_/-]+$", each))])
    error_message = "A maintainer is the ARN of an IAM role or user, such as arn:aws:iam::123456789012:role/maintainer, without wildcards."
  }
}

variable "additional_bucket_policies" {
  description = "More policies of the bucket, as JSON, to be merged with this one: a bucket has one policy."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for each in var.additional_bucket_policies : can(jsondecode(each).Statement)])
    error_message = "Each policy is JSON with a Statement."
  }
}

# ---- how it is kept

variable "versioning" {
  description = "Whether the bucket keeps what is overwritten or deleted for as long as pointer_versions_days and object_versions_days say."
  type        = bool
  default     = true
  nullable    = false
}

variable "pointer_versions_days" {
  description = "For how many days a version of a pointer is kept after it was replaced. Each save makes one."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = var.pointer_versions_days >= 1 && floor(var.pointer_versions_days) == var.pointer_versions_days
    error_message = "The days are a whole number from 1."
  }
}

variable "object_versions_days" {
  description = "For how many days an object can be got back after a collect deleted it."
  type        = number
  default     = 30
  nullable    = false

  validation {
    condition     = var.object_versions_days >= 1 && floor(var.object_versions_days) == var.object_versions_days
    error_message = "The days are a whole number from 1."
  }
}

variable "abort_uploads_days" {
  description = "After how many days an upload in parts that was not completed is thrown away."
  type        = number
  default     = 7
  nullable    = false

  validation {
    condition     = var.abort_uploads_days >= 1 && floor(var.abort_uploads_days) == var.abort_uploads_days
    error_message = "The days are a whole number from 1."
  }
}

variable "objects_transition" {
  description = "A colder storage class for objects, and after how many days they move there; pointers stay. From GLACIER and DEEP_ARCHIVE a checkpoint must be restored before it is loaded (docs/erasure.md). Null: they stay where they are."
  type = object({
    days          = number
    storage_class = string
  })
  default = null

  validation {
    condition     = var.objects_transition == null || contains(["STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"], try(var.objects_transition.storage_class, ""))
    error_message = "The storage class is STANDARD_IA, ONEZONE_IA, INTELLIGENT_TIERING, GLACIER_IR, GLACIER or DEEP_ARCHIVE."
  }

  # S3 refuses a move to an infrequent-access class before its thirtieth day.
  validation {
    condition     = var.objects_transition == null || try(var.objects_transition.days >= (endswith(var.objects_transition.storage_class, "_IA") ? 30 : 0) && floor(var.objects_transition.days) == var.objects_transition.days, false)
    error_message = "The days are a whole number, from 30 for STANDARD_IA and ONEZONE_IA."
  }
}

variable "create_kms_key" {
  description = "Whether to create a KMS key and encrypt by it. False: by kms_key_arn, or by S3's own keys (SSE-S3) without one."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !(var.create_kms_key && var.kms_key_arn != null)
    error_message = "Encrypt by a key that is created here or by kms_key_arn, not both."
  }
}

variable "kms_key_arn" {
  description = "ARN of a KMS key to encrypt by. Its policy must let this account's IAM policies speak."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.kms_key_arn))
    error_message = "The key is named by its ARN, such as arn:aws:kms:eu-central-1:123456789012:key/..., not by an alias: policies know no aliases."
  }
}

variable "object_lock" {
  description = "Whether objects can be locked, one by one, by lock= of cloudckpt.open. There is no default retention for the bucket: it would keep the pointer of every save as well. Can't be turned off again."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.object_lock || (var.versioning && var.create_bucket)
    error_message = "A lock keeps a version of an object, and is a matter of a bucket's creation: object_lock needs versioning and create_bucket."
  }
}

variable "access_log" {
  description = "Another bucket that gets this one's access log, under a prefix; it must let logging.s3.amazonaws.com write. Null: no log."
  type = object({
    bucket = string
    prefix = optional(string, "")
  })
  default = null

  validation {
    condition     = try(var.access_log.bucket, "") != var.bucket
    error_message = "A bucket that logs into itself logs each entry of its log: name another one."
  }
}
