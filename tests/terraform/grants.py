"""Who may do what by the Google and Azure modules: their `grants/`, worked out by Terraform and judged here.

Owns: the parts of both condition languages that the modules use (anything else raises), the
permissions that each call of an engine needs, and a store in memory that is held to them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cloudckpt.errors import PermissionDeniedError
from cloudckpt.storage.contract import Data, Page, Stored, Token
from cloudckpt.storage.memory import MemoryStorage
from tests.servers.base import ROOT as PROJECT
from tests.terraform.tools import without_providers

ROOT = PROJECT / "terraform"
BUCKET = "checkpoints"
LEVELS = ("writer", "reader", "maintainer")

BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
NEEDS = {
    "gcp": {
        "get": ["storage.objects.get"],
        "list": ["storage.objects.list"],
        "create": ["storage.objects.create"],
        "put": ["storage.objects.create"],
        "replace": ["storage.objects.create", "storage.objects.delete"],
        "delete": ["storage.objects.delete"],
    },
    "azure": {
        "get": [f"{BLOBS}/read"],
        "list": [f"{BLOBS}/read"],
        "create": [f"{BLOBS}/write"],
        "put": [f"{BLOBS}/write"],
        "replace": [f"{BLOBS}/write"],
        "delete": [f"{BLOBS}/delete"],
    },
}
"""What each call of the contract takes; `test_requests.py` holds the engines to it."""

CALLS = tuple(NEEDS["gcp"])


@dataclass(frozen=True)
class Grants:
    """What a module's `grants/` makes of one writer, one reader and one maintainer.

    Attributes:
        cloud: `gcp` or `azure`.
        root: The store's path, with a slash; or "".
        roles: Permissions by role.
        given: The grants, by name.
    """

    cloud: str
    root: str
    roles: Mapping[str, Sequence[str]]
    given: Mapping[str, Mapping[str, str]]

    def may(self, level: str, call: str, key: str) -> bool:
        """Whether somebody may make a call on a key (of a listing: on the prefix)."""
        return all(self._granted(level, call, needed, key) for needed in NEEDS[self.cloud][call])

    def _granted(self, level: str, call: str, permission: str, key: str) -> bool:
        mine = [one for name, one in self.given.items() if name.startswith(f"{level}/")]
        mine = [one for one in mine if permission in self.roles[one["role"]]]
        if self.cloud == "azure":
            return any(holds(one["condition"], permission, self.root + key, call=call) for one in mine)
        objects = f"projects/_/buckets/{BUCKET}"
        resource = objects if call == "list" else f"{objects}/objects/{self.root}{key}"
        return any(begins(one["expression"], resource) for one in mine)


@cache
def grants(cloud: str, prefix: str = "", run: str = "") -> Grants:
    """Return what a module grants on a store to people who are held to runs that begin so."""
    who = {"gcp": {"member": "user:x"}, "azure": {"principal_id": "x", "principal_type": "User"}}[cloud]
    variables: dict[str, Any] = {f"{level}s": {"one": {**who, "run_prefix": run}} for level in LEVELS}
    variables |= {"gcp": {"bucket": BUCKET, "lock": False}, "azure": {}}[cloud]
    with TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copy(ROOT / cloud / "grants" / "main.tf", work)
        (work / "given.auto.tfvars.json").write_text(json.dumps({**variables, "prefix": prefix}))
        told = terraform(work, "init") or terraform(work, "apply", "-auto-approve")
        assert told == "", told
        found = json.loads((work / "terraform.tfstate").read_text())["outputs"]
    return Grants(cloud, f"{prefix}/" if prefix else "", found["roles"]["value"], found["given"]["value"])


def terraform(folder: Path, *command: str) -> str:
    """Run Terraform on a module that needs no provider; return its complaint, or ""."""
    done = without_providers(folder, *command, "-input=false", "-no-color")
    return "" if done.returncode == 0 else done.stdout + done.stderr


# ---- the condition languages

_GOOGLE = re.compile(r'resource\.name(?:\.startsWith\("([^"]*)"\)| == "([^"]*)")')


def begins(expression: str, resource: str) -> bool:
    """Evaluate a condition of Google's on a resource's name; an empty one holds."""
    if not expression:
        return True
    clauses = [_GOOGLE.fullmatch(clause) for clause in expression.split(" || ")]
    if None in clauses:
        raise ValueError(f"an expression that is not known here: {expression}")
    return any(
        resource.startswith(one[1]) if one[1] is not None else resource == one[2] for one in clauses if one
    )


_AZURE = re.compile(
    r"\s*(?:(?P<word>[()!]|AND|OR|NOT)"
    r"|(?P<what>ActionMatches|SubOperationMatches)\{'(?P<which>[^']*)'\}"
    rf"|@(?P<from>Resource|Request)\[{BLOBS}:(?P<key>path|prefix)\]"
    r" (?P<how>StringStartsWith|StringEquals) '(?P<text>[^']*)')"
)


def holds(condition: str, action: str, key: str, *, call: str) -> bool:
    """Evaluate a condition of Azure's, version 2.0, on a call; an empty one holds."""
    if not condition:
        return True
    source, at = [], 0
    while at < len(condition):
        found = _AZURE.match(condition, at)
        if found is None:
            raise ValueError(f"a condition that is not known here, from: {condition[at:]}")
        at = found.end()
        source.append(_word(found, action, key, listing=call == "list"))
    return bool(eval(" ".join(source), {"__builtins__": {}}))  # of the words below, and no others


def _word(found: re.Match[str], action: str, key: str, *, listing: bool) -> str:
    if found["word"]:
        return {"!": "not", "AND": "and", "OR": "or", "NOT": "not"}.get(found["word"], found["word"])
    if found["what"] == "ActionMatches":
        return str(found["which"] == action)
    if found["what"] == "SubOperationMatches":
        return str(listing and found["which"] == "Blob.List")
    if (found["from"], found["key"]) != (("Request", "prefix") if listing else ("Resource", "path")):
        return "False"  # the call has no such attribute
    return str(key.startswith(found["text"]) if found["how"] == "StringStartsWith" else key == found["text"])


# ---- a store that is held to it


class Held(MemoryStorage):
    """A store in memory that refuses what somebody may not do.

    Args:
        name: The store's.
        may: Whether a call on a key is allowed.
        denied: Gets the calls that were not.
    """

    def __init__(self, name: str, may: Callable[[str, str], bool], denied: list[tuple[str, str]]) -> None:
        super().__init__(name)
        self._may = may
        self._denied = denied

    def _check(self, call: str, keys: Iterable[str]) -> None:
        refused = [(call, key) for key in keys if not self._may(call, key)]
        self._denied += refused
        if refused:
            raise PermissionDeniedError("the role does not allow it", call=call, key=refused[0][1])

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        self._check("get", [key])
        return await super().read(key, offset=offset, length=length)

    async def create(self, key: str, data: Data) -> Token:
        self._check("create", [key])
        return await super().create(key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        self._check("replace", [key])
        return await super().replace(key, data, token)

    async def put(self, key: str, data: Data) -> None:
        self._check("put", [key])
        await super().put(key, data)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        self._check("list", [prefix])
        return await super().list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        self._check("delete", keys)
        await super().delete(keys)
