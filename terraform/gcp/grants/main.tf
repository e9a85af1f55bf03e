# Who gets which role on which keys. Pure: it needs no provider, so it is tested without a cloud.

terraform {
  required_version = ">= 1.5, < 2.0"
}

variable "bucket" {
  type        = string
  description = "The bucket's name."
}

variable "prefix" {
  type        = string
  description = "Path of the store in the bucket, without slashes at its ends; may be empty."
}

variable "lock" {
  type        = bool
  description = "Whether saves may lock their payloads."
}

variable "writers" {
  type        = map(object({ member = string, run_prefix = string }))
  description = "Who runs agents: an IAM member, and how the ids of its runs begin."
}

variable "readers" {
  type        = map(object({ member = string, run_prefix = string }))
  description = "Who looks at runs."
}

variable "maintainers" {
  type        = map(object({ member = string, run_prefix = string }))
  description = "Who collects, deletes and forgets."
}

locals {
  lock = var.lock ? ["storage.objects.setRetention"] : []

  roles = {
    lister     = ["storage.objects.list"]
    reader     = ["storage.objects.get"]
    writer     = concat(["storage.objects.create", "storage.objects.get"], local.lock)
    replacer   = ["storage.objects.delete"]
    maintainer = concat(["storage.objects.create", "storage.objects.delete", "storage.objects.get"], local.lock)
  }

  # Of an object's resource name, up to the store's root.
  root = "projects/_/buckets/${var.bucket}/objects/${var.prefix == "" ? "" : "${var.prefix}/"}"

  # What each role reaches: keys that begin so and go on with the run's id, keys that begin so, and whole keys.
  # Replacing an object needs the right to delete it; so a writer has that on pointers, and not on payloads. On
  # cloudckpt.json too: two writers may create it at once, and the second should be told that it is there.
  # Listing has the bucket for its resource: a condition on an object's name would never let it through.
  reach = {
    lister     = { run = [], begins = [], is = [] }
    reader     = { run = ["manifests/", "objects/"], begins = [], is = ["cloudckpt.json", "settings.json"] }
    writer     = { run = ["manifests/", "objects/"], begins = ["probe/"], is = ["cloudckpt.json"] }
    replacer   = { run = ["manifests/"], begins = ["probe/"], is = ["cloudckpt.json"] }
    maintainer = { run = ["manifests/", "objects/"], begins = ["probe/"], is = [] }
    operator   = { run = [], begins = [""], is = [] }
  }

  levels = {
    writer     = { to = var.writers, roles = ["lister", "reader", "writer", "replacer"] }
    reader     = { to = var.readers, roles = ["lister", "reader"] }
    maintainer = { to = var.maintainers, roles = ["lister", "reader", "maintainer"] }
  }

  given = merge(flatten([
    for level, found in local.levels : [
      for name, one in found.to : {
        for role in found.roles : "${level}/${name}/${role}" => {
          role   = role
          member = one.member
          run    = one.run_prefix
          # A maintainer of the whole store also sets the store's settings.
          reach = local.reach[role == "maintainer" && one.run_prefix == "" ? "operator" : role]
        }
      }
    ]
  ])...)
}

output "roles" {
  description = "The permissions of each role."
  value       = local.roles
}

output "given" {
  description = "One a grant: the role, the member, and the condition in Google's expression language (empty: none)."
  value = {
    for name, one in local.given : name => {
      role   = one.role
      member = one.member
      expression = join(" || ", concat(
        [for part in one.reach.run : "resource.name.startsWith(\"${local.root}${part}${one.run}\")"],
        [for part in one.reach.begins : "resource.name.startsWith(\"${local.root}${part}\")"],
        [for part in one.reach.is : "resource.name == \"${local.root}${part}\""],
      ))
    }
  }
}
