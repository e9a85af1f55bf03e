output "store_url" {
  description = "What cloudckpt.open and --store take, beside the account's name (see environment)."
  value       = trimsuffix("az://${azurerm_storage_container.store.name}/${local.path}", "/")
}

output "account_name" {
  description = "The storage account's name."
  value       = azurerm_storage_account.store.name
}

output "account_id" {
  description = "The storage account's resource id, for a private endpoint, a key or a diagnostic setting beside it."
  value       = azurerm_storage_account.store.id
}

output "role_ids" {
  description = "Resource ids of the custom role definitions: reader, writer, maintainer."
  value       = { for level, role in azurerm_role_definition.level : level => role.role_definition_resource_id }
}

output "environment" {
  description = "What an agent and the command line read: put it into the container's environment as it is."
  value = {
    CLOUDCKPT_URL              = trimsuffix("az://${azurerm_storage_container.store.name}/${local.path}", "/")
    AZURE_STORAGE_ACCOUNT_NAME = azurerm_storage_account.store.name
  }
  # Not before the agent's rights are there.
  depends_on = [azurerm_role_assignment.given]
}
