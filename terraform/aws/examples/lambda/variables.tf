variable "region" {
  description = "Where the function and its bucket are."
  type        = string
  default     = "eu-central-1"
}

variable "bucket" {
  description = "Name of the bucket to create."
  type        = string
}

variable "image_uri" {
  description = "Image of the agent in ECR, with cloudckpt[s3] in it."
  type        = string
}
