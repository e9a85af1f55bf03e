"""docs/security.md says which right each call needs: what requests ask for, and what the modules grant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cloudckpt.doctor.s3 import inspect_bucket
from cloudckpt.runner import drive
from cloudckpt.storage.findings import Samples
from cloudckpt.storage.placing import placing_of
from cloudckpt.storage.s3_boto3 import Boto3Storage
from tests.servers.base import ROOT, Server
from tests.terraform.evaluator import listed
from tests.terraform.lives import Place
from tests.terraform.policies import BUCKET_POLICY, ROLES, Setting

PAGE = (ROOT / "docs" / "security.md").read_text()
KEY = "objects/r/1-a-b"


@dataclass(frozen=True)
class Row:
    """A call, the rights that it needs by store, and the roles that have them."""

    call: str
    s3: set[str]
    google: set[str]
    azure: set[str]
    who: set[str]


def rows() -> Iterator[Row]:
    table = PAGE.partition("<!-- table: rights -->\n")[2].partition("\n\n")[0]
    for line in table.split("\n")[2:]:
        call, *columns, who = (cell.strip() for cell in line.strip("|").split("|"))
        s3, google, azure = (set(re.findall(r"`([^`]+)`", column)) for column in columns)
        yield Row(call, s3, google, azure, set(who.split(", ")))


ROWS = {row.call: row for row in rows()}


class Lab:
    """An engine whose requests are seen, with one key in it."""

    def __init__(self, place: Place, **placing: Any) -> None:
        self.place = place
        self.watch = place.watch("maintainer")
        prefix = place.setting.prefix.rstrip("/")
        self.engine = Boto3Storage(
            place.setting.bucket,
            prefix,
            storage_options=self.watch.options,
            placing=placing_of(placing.get("lock"), None),
        )
        drive(self.engine.put(KEY, b"value"))

    def erased(self, *, held: bool) -> None:
        rows = drive(self.engine.versions(KEY)).rows
        if held:
            self.place.lock(f"{self.place.setting.prefix}{KEY}")
            self.place.hold(f"{self.place.setting.prefix}{KEY}")
        self.watch.made.clear()
        assert len(drive(self.engine.erase(rows))) == held

    def frozen(self) -> None:
        self.place.freeze(f"{self.place.setting.prefix}{KEY}")
        drive(self.engine.rewarm(KEY, days=1, speed="standard"))

    def replaced(self) -> None:
        token = drive(self.engine.create("manifests/r.json", b"1"))
        self.watch.made.clear()
        drive(self.engine.replace("manifests/r.json", b"2", token))


ACTS: dict[str, Callable[[Lab], Any]] = {
    "`read` a key": lambda lab: drive(lab.engine.read(KEY)),
    "`read` a key that is missing": lambda lab: drive(lab.engine.read("manifests/none.json")),
    "`list` keys": lambda lab: drive(lab.engine.list("objects/r/")),
    "`create` a pointer": lambda lab: drive(lab.engine.create("manifests/r.json", b"1")),
    "`replace` a pointer": Lab.replaced,
    "`put` an object": lambda lab: drive(lab.engine.put(f"{KEY}2", b"value")),
    "`put` an object under a lock": lambda lab: drive(lab.engine.put(f"{KEY}2", b"value")),
    "`delete` keys": lambda lab: drive(lab.engine.delete([KEY])),
    "list `versions`": lambda lab: drive(lab.engine.versions("objects/r/")),
    "`erase` a version": lambda lab: lab.erased(held=False),
    "tell why one stays": lambda lab: lab.erased(held=True),
    "`rewarm` a cold object": Lab.frozen,
    "the doctor's look at the bucket": lambda lab: drive(inspect_bucket(lab.engine, Samples())),
}


@pytest.mark.parametrize("call", ROWS)
def test_a_call_asks_for_the_rights_that_the_page_says(call: str, moto_server: Server) -> None:
    lab = Lab(Place(moto_server), lock="governance:1d" if "lock" in call else None)
    lab.watch.made.clear()
    ACTS[call](lab)
    assert lab.watch.denied == []
    assert {asked.action for asked in lab.watch.made} == ROWS[call].s3


def test_the_page_has_every_call() -> None:
    assert ROWS.keys() == ACTS.keys()


def granted(role: str) -> set[str]:
    return {action for statement in Setting().statements(role) for action in listed(statement["Action"])}


@pytest.mark.parametrize("call", ROWS)
def test_the_roles_of_a_call_are_those_whose_policy_has_all_of_it(call: str) -> None:
    row = ROWS[call]
    assert row.who == {role for role in ROLES if row.s3 <= granted(role)}


def test_the_page_has_every_right_of_every_role() -> None:
    assert set().union(*map(granted, ROLES)) == set().union(*(row.s3 for row in ROWS.values()))


def module(cloud: str) -> tuple[str, dict[str, str]]:
    """Return the text of a module, and that of each of its roles."""
    files = [path for path in (ROOT / "terraform" / cloud).rglob("*.tf") if "examples" not in path.parts]
    text = "\n".join(path.read_text() for path in sorted(files))
    [roles] = re.findall(r"^  roles = \{\n(.*?)^  \}", text, re.MULTILINE | re.DOTALL)
    return text, dict(re.findall(r"^    (\w+)\s*= (.*?\])", roles, re.MULTILINE | re.DOTALL))


def check(levels: dict[str, set[str]], column: Callable[[Row], set[str]]) -> None:
    """Check that the page and what a module grants have the same rights, and each role those of its calls."""
    assert levels.keys() == set(ROLES)
    assert set().union(*levels.values()) == set().union(*map(column, ROWS.values()))
    for row in ROWS.values():
        for role in row.who:
            assert column(row) <= levels[role], f"{role}: {row.call}"


def test_the_page_has_the_rights_that_the_module_for_google_grants() -> None:
    """There a level is several roles, each with a condition of its own; those who write may lock."""
    text, roles = module("gcp")
    lock = {"storage.objects.setRetention"}
    assert all(f'["{right}"]' in text for right in lock)
    rights = {name: set(re.findall(r'"([\w.]+)"', found)) for name, found in roles.items()}
    found = re.findall(r"^    (\w+)\s*= \{ to = .*? roles = \[(.*?)\] \}", text, re.MULTILINE)
    levels = {
        level: set().union(*(rights[one] for one in re.findall(r"\w+", named))) for level, named in found
    }
    for level in ("writer", "maintainer"):
        assert "local.lock" in re.search(rf"^    {level}\s*= concat\(.*", text, re.MULTILINE)[0]  # type: ignore[index]
        levels[level] |= lock
    check(levels, lambda row: row.google)


def test_the_page_has_the_rights_that_the_module_for_azure_grants() -> None:
    _, roles = module("azure")
    levels = {level: set(re.findall(r"blobs\}/([\w/]+)", found)) for level, found in roles.items()}
    check(levels, lambda row: row.azure)


def test_the_page_explains_each_statement_of_the_buckets_policy() -> None:
    section = PAGE.partition("## What the bucket refuses")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert named == [statement["Sid"] for statement in Setting().statements(BUCKET_POLICY)]
