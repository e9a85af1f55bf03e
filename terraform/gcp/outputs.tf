output "store_url" {
  description = "What cloudckpt.open and --store take."
  value       = trimsuffix("gs://${google_storage_bucket.store.name}/${local.path}", "/")
}

output "bucket_name" {
  description = "The bucket's name."
  value       = google_storage_bucket.store.name
}

output "role_ids" {
  description = "Full ids of the custom roles: lister, reader, writer, replacer, maintainer."
  value       = { for level, role in google_project_iam_custom_role.level : level => role.id }
}

output "service_account_email" {
  description = "E-mail of the service account that was made, or null."
  value       = one(google_service_account.agent[*].email)
}

output "environment" {
  description = "What an agent and the command line read: put it into the container's environment as it is."
  value = {
    CLOUDCKPT_URL        = trimsuffix("gs://${google_storage_bucket.store.name}/${local.path}", "/")
    GOOGLE_CLOUD_PROJECT = var.project
  }
  # Not before the agent's rights are there.
  depends_on = [google_storage_bucket_iam_member.given]
}
