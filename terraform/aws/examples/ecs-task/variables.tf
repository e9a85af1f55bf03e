variable "region" {
  description = "Where the tasks and their bucket are."
  type        = string
  default     = "eu-central-1"
}

variable "bucket" {
  description = "Name of the bucket to create."
  type        = string
}

variable "image" {
  description = "Image of the agent, with cloudckpt[s3,cli] in it."
  type        = string
}

variable "cluster_arn" {
  description = "ARN of the ECS cluster that the nightly collect runs in."
  type        = string
}

variable "subnets" {
  description = "Ids of the subnets of the nightly collect; they reach S3 and the image's registry."
  type        = list(string)
}
