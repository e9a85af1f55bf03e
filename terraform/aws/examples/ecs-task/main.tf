# An agent as a Fargate task that may not delete, and a nightly `cloudckpt collect` that may.

locals {
  environment = [for name, value in module.store.environment : { name = name, value = value }]
  tasks = {
    agent      = ["python", "-m", "agent"]
    maintainer = ["cloudckpt", "collect", "--yes"]
  }
  logs = {
    for name in keys(local.tasks) : name => {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.tasks.name
        awslogs-region        = var.region
        awslogs-stream-prefix = name
      }
    }
  }
}

module "store" {
  source = "../.."

  bucket          = var.bucket
  prefix          = "agents"
  create_kms_key  = true
  maintainer_arns = [aws_iam_role.task["maintainer"].arn]
}

# ---- roles

data "aws_iam_policy_document" "tasks" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "task" {
  for_each           = local.tasks
  name               = "${var.bucket}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

resource "aws_iam_role_policy_attachment" "agent" {
  role       = aws_iam_role.task["agent"].name
  policy_arn = module.store.policy_arns["writer"]
}

resource "aws_iam_role_policy_attachment" "maintainer" {
  role       = aws_iam_role.task["maintainer"].name
  policy_arn = module.store.policy_arns["maintainer"]
}

resource "aws_iam_role" "execution" {
  name               = "${var.bucket}-execution"
  assume_role_policy = data.aws_iam_policy_document.tasks.json
}

resource "aws_iam_role_policy_attachment" "execution" {
  role       = aws_iam_role.execution.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"
}

# ---- tasks

resource "aws_cloudwatch_log_group" "tasks" {
  #checkov:skip=CKV_AWS_158:CloudWatch encrypts it; a key of one's own is a choice
  #checkov:skip=CKV_AWS_338:what an agent prints is not needed for a year; its runs are in the store
  name              = "/cloudckpt/${var.bucket}"
  retention_in_days = 30
}

resource "aws_ecs_task_definition" "task" {
  for_each                 = local.tasks
  family                   = "${var.bucket}-${each.key}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 512
  memory                   = 1024
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task[each.key].arn

  container_definitions = jsonencode([{
    name             = each.key
    image            = var.image
    command          = each.value
    environment      = local.environment
    essential        = true
    logConfiguration = local.logs[each.key]
    # The agent stops at SIGTERM with its state saved; on Spot it has two minutes.
    stopTimeout = 120
  }])
}

# ---- every night

data "aws_iam_policy_document" "schedule" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["scheduler.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "start" {
  statement {
    actions   = ["ecs:RunTask"]
    resources = [aws_ecs_task_definition.task["maintainer"].arn]
  }

  statement {
    actions   = ["iam:PassRole"]
    resources = [aws_iam_role.execution.arn, aws_iam_role.task["maintainer"].arn]
  }
}

resource "aws_iam_role" "schedule" {
  name               = "${var.bucket}-schedule"
  assume_role_policy = data.aws_iam_policy_document.schedule.json
}

resource "aws_iam_role_policy" "schedule" {
  name   = "start"
  role   = aws_iam_role.schedule.id
  policy = data.aws_iam_policy_document.start.json
}

resource "aws_scheduler_schedule" "collect" {
  #checkov:skip=CKV_AWS_297:the schedule holds names and no secret, and AWS encrypts it
  name                = "${var.bucket}-collect"
  schedule_expression = "cron(0 3 * * ? *)"

  flexible_time_window {
    mode                      = "FLEXIBLE"
    maximum_window_in_minutes = 60
  }

  target {
    arn      = var.cluster_arn
    role_arn = aws_iam_role.schedule.arn

    ecs_parameters {
      task_definition_arn = aws_ecs_task_definition.task["maintainer"].arn
      launch_type         = "FARGATE"

      network_configuration {
        subnets = var.subnets
      }
    }
  }
}
