# The account and its container: pointers move by conditional writes, nothing here ever deletes a live checkpoint.

locals {
  path = var.prefix == "" ? "" : "${var.prefix}/"
  root = "${var.container_name}/${local.path}" # lifecycle rules name the container too
}

resource "azurerm_storage_account" "store" {
  #checkov:skip=CKV2_AZURE_1:Microsoft's keys encrypt it; a key of one's own is added by azurerm_storage_account_customer_managed_key
  #checkov:skip=CKV2_AZURE_33:a private endpoint needs the network of the agents; it is added beside the module
  #checkov:skip=CKV_AZURE_59:agents outside a virtual network need the public endpoint; `network` closes it, and the login decides
  #checkov:skip=CKV_AZURE_206:the number of copies is a choice (replication); ZRS by default
  #checkov:skip=CKV_AZURE_33:the queue service is not used

  name                = var.account_name
  resource_group_name = var.resource_group_name
  location            = var.location
  tags                = var.tags

  account_kind             = "StorageV2"
  account_tier             = "Standard"
  account_replication_type = var.replication
  access_tier              = "Hot" # pointers are replaced all the time

  min_tls_version                  = "TLS1_2"
  https_traffic_only_enabled       = true
  shared_access_key_enabled        = false # a key could do everything, unseen by any role
  default_to_oauth_authentication  = true
  allow_nested_items_to_be_public  = false
  cross_tenant_replication_enabled = false
  local_user_enabled               = false

  blob_properties {
    versioning_enabled = var.versioning

    delete_retention_policy {
      days = var.soft_delete_days
    }

    container_delete_retention_policy {
      days = var.soft_delete_days
    }
  }

  # Disabled: blobs can be locked one by one. A policy for all would lock each version of each pointer.
  dynamic "immutability_policy" {
    for_each = var.object_lock ? [1] : []

    content {
      state                         = "Disabled"
      period_since_creation_in_days = 1
      allow_protected_append_writes = false
    }
  }

  dynamic "network_rules" {
    for_each = var.network == null ? [] : [var.network]

    content {
      default_action             = "Deny"
      bypass                     = ["AzureServices"]
      ip_rules                   = network_rules.value.ip_rules
      virtual_network_subnet_ids = network_rules.value.subnet_ids
    }
  }

  lifecycle {
    precondition {
      condition     = var.versioning || !var.object_lock
      error_message = "object_lock needs versioning."
    }
  }
}

resource "azurerm_storage_container" "store" {
  #checkov:skip=CKV2_AZURE_21:read logs are written by a diagnostic setting, to a place that the account's owner chooses

  name                  = var.container_name
  storage_account_id    = azurerm_storage_account.store.id
  container_access_type = "private"
}

resource "azurerm_storage_management_policy" "store" {
  storage_account_id = azurerm_storage_account.store.id

  dynamic "rule" {
    for_each = var.versioning ? [var.version_days] : []

    content {
      name    = "older-versions"
      enabled = true

      filters {
        blob_types   = ["blockBlob"]
        prefix_match = ["${local.root}manifests/", "${local.root}objects/"]
      }

      actions {
        version {
          delete_after_days_since_creation = rule.value
        }
      }
    }
  }

  # What probes and the doctor leave, who may not delete; nothing reads it again.
  rule {
    name    = "probes"
    enabled = true

    filters {
      blob_types   = ["blockBlob"]
      prefix_match = ["${local.root}probe/"]
    }

    actions {
      base_blob {
        delete_after_days_since_modification_greater_than = 1
      }
      version {
        delete_after_days_since_creation = 1
      }
    }
  }

  dynamic "rule" {
    for_each = var.cool_objects_days == null ? [] : [var.cool_objects_days]

    content {
      name    = "cool-objects"
      enabled = true

      filters {
        blob_types   = ["blockBlob"]
        prefix_match = ["${local.root}objects/"]
      }

      actions {
        base_blob {
          tier_to_cool_after_days_since_modification_greater_than = rule.value
        }
      }
    }
  }
}
