# ---- the store

variable "resource_group_name" {
  type        = string
  description = "Resource group that gets the storage account and the custom roles."

  validation {
    condition     = can(regex("^[A-Za-z0-9_().-]{0,89}[A-Za-z0-9_()-]$", var.resource_group_name))
    error_message = "A resource group's name is at most 90 letters, digits, _ ( ) . - and no dot at its end."
  }
}

variable "location" {
  type        = string
  description = "Where the account is, such as westeurope. Next to the agents: each save waits for it."

  validation {
    condition     = length(var.location) > 0
    error_message = "Name a location, such as westeurope."
  }
}

variable "account_name" {
  type        = string
  description = "Name of the storage account, unique in all of Azure."

  validation {
    condition     = can(regex("^[a-z0-9]{3,24}$", var.account_name))
    error_message = "An account's name is 3 to 24 lower-case letters and digits."
  }
}

variable "container_name" {
  type        = string
  description = "Name of the container."
  default     = "cloudckpt"

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9]|-[a-z0-9]){2,62}$", var.container_name))
    error_message = "A container's name is 3 to 63 lower-case letters, digits and single hyphens between them."
  }
}

variable "prefix" {
  type        = string
  description = "Path of the store in the container, without slashes at its ends. Empty: all of it is the store."
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$", var.prefix))
    error_message = "A prefix is letters, digits, dots, underscores and hyphens, parted by single slashes."
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags of the account."
  default     = {}
}

# ---- what the account keeps

variable "replication" {
  type        = string
  description = "How many copies there are, and where: LRS, ZRS, GRS, RAGRS, GZRS or RAGZRS."
  default     = "ZRS"

  validation {
    condition     = contains(["LRS", "ZRS", "GRS", "RAGRS", "GZRS", "RAGZRS"], var.replication)
    error_message = "Use LRS, ZRS, GRS, RAGRS, GZRS or RAGZRS."
  }
}

variable "soft_delete_days" {
  type        = number
  description = "Days for which a deleted blob, and a deleted container, can be brought back: 1 to 365."
  default     = 7

  validation {
    condition     = var.soft_delete_days >= 1 && var.soft_delete_days <= 365
    error_message = "Azure takes 1 to 365 days."
  }
}

variable "versioning" {
  type        = bool
  description = "Keep what was replaced as a version. A writer can't be kept from replacing a payload, so keep this on."
  default     = true
}

variable "version_days" {
  type        = number
  description = "Days after which an older version is deleted, from its own creation on. Only with versioning."
  default     = 7

  validation {
    condition     = var.version_days >= 1 && floor(var.version_days) == var.version_days
    error_message = "Give a whole number of days, at least 1: each save leaves a version of its pointer."
  }
}

variable "cool_objects_days" {
  type        = number
  description = "Days after which a payload moves to the cool tier, which is read at once and billed for it. Null: never."
  default     = null

  validation {
    condition     = var.cool_objects_days == null ? true : var.cool_objects_days >= 1
    error_message = "Give at least 1 day, or null."
  }
}

variable "object_lock" {
  type        = bool
  description = "Let blobs be locked one by one (version-level immutability). Only when the account is made, and for good."
  default     = false
}

# ---- from where

variable "network" {
  type = object({
    ip_rules   = optional(list(string), [])
    subnet_ids = optional(list(string), [])
  })
  description = "The only addresses and subnets that reach the account. Null: any; the login decides alone."
  default     = null
}

# ---- who may do what

variable "writers" {
  type = map(object({
    principal_id   = string
    principal_type = optional(string, "ServicePrincipal")
    run_prefix     = optional(string, "")
  }))
  description = "Who runs agents, by a name of yours: an object id in Entra, and how the ids of its runs begin (empty: any)."
  default     = {}

  validation {
    condition = alltrue([
      for one in var.writers :
      contains(["ServicePrincipal", "User", "Group"], one.principal_type)
      && can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", one.run_prefix))
    ])
    error_message = "principal_type is ServicePrincipal, User or Group; a run_prefix has no capitals."
  }
}

variable "readers" {
  type = map(object({
    principal_id   = string
    principal_type = optional(string, "ServicePrincipal")
    run_prefix     = optional(string, "")
  }))
  description = "Who looks at runs, by a name of yours: an object id in Entra, and how the runs begin (empty: any)."
  default     = {}

  validation {
    condition = alltrue([
      for one in var.readers :
      contains(["ServicePrincipal", "User", "Group"], one.principal_type)
      && can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", one.run_prefix))
    ])
    error_message = "principal_type is ServicePrincipal, User or Group; a run_prefix has no capitals."
  }
}

variable "maintainers" {
  type = map(object({
    principal_id   = string
    principal_type = optional(string, "ServicePrincipal")
    run_prefix     = optional(string, "")
  }))
  description = "Who collects, deletes and forgets, by a name of yours: an object id in Entra, and how the runs begin."
  default     = {}

  validation {
    condition = alltrue([
      for one in var.maintainers :
      contains(["ServicePrincipal", "User", "Group"], one.principal_type)
      && can(regex("^([a-z0-9_-][a-z0-9._-]*[a-z0-9_-]|[a-z0-9_-])?$", one.run_prefix))
    ])
    error_message = "principal_type is ServicePrincipal, User or Group; a run_prefix has no capitals."
  }
}
