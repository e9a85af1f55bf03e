variable "region" {
  description = "Where the cluster and the bucket are."
  type        = string
  default     = "eu-central-1"
}

variable "bucket" {
  description = "Name of the bucket to create."
  type        = string
}

variable "oidc_provider_arn" {
  description = "ARN of the cluster's OIDC provider in IAM, such as arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/ABC."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:oidc-provider/.+$", var.oidc_provider_arn))
    error_message = "Name the OIDC provider by its ARN."
  }
}

variable "teams" {
  description = "Namespaces of the agents. Each has a service account named agent, whose runs begin with the namespace's name and a hyphen; it reaches no other runs."
  type        = set(string)
  default     = ["team-a", "team-b"]
}
