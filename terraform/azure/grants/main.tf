# Who gets which role on which keys. Pure: it needs no provider, so it is tested without a cloud.

terraform {
  required_version = ">= 1.5, < 2.0"
}

variable "prefix" {
  type        = string
  description = "Path of the store in the container, without slashes at its ends; may be empty."
}

variable "writers" {
  type        = map(object({ principal_id = string, principal_type = string, run_prefix = string }))
  description = "Who runs agents: an object id, its kind, and how the ids of its runs begin."
}

variable "readers" {
  type        = map(object({ principal_id = string, principal_type = string, run_prefix = string }))
  description = "Who looks at runs."
}

variable "maintainers" {
  type        = map(object({ principal_id = string, principal_type = string, run_prefix = string }))
  description = "Who collects, deletes and forgets."
}

locals {
  blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
  root  = var.prefix == "" ? "" : "${var.prefix}/"

  roles = {
    reader = ["${local.blobs}/read"]
    writer = ["${local.blobs}/read", "${local.blobs}/write"]
    maintainer = [
      "${local.blobs}/read",
      "${local.blobs}/write",
      "${local.blobs}/delete",
      "${local.blobs}/deleteBlobVersion/action",
    ]
  }

  # Keys that begin so and go on with the run's id, keys that begin so, and whole keys.
  runs = ["manifests/", "objects/"]
  reach = {
    reader = {
      get    = { run = local.runs, begins = [], is = ["cloudckpt.json", "settings.json"] }
      list   = { run = local.runs, begins = ["probe/"], is = [] } # the doctor's question
      write  = { run = [], begins = [], is = [] }
      remove = { run = [], begins = [], is = [] }
    }
    writer = {
      get    = { run = local.runs, begins = ["probe/"], is = ["cloudckpt.json", "settings.json"] }
      list   = { run = local.runs, begins = ["probe/"], is = [] }
      write  = { run = local.runs, begins = ["probe/"], is = ["cloudckpt.json"] }
      remove = { run = [], begins = [], is = [] } # its role has no such action
    }
    maintainer = {
      get    = { run = local.runs, begins = ["probe/"], is = ["cloudckpt.json", "settings.json"] }
      list   = { run = local.runs, begins = ["probe/"], is = [] }
      write  = { run = local.runs, begins = ["probe/"], is = [] }
      remove = { run = local.runs, begins = ["probe/"], is = [] }
    }
    operator = { # a maintainer of the whole store, who also sets its settings
      get    = { run = [], begins = [""], is = [] }
      list   = { run = [], begins = [""], is = [] }
      write  = { run = [], begins = [""], is = [] }
      remove = { run = [], begins = [""], is = [] }
    }
  }

  # What a call is, and where it names the key.
  calls = {
    get = {
      others = "!(ActionMatches{'${local.blobs}/read'} AND NOT SubOperationMatches{'Blob.List'})"
      key    = "@Resource[${local.blobs}:path]"
    }
    list = {
      others = "!(ActionMatches{'${local.blobs}/read'} AND SubOperationMatches{'Blob.List'})"
      key    = "@Request[${local.blobs}:prefix]"
    }
    write = {
      others = "!(ActionMatches{'${local.blobs}/write'})"
      key    = "@Resource[${local.blobs}:path]"
    }
    remove = {
      others = "!(ActionMatches{'${local.blobs}/delete'}) AND !(ActionMatches{'${local.blobs}/deleteBlobVersion/action'})"
      key    = "@Resource[${local.blobs}:path]"
    }
  }

  given = merge(flatten([
    for level, found in { writer = var.writers, reader = var.readers, maintainer = var.maintainers } : [
      for name, one in found : {
        "${level}/${name}" = {
          role           = level
          principal_id   = one.principal_id
          principal_type = one.principal_type
          run            = one.run_prefix
          reach          = local.reach[level == "maintainer" && one.run_prefix == "" ? "operator" : level]
        }
      }
    ]
  ])...)

  keys = {
    for name, one in local.given : name => {
      for call, how in local.calls : call => concat(
        [for part in one.reach[call].run : "${how.key} StringStartsWith '${local.root}${part}${one.run}'"],
        # An empty beginning is every key; it needs no condition.
        [for part in one.reach[call].begins : "${how.key} StringStartsWith '${local.root}${part}'" if "${local.root}${part}" != ""],
        [for part in one.reach[call].is : "${how.key} StringEquals '${local.root}${part}'"],
      )
    }
  }
}

output "roles" {
  description = "The data actions of each role."
  value       = local.roles
}

output "given" {
  description = "One an assignment: the level, the principal, and the condition, version 2.0 (empty: none)."
  value = {
    for name, one in local.given : name => {
      role           = one.role
      principal_id   = one.principal_id
      principal_type = one.principal_type
      condition = join(" AND ", [
        for call, how in local.calls : "((${how.others}) OR (${join(" OR ", local.keys[name][call])}))"
        if length(local.keys[name][call]) > 0
      ])
    }
  }
}
