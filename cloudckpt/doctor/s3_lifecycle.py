"""What a bucket's lifecycle rules would do to a store. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from cloudckpt import keys
from cloudckpt.storage.findings import Finding, fault, ok, warning

Rule: TypeAlias = Mapping[str, Any]
"""A rule as `GetBucketLifecycleConfiguration` answers it."""

ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects must be restored before they are read."""

POINTERS = (keys.MANIFESTS, keys.STORE_KEY)


def lifecycle_finding(rules: Sequence[Rule], root: str, tags: Iterable[tuple[str, str]]) -> Finding:
    """Return the worst that the rules do to what a store keeps.

    Args:
        rules: The bucket's.
        root: The store's prefix with its slash, or "".
        tags: Those that each write carries.
    """
    mine = [rule for rule in rules if _applies(rule, tags)]
    expiring = _named(mine, root, (*POINTERS, keys.OBJECTS), _expires)
    if expiring:
        found = f"{_shown(expiring)} deletes current objects of this store"
        return fault(
            "lifecycle", found, "delete the rule, or give it a prefix outside the store", rules=expiring
        )
    archived = _named(mine, root, POINTERS, _archives)
    if archived:
        found = f"{_shown(archived)} moves pointers into an archive, where they can't be read"
        do = f"restrict the rule to {root}{keys.OBJECTS}"
        return fault("lifecycle", found, do, rules=archived)
    cold = _named(mine, root, (keys.OBJECTS,), _archives)
    if cold:
        found = f"{_shown(cold)} moves objects into an archive"
        do = "nothing, if runs that rest so long may need a restore before they are loaded"
        return warning("lifecycle", found, do, rules=cold)
    found = f"{len(rules)} rules, none of which takes away what this store keeps" if rules else "no rules"
    aborts = any(_aborts(rule) and (root + keys.OBJECTS).startswith(_prefix(rule)) for rule in mine)
    found = f"{found}; incomplete uploads are aborted" if aborts else found
    return ok("lifecycle", found, aborts_uploads=aborts)


def ends_old_pointers(rules: Sequence[Rule], root: str) -> bool:
    """Whether versions of pointers that were overwritten are deleted some day."""
    area = root + keys.MANIFESTS
    return any(
        "NoncurrentVersionExpiration" in rule and area.startswith(_prefix(rule))
        for rule in rules
        if _applies(rule, ())
    )


def _named(rules: Sequence[Rule], root: str, areas: Sequence[str], does: Any) -> list[str]:
    """Return the names of the rules that do something to keys in an area."""
    return [
        rule.get("ID") or f"prefix {_prefix(rule)!r}"
        for rule in rules
        if does(rule) and any(_meets(_prefix(rule), root + area) for area in areas)
    ]


def _shown(names: Sequence[str]) -> str:
    return f"rule {', '.join(map(repr, names))}"


def _meets(prefix: str, area: str) -> bool:
    return prefix.startswith(area) or area.startswith(prefix)


def _applies(rule: Rule, tags: Iterable[tuple[str, str]]) -> bool:
    """Whether it is in force, for objects of some size, and these tags are enough for it."""
    wanted = {(tag["Key"], tag["Value"]) for tag in _tags(rule)}
    return rule.get("Status") == "Enabled" and wanted <= set(tags)


def _filter(rule: Rule) -> Mapping[str, Any]:
    found: Mapping[str, Any] = rule.get("Filter") or {}
    return found.get("And") or found


def _prefix(rule: Rule) -> str:
    return str(_filter(rule).get("Prefix") or rule.get("Prefix") or "")


def _tags(rule: Rule) -> Sequence[Mapping[str, str]]:
    found = _filter(rule)
    tags: Sequence[Mapping[str, str]] = found.get("Tags") or ([found["Tag"]] if "Tag" in found else [])
    return tags


def _expires(rule: Rule) -> bool:
    expiration = rule.get("Expiration") or {}
    return "Days" in expiration or "Date" in expiration


def _archives(rule: Rule) -> bool:
    return any(to.get("StorageClass") in ARCHIVES for to in rule.get("Transitions") or ())


def _aborts(rule: Rule) -> bool:
    return "DaysAfterInitiation" in (rule.get("AbortIncompleteMultipartUpload") or {})
