# The three levels. Which keys each reaches is told by `grants/`; README.md says why.

module "grants" {
  source = "./grants"

  prefix      = var.prefix
  writers     = var.writers
  readers     = var.readers
  maintainers = var.maintainers
}

resource "azurerm_role_definition" "level" {
  for_each = module.grants.roles

  # Names are unique in a tenant.
  name        = "cloudckpt ${each.key} (${var.account_name})"
  scope       = split("/providers/", azurerm_storage_account.store.id)[0]
  description = "For the checkpoints in ${var.account_name}/${var.container_name}."

  permissions {
    data_actions = each.value
  }
}

resource "azurerm_role_assignment" "given" {
  for_each = module.grants.given

  scope              = "${azurerm_storage_account.store.id}/blobServices/default/containers/${azurerm_storage_container.store.name}"
  role_definition_id = azurerm_role_definition.level[each.value.role].role_definition_resource_id
  principal_id       = each.value.principal_id
  principal_type     = each.value.principal_type
  condition          = each.value.condition == "" ? null : each.value.condition
  condition_version  = each.value.condition == "" ? null : "2.0"
}
