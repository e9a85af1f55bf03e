"""What a bucket's policy and public access block refuse. Pure.

Owns: which statements count. Only a Deny for everybody does, whose conditions are those
that are known here and no more: another condition could let some requests through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from cloudckpt import keys
from cloudckpt.storage.findings import Finding, ok, warning

Statement: TypeAlias = Mapping[str, Any]

BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")

_SECURE = ("bool", "aws:securetransport", "false")
_CREATES = ("bool", "s3:objectcreationoperation", "true")
"""A request that makes an object: not one that begins an upload in parts, or sends a part of it."""
_UNCONDITIONAL = {("null", "s3:if-match", "true"), ("null", "s3:if-none-match", "true")}
_WHO = "aws:principalarn"


def public_access_finding(block: Mapping[str, Any]) -> Finding:
    """Return whether a policy or an ACL could let everybody in.

    Args:
        block: The bucket's block; empty where there is none.
    """
    lacking = [name for name in BLOCKS if block.get(name) is not True]
    if not lacking:
        return ok("public-access", "blocked", lacking=lacking)
    found = "not blocked: a policy or an ACL of the bucket could let everybody in"
    return warning("public-access", found, f"block it: set {', '.join(lacking)}", lacking=lacking)


def policy_finding(document: Mapping[str, Any], bucket: str, root: str, *, amazon: bool) -> Finding:
    """Return what the policy refuses to everybody.

    Args:
        document: The policy; empty where there is none.
        bucket: The bucket's name.
        root: The store's prefix with its slash, or "".
        amazon: Whether the store is Amazon's. Others know no condition for conditional
            writes, so what is missing there is nobody's fault.
    """
    statements = document.get("Statement", ())
    denials = [one for one in _listed(statements) if _denies_everybody(one)]
    pointer, payload = f"{bucket}/{root}{keys.MANIFESTS}x", f"{bucket}/{root}{keys.OBJECTS}x"
    both = (pointer, payload)
    refused = {
        "requests without TLS": any(
            _covers(one, "s3:PutObject", both)
            and _covers(one, "s3:GetObject", both)
            and _conditions(one) == {_SECURE}
            for one in denials
        ),
        "writes without a condition": any(
            _covers(one, "s3:PutObject", both) and _conditions(one) - {_CREATES} == _UNCONDITIONAL
            for one in denials
        ),
        "deletes of objects, but by those it names": any(
            _covers(one, "s3:DeleteObject", (payload,)) and _is_about_who(one) for one in denials
        ),
    }
    facts = dict(zip(("tls_only", "conditional_only", "deletes_guarded"), refused.values(), strict=True))
    told = [what for what, is_refused in refused.items() if is_refused]
    lacking = [what for what in list(refused)[:2] if not refused[what]]
    if told:
        found = f"it refuses {'; '.join(told)}"
    else:
        found = f"it refuses neither {' nor '.join(lacking)}" if document else "none"
    if amazon and lacking:
        do = f"add a Deny of {' and of '.join(lacking)}: docs/security.md"
        return warning("bucket-policy", found, do, **facts)
    return ok("bucket-policy", found, **facts)


def _listed(value: Any) -> list[Any]:
    """Return what may be written as one value or as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _denies_everybody(statement: Statement) -> bool:
    principal = statement.get("Principal")
    named = principal.get("AWS") if isinstance(principal, Mapping) else principal
    return statement.get("Effect") == "Deny" and "*" in _listed(named)


def _covers(statement: Statement, action: str, names: Iterable[str]) -> bool:
    """Whether it speaks of this action on each of these, bucket and key."""
    actions, resources = _listed(statement.get("Action", [])), _listed(statement.get("Resource", []))
    return any(_is_like(action.lower(), each.lower()) for each in actions) and all(
        any(_is_like(name, each.rpartition(":::")[2]) for each in resources) for name in names
    )


def _is_like(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))  # a bracket is no wildcard there


def _conditions(statement: Statement) -> set[tuple[str, str, str]]:
    """Return operator, key and value of each condition, in small letters: neither has a case."""
    return {
        (operator.lower(), key.lower(), str(value).lower())
        for operator, tested in statement.get("Condition", {}).items()
        for key, values in tested.items()
        for value in _listed(values)
    }


def _is_about_who(statement: Statement) -> bool:
    return {key for _, key, _ in _conditions(statement)} <= {_WHO}
