output "task_definition" {
  description = "ARN of the agent's task definition, for run-task or a service."
  value       = aws_ecs_task_definition.task["agent"].arn
}

output "store_url" {
  description = "The store."
  value       = module.store.store_url
}
