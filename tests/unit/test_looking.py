"""What can be seen of a run: summary, payloads, what differs; and rules and deletions that are only tried."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest

from cloudckpt.codec import decode
from cloudckpt.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    HeldError,
    RunDeletedError,
    RunNotFoundError,
)
from cloudckpt.keys import manifest_key
from cloudckpt.retention import Retention
from tests.unit.cli_lab import Lab, agent, counted, new_lab


@pytest.fixture
def lab() -> Lab:
    return new_lab()


def test_a_summary_costs_one_request_at_any_length(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    agent(lab, "long", 300, retention=Retention(keep_last=1000))
    with counted(monkeypatch) as calls:
        told = lab.store.run("long").summary()
    assert calls == [("read", manifest_key("long"))]
    history = lab.store.run("long").history()
    assert told.newest == history[0]
    assert (told.seq, told.checkpoints, told.oldest) == (300, 300, 1)
    assert told.stored == sum(info.size for info in history)
    assert (told.status, told.epoch, told.set_by, told.held) == ("running", 1, "code", 0)
    assert told.retention == Retention(keep_last=1000)


def test_a_summary_tells_of_holds_and_of_deletion(lab: Lab) -> None:
    agent(lab, "r", 3)
    run = lab.store.run("r")
    run.hold("audit", by="ann", seq=2)
    run.hold("case 7", by="bob", whole=True)
    told = run.summary()
    assert (told.held, told.hold and told.hold.why) == (1, "case 7")
    run.release(whole=True)
    run.release(seq=2)
    lab.store.delete("r", why="done", by="ann")
    told = run.summary()
    assert (told.status, told.newest, told.checkpoints, told.oldest) == ("deleted", None, 0, None)
    assert told.tombstone is not None
    assert told.tombstone.why == "done"


def test_a_payload_is_what_is_stored(lab: Lab) -> None:
    agent(lab, "r", 3)
    found = lab.store.run("r").payload(step=2)
    assert (found.info.seq, len(found.data), found.damage) == (2, found.info.size, ())
    assert hashlib.sha256(found.data).hexdigest() == found.info.digest
    assert decode(found.data).step == 2


def test_a_payload_of_nothing_says_what_is_missing(lab: Lab) -> None:
    with pytest.raises(RunNotFoundError):
        lab.store.run("none").payload()
    with lab.store.run("empty"):
        pass
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint yet"):
        lab.store.run("empty").payload()
    agent(lab, "gone", 1)
    lab.store.delete("gone")
    with pytest.raises(RunDeletedError):
        lab.store.run("gone").payload()


def test_a_diff_of_a_run_is_by_seq_or_tag_and_against_the_newest(lab: Lab) -> None:
    agent(lab, "r", 4, tags={2: ("best",)})
    run = lab.store.run("r")
    by_seq, by_tag = run.diff(2, 3), run.diff("best", 3)
    assert by_seq == by_tag
    assert [(change.path, change.kind) for change in by_seq] == [
        ("state.step", "changed"),
        ("state.messages[2]", "added"),
        ("state.seen[*]", "added"),
    ]
    assert run.diff(2) == run.diff(2, 4) != by_seq
    assert run.diff(3, 3) == []
    with pytest.raises(CheckpointNotFoundError):
        run.diff(1, 9)
    with pytest.raises(RunNotFoundError):
        lab.store.run("none").diff(1)


async def _twins(run: Any) -> tuple[Any, Any, Any]:
    return await run.asummary(), await run.apayload(seq=1), await run.adiff(1, 2)


def test_each_has_a_twin_that_is_awaited(lab: Lab) -> None:
    import asyncio

    agent(lab, "r", 2)
    run = lab.store.run("r")
    assert asyncio.run(_twins(run)) == (run.summary(), run.payload(seq=1), run.diff(1, 2))


def test_damage_is_told_by_a_summary(lab: Lab) -> None:
    agent(lab, "r", 1)
    access = lab.store.run("r").access
    lab.store._core.call(_overwrite(access.storage, manifest_key("r")))
    with pytest.raises(CorruptCheckpointError):
        lab.store.run("r").summary()


async def _overwrite(storage: Any, key: str) -> None:
    found = await storage.read(key)
    await storage.replace(key, b"junk", found.token)


def test_the_stores_rules_are_not_for_runs_with_rules_of_their_own(lab: Lab) -> None:
    """Else an operator's exception for one run would be undone by the next change of the default."""
    lab.store.set_retention(Retention(keep_last=9))
    agent(lab, "plain", 5)
    agent(lab, "coded", 5, keep_last=4)
    agent(lab, "kept", 5)
    lab.store.run("kept").retain(Retention(keep_last=3))
    new = Retention(keep_last=2)
    for dry_run in (True, False):
        dropped = {
            run: lab.store.run(run).retain(new, default=True, dry_run=dry_run).dropped
            for run in ("plain", "coded", "kept")
        }
        assert dropped == {"plain": (3, 2, 1), "coded": (), "kept": ()}
    set_by = {run: lab.store.run(run).summary().set_by for run in ("plain", "coded", "kept")}
    assert set_by == {"plain": "store", "coded": "code", "kept": "operator"}
    assert lab.store.run("plain").summary().retention == new
    assert [info.seq for info in lab.store.run("kept").history()] == [5, 4, 3]


def test_a_deletion_that_is_only_tried_changes_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with lab.store.run("r") as run:
        for _ in range(3):
            run.save(random.Random(1).randbytes(50_000))
    with counted(monkeypatch) as calls:
        plan = lab.store.delete("r", dry_run=True)
    assert {name for name, _ in calls} == {"read", "list"}
    assert lab.store.run("r").summary().status == "running"
    done = lab.store.delete("r")
    assert plan == done
    assert done.objects > 0
    agent(lab, "held", 1)
    lab.store.run("held").hold("case", whole=True)
    with pytest.raises(HeldError):
        lab.store.delete("held", dry_run=True)
