# The three levels. Which keys each reaches is told by `grants/`; README.md says why.

module "grants" {
  source = "./grants"

  bucket      = var.bucket_name
  prefix      = var.prefix
  lock        = var.object_retention
  writers     = local.writers
  readers     = var.readers
  maintainers = var.maintainers
}

locals {
  titles = {
    lister     = "cloudckpt: list keys"
    reader     = "cloudckpt: read runs"
    writer     = "cloudckpt: write runs"
    replacer   = "cloudckpt: replace pointers"
    maintainer = "cloudckpt: collect, delete, forget"
  }
}

resource "google_project_iam_custom_role" "level" {
  for_each = module.grants.roles

  project     = var.project
  role_id     = "${var.role_id_prefix}_${each.key}"
  title       = local.titles[each.key]
  description = "Used on gs://${var.bucket_name} by conditions on names."
  permissions = each.value
}

# ---- identities

resource "google_service_account" "agent" {
  count = var.service_account == null ? 0 : 1

  project      = var.project
  account_id   = var.service_account.account_id
  display_name = "Agents that save in gs://${var.bucket_name}"
}

data "google_project" "clusters" {
  count = length(var.kubernetes_writers) == 0 ? 0 : 1

  project_id = coalesce(var.kubernetes_project, var.project)
}

locals {
  account_writers = {
    for account in google_service_account.agent : "module/service-account" => {
      member     = account.member
      run_prefix = var.service_account.run_prefix
    }
  }
  pod_writers = {
    for name, one in var.kubernetes_writers : "kubernetes/${name}" => {
      member = join("", [
        "principal://iam.googleapis.com/projects/${data.google_project.clusters[0].number}",
        "/locations/global/workloadIdentityPools/${data.google_project.clusters[0].project_id}.svc.id.goog",
        "/subject/ns/${one.namespace}/sa/${one.service_account}",
      ])
      run_prefix = one.run_prefix
    }
  }
  writers = merge(var.writers, local.account_writers, local.pod_writers)
}

# ---- grants

resource "google_storage_bucket_iam_member" "given" {
  for_each = module.grants.given

  bucket = google_storage_bucket.store.name
  role   = google_project_iam_custom_role.level[each.value.role].id
  member = each.value.member

  dynamic "condition" {
    for_each = each.value.expression == "" ? [] : [each.value.expression]

    content {
      title      = "cloudckpt ${each.value.role}"
      expression = condition.value
    }
  }
}
