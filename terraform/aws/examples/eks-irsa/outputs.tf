output "service_accounts" {
  description = "What to apply with kubectl, one document a team."
  value = join("---\n", [for team, role in aws_iam_role.agent : yamlencode({
    apiVersion = "v1"
    kind       = "ServiceAccount"
    metadata = {
      name        = "agent"
      namespace   = team
      annotations = { "eks.amazonaws.com/role-arn" = role.arn }
    }
  })])
}

output "environment" {
  description = "Environment of the agents' containers."
  value       = module.store.environment
}
