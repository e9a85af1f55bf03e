"""Whether policies of AWS allow a call: the operators that our policies use, and no other.

Owns: the logic of a decision. An explicit Deny wins; else an Allow of the role's policy or of the
bucket's is needed; else it is denied. Keys of a condition must all hold, and of a key's values
one (of a negated operator none). Invariant: a word of the policy language that is not known here
raises, so a policy is never judged by less than it says.

It knows principals only as ``*``, and conditions of a bucket's and a role's policy: no session
policies, no boundaries, no organization's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Statement = Mapping[str, Any]

_WORDS = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}


@dataclass(frozen=True)
class Call:
    """One thing that a request asks for.

    Attributes:
        action: Such as ``s3:GetObject``.
        resource: An ARN.
        context: Condition keys that the request carries.
    """

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)

    def by(self, principal: str) -> Call:
        """Return the call as somebody makes it over TLS, unless it says otherwise."""
        return replace(
            self, context={"aws:SecureTransport": "true", "aws:PrincipalArn": principal, **self.context}
        )


def statements(policy: str | Mapping[str, Any]) -> list[Statement]:
    """Return the statements of a policy's document."""
    document = json.loads(policy) if isinstance(policy, str) else policy
    if document.keys() != {"Version", "Statement"} or document["Version"] != "2012-10-17":
        raise ValueError(f"a policy has a Version of 2012-10-17 and a Statement, not {sorted(document)}")
    found: list[Statement] = document["Statement"]
    for statement in found:
        _check(statement)
    return found


def _check(statement: Statement) -> None:
    unknown = statement.keys() - _WORDS
    if unknown or statement["Effect"] not in ("Allow", "Deny") or statement.get("Principal", "*") != "*":
        raise ValueError(f"this evaluator does not know such a statement: {dict(statement)}")
    for operator in statement.get("Condition", {}):
        if operator not in _OPERATORS:
            raise ValueError(f"this evaluator does not know the operator {operator}")


def is_allowed(call: Call, role: Sequence[Statement], bucket: Sequence[Statement] = ()) -> bool:
    """Whether a role may make a call on a bucket of its own account.

    Args:
        call: With the principal's ARN in its context, see `Call.by`.
        role: Statements of the policy that the role has.
        bucket: Those of the bucket's policy.
    """
    matching = [one["Effect"] for one in (*role, *bucket) if matches(one, call)]
    return "Deny" not in matching and "Allow" in matching


def matches(statement: Statement, call: Call) -> bool:
    """Whether a statement speaks of this call."""
    return (
        # The names of actions have no case; those of resources have.
        any(is_like(call.action.lower(), action.lower()) for action in listed(statement["Action"]))
        and any(is_like(call.resource, resource) for resource in listed(statement["Resource"]))
        and all(
            _OPERATORS[operator](call.context.get(key), listed(values))
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def listed(value: Any) -> list[str]:
    """Return what may be written as one value or as a list."""
    return [value] if isinstance(value, str) else list(value)


def is_like(text: str, pattern: str) -> bool:
    """Whether a pattern with ``*`` (any characters, a slash too) and ``?`` (one) is met by the whole text."""
    parts = {"*": ".*", "?": "."}
    expression = "".join(parts.get(letter) or re.escape(letter) for letter in pattern)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _string_like(value: str | None, wanted: list[str]) -> bool:
    return value is not None and any(is_like(value, one) for one in wanted)


def _bool(value: str | None, wanted: list[str]) -> bool:
    return value is not None and value.lower() in [one.lower() for one in wanted]


def _null(value: str | None, wanted: list[str]) -> bool:
    return str(value is None).lower() in [one.lower() for one in wanted]


def _arn_not_like(value: str | None, wanted: list[str]) -> bool:
    return value is None or not any(_is_arn_like(value, one) for one in wanted)


def _is_arn_like(arn: str, pattern: str) -> bool:
    """Whether each of the six parts is met: a wildcard does not go over a colon of the first five."""
    parts, patterns = arn.split(":", 5), pattern.split(":", 5)
    return len(parts) == len(patterns) == 6 and all(map(is_like, parts, patterns))


_OPERATORS = {"StringLike": _string_like, "Bool": _bool, "Null": _null, "ArnNotLike": _arn_not_like}
