# An agent as a Container Apps job: each start resumes the run where the last one ended.

terraform {
  required_version = ">= 1.5, < 2.0"

  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.59, < 6.0"
    }
  }
}

provider "azurerm" {
  features {}
  storage_use_azuread = true # the account takes no shared key
}

variable "location" {
  type        = string
  description = "Where all of it is."
  default     = "westeurope"
}

variable "account_name" {
  type        = string
  description = "Name of the storage account, unique in all of Azure."
}

variable "image" {
  type        = string
  description = "The agent's image, with cloudckpt[azure] in it."
}

variable "maintainer_group" {
  type        = string
  description = "Object id of the Entra group that collects and deletes."
}

resource "azurerm_resource_group" "agents" {
  name     = "agents"
  location = var.location
}

resource "azurerm_user_assigned_identity" "agent" {
  name                = "nightly-agent"
  resource_group_name = azurerm_resource_group.agents.name
  location            = azurerm_resource_group.agents.location
}

module "checkpoints" {
  source = "../.."

  resource_group_name = azurerm_resource_group.agents.name
  location            = azurerm_resource_group.agents.location
  account_name        = var.account_name

  writers = {
    nightly = {
      principal_id = azurerm_user_assigned_identity.agent.principal_id
      run_prefix   = "nightly-"
    }
  }
  maintainers = {
    operators = {
      principal_id   = var.maintainer_group
      principal_type = "Group"
    }
  }
}

resource "azurerm_log_analytics_workspace" "agents" {
  name                = "agents"
  resource_group_name = azurerm_resource_group.agents.name
  location            = azurerm_resource_group.agents.location
  sku                 = "PerGB2018"
  retention_in_days   = 30
}

resource "azurerm_container_app_environment" "agents" {
  name                       = "agents"
  resource_group_name        = azurerm_resource_group.agents.name
  location                   = azurerm_resource_group.agents.location
  logs_destination           = "log-analytics"
  log_analytics_workspace_id = azurerm_log_analytics_workspace.agents.id
}

resource "azurerm_container_app_job" "agent" {
  name                         = "nightly-agent"
  resource_group_name          = azurerm_resource_group.agents.name
  location                     = azurerm_resource_group.agents.location
  container_app_environment_id = azurerm_container_app_environment.agents.id

  replica_timeout_in_seconds = 4 * 60 * 60
  replica_retry_limit        = 10 # a crash costs at most the last step

  identity {
    type         = "UserAssigned"
    identity_ids = [azurerm_user_assigned_identity.agent.id]
  }

  schedule_trigger_config {
    cron_expression          = "0 2 * * *"
    parallelism              = 1
    replica_completion_count = 1
  }

  template {
    container {
      name   = "agent"
      image  = var.image
      cpu    = 1
      memory = "2Gi"

      dynamic "env" {
        # AZURE_CLIENT_ID tells Azure's login which of the container's identities it is.
        for_each = merge(module.checkpoints.environment, {
          AZURE_CLIENT_ID = azurerm_user_assigned_identity.agent.client_id
        })

        content {
          name  = env.key
          value = env.value
        }
      }
    }
  }
}

output "store_url" {
  description = "The store, for cloudckpt --store."
  value       = module.checkpoints.store_url
}
