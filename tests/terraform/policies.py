"""The policy documents of `terraform/aws/policies`, as Terraform renders them.

Owns: the small part of Terraform's template language that they use: ``${name}``, and
``%{ if name != "text" }`` (or ``==``) to ``%{ endif }``. Anything else in a template raises. That Terraform
itself makes the same of them is a test's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.base import ROOT
from tests.terraform.evaluator import Statement, statements

FOLDER = ROOT / "terraform" / "aws" / "policies"
BUCKET_POLICY = "bucket"
ROLES = ("writer", "reader", "maintainer")

ACCOUNT = "123456789012"
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/checkpoints"

_IF = re.compile(r'%\{ if (\w+) ([!=]=) "([^"]*)" \}(.*?)%\{ endif \}', re.DOTALL)
_NAME = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Setting:
    """What the module is given.

    Attributes:
        bucket: The bucket's name.
        prefix: Of the store in it, with a slash; or "".
        run: The runs that the roles are for.
        kms: ARN of the bucket's key, or "".
        maintainers: ARNs of the principals who may delete.
    """

    bucket: str = "checkpoints"
    prefix: str = "agents/"
    run: str = "*"
    kms: str = ""
    maintainers: Sequence[str] = (f"arn:aws:iam::{ACCOUNT}:role/maintainer",)

    @property
    def bucket_arn(self) -> str:
        return f"arn:aws:s3:::{self.bucket}"

    @property
    def variables(self) -> dict[str, str]:
        """What a template is rendered with."""
        return {
            "bucket_arn": self.bucket_arn,
            "prefix": self.prefix,
            "run": self.run,
            "kms_key_arn": self.kms,
            "maintainer_arns": json.dumps(list(self.maintainers)),
        }

    def document(self, name: str) -> dict[str, Any]:
        """Return a policy's document: the bucket's, or a role's."""
        document: dict[str, Any] = json.loads(render(path(name).read_text(), self.variables))
        return document

    def statements(self, name: str) -> list[Statement]:
        """Return the statements of it."""
        return statements(self.document(name))


def path(name: str) -> Path:
    """Return where a policy's template is."""
    return FOLDER / f"{name}.json.tftpl"


def render(text: str, variables: Mapping[str, str]) -> str:
    """Return a template with its variables put in.

    Raises:
        KeyError: It names a variable that there is none of.
        ValueError: It uses more of the language than is known here.
    """

    def chosen(found: re.Match[str]) -> str:
        return found[4] if (variables[found[1]] == found[3]) is (found[2] == "==") else ""

    text = _IF.sub(chosen, text)
    if "%{" in text:
        raise ValueError("a template has a directive that is not known here")
    text = _NAME.sub(lambda found: variables[found[1]], text)
    if "${" in text:
        raise ValueError("a template has an expression that is not known here")
    return text


def role_arn(name: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"
