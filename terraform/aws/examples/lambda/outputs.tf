output "function" {
  description = "Name of the function."
  value       = aws_lambda_function.agent.function_name
}

output "store_url" {
  description = "The store."
  value       = module.store.store_url
}
