# An agent as a Lambda function: each call goes on where the last one ended, within
# the function's 15 minutes.

module "store" {
  source = "../.."

  bucket = var.bucket
  prefix = "agents"
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "agent" {
  name               = "${var.bucket}-agent"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy_attachment" "store" {
  role       = aws_iam_role.agent.name
  policy_arn = module.store.policy_arns["writer"]
}

resource "aws_iam_role_policy_attachment" "logs" {
  role       = aws_iam_role.agent.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}

resource "aws_lambda_function" "agent" {
  #checkov:skip=CKV_AWS_116:what a failed call leaves is in the store, and the next call goes on from it
  #checkov:skip=CKV_AWS_117:a network of its own is the account's choice; S3 is reached by TLS without one
  #checkov:skip=CKV_AWS_115:two calls of one run at once are told apart by the store, so no limit is needed
  #checkov:skip=CKV_AWS_272:signing is for code in a zip archive, and this is an image
  #checkov:skip=CKV_AWS_173:the variables name the store and hold no secret
  #checkov:skip=CKV_AWS_50:tracing is a choice of the function's owner, and costs by the call
  function_name = "${var.bucket}-agent"
  role          = aws_iam_role.agent.arn
  package_type  = "Image"
  image_uri     = var.image_uri
  memory_size   = 1024
  timeout       = 900

  environment {
    variables = module.store.environment
  }
}
