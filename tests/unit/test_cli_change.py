"""Commands that change something: marks, rollback, fork, retain, delete, collect."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.cli import shapes
from cloudckpt.retention import Retention
from cloudckpt.storage.placed import Placer
from tests.unit.cli_lab import Lab, agent, counted, new_lab

WRITES = {"create", "replace", "put", "delete"}


@pytest.fixture
def lab() -> Lab:
    lab = new_lab()
    agent(lab, "r", 5, tags={3: ("best",)})
    return lab


def seqs(lab: Lab, run: str = "r") -> list[int]:
    return [info.seq for info in lab.store.run(run).history()]


# ---- marks


def test_a_tag_is_given_and_taken_away(lab: Lab) -> None:
    told = lab("tag", "r@-1", "good")
    assert (told.code, told.out) == (0, "seq=4 of run 'r' has the tag 'good'\n")
    assert lab("tag", "r", "good", "--json").json == shapes.checkpoint(lab.store.run("r").find())
    assert [info.seq for info in lab.store.run("r").history(tag="good")] == [5, 4]
    assert lab("tag", "r", "good", "--remove").code == 0
    assert [info.seq for info in lab.store.run("r").history(tag="good")] == [4]
    assert lab("tag", "r@4", "good", "--remove", "--json").json["tags"] == []
    assert lab("tag", "r", "x" * 200).code == 2
    assert lab("tag", "r@99", "x").code == 3
    assert lab("tag", "r", "nothing", "--remove").code == 3


def test_notes_are_json_or_text(lab: Lab) -> None:
    told = lab("annotate", "r@best", "by=ann", "n=3", "ok=true", "text=a=b", "--json")
    assert told.json["notes"] == {"by": "ann", "n": 3, "ok": True, "text": "a=b"}
    assert lab("annotate", "r@best", "--remove", "n", "--remove", "text", "by=").code == 0
    assert lab.store.run("r").find(tag="best").notes == {"by": "", "ok": True}
    assert lab("annotate", "r").code == 2
    assert "KEY=VALUE" in lab("annotate", "r", "nothing").err


def test_a_hold_is_on_a_checkpoint_or_on_the_run(lab: Lab) -> None:
    told = lab("hold", "r@best", "--why", "audit", "--by", "ann")
    assert (told.code, told.out) == (0, "seq=3 of run 'r' is held by ann: audit\n")
    assert lab("hold", "r", "--why", "case 7", "--by", "bob", "--json").json["hold"]["by"] == "bob"
    summary = lab.store.run("r").summary()
    assert (summary.held, summary.hold and summary.hold.why) == (1, "case 7")
    assert lab("hold", "r").code == 2
    assert lab("hold", "r", "--why", " ").code == 2
    told = lab("delete", "r", "--yes")
    assert (told.code, told.out) == (1, "")
    assert all(part in told.err for part in ("release it first", "by='bob'", "why='case 7'"))
    assert lab("release", "r").out == "run 'r' is not held\n"
    assert lab("release", "r@3", "--json").json["hold"] is None
    assert lab.store.run("r").summary().held == 0
    assert lab("release", "r@3").code == 0


# ---- going back


def test_a_rollback_asks_since_it_fences(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    told = lab("rollback", "r@best")
    assert (told.code, told.out) == (2, "")
    assert "--yes" in told.err
    assert seqs(lab)[0] == 5
    assert lab.terminal(monkeypatch, "rollback", "r@best", answer="n\n").code == 1
    with counted(monkeypatch) as calls:
        assert (
            lab("rollback", "r@best", "--dry-run").out == "would make seq=3 (step 3) of run 'r' its newest\n"
        )
    assert not {name for name, _ in calls} & WRITES
    done = lab.terminal(monkeypatch, "rollback", "r@best", answer="y\n")
    assert (done.code, "seq=6 of run 'r' has the state of seq=3" in done.out) == (0, True)
    assert lab.store.run("r").load().step == 3
    assert lab("rollback", "r@-1", "-y", "--json").json["origin"] == {"run": "r", "seq": 5, "store": None}


def test_a_rollback_needs_a_checkpoint(lab: Lab) -> None:
    told = lab("rollback", "r", "--yes")
    assert (told.code, "name the checkpoint to go back to" in told.err) == (2, True)
    assert lab("rollback", "r@77", "--yes").code == 3


def test_a_fork_is_a_new_run_here_or_in_another_store(lab: Lab) -> None:
    told = lab("fork", "r@best", "branch")
    assert (told.code, told.out) == (0, "run 'branch' begins with the state of seq=3 of run 'r'\n")
    assert lab.store.run("branch").load().step == 3
    again = lab("fork", "r", "branch")
    assert (again.code, "choose another id run='branch'" in again.err) == (1, True)
    with lab.store.run("empty"):
        pass
    empty = lab("fork", "empty", "y")  # which was told as: did you mean 'empty'?
    assert (empty.code, empty.err) == (3, "error: the run has no checkpoint yet to start from run='empty'\n")
    other = new_lab()
    document = lab("fork", "r", "away", "--to", other.url, "--json").json
    assert document["origin"] == {"run": "r", "seq": 5, "store": lab.url}
    assert other.store.run("away").load().step == 5
    assert lab("fork", "r@9", "x").code == 3
    assert lab("fork", "r", "x", "--to", "").code == 2  # of a variable that is not set: not this store
    assert lab("fork", "r", "x", "--to-engine", "obstore").code == 2


# ---- rules


def test_rules_say_why_each_checkpoint_is_kept_before_they_drop(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as calls:
        told = lab("retain", "r", "--keep-last", "2", "--dry-run")
    assert not {name for name, _ in calls} & WRITES
    assert told.code == 0
    assert [(line[0], line[1], line[5]) for line in told.lines] == [
        ("keep", "5", "the newest"),
        ("keep", "4", "keep_last=2"),
        ("keep", "3", "tagged best"),
        ("drop", "2", "no rule keeps it"),
        ("drop", "1", "no rule keeps it"),
    ]
    refused = lab("retain", "r", "--keep-last", "2")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert seqs(lab) == [5, 4, 3, 2, 1]
    no = lab.terminal(monkeypatch, "retain", "r", "--keep-last", "2", answer="n\n")
    assert (no.code, "tagged best" in no.out, "Drop 2 checkpoints of run 'r'" in no.err) == (1, True, True)
    assert seqs(lab) == [5, 4, 3, 2, 1]
    done = lab("retain", "r", "--keep-last", "2", "--yes", "--json").json
    assert (done["dropped"], done["drops"], done["keeps"], done["dry_run"]) == ([2, 1], 2, 3, False)
    assert done["kept"][2] == {"seq": 3, "why": "tagged best"}
    assert (done["rules"], done["bytes"] > 0) == ({"keep_last": 2}, True)
    assert seqs(lab) == [5, 4, 3]
    assert lab.store.run("r").summary().set_by == "operator"
    assert lab("retain", "r").code == 0  # its own rules, and nothing to drop: no question


def test_every_rule_has_an_option(lab: Lab) -> None:
    options = ["--keep-last", "1", "--keep-within", "36h", "--hourly", "2", "--daily", "3", "--weekly", "4"]
    options += ["--monthly", "5", "--yearly", "6", "--min-keep", "7"]
    rules = lab("retain", "r", *options, "--dry-run", "--json").json["rules"]
    assert Retention.from_json(rules) == Retention(
        keep_last=1, keep_within=36 * 3600, hourly=2, daily=3, weekly=4, monthly=5, yearly=6, min_keep=7
    )
    assert lab("retain", "r", "--keep-within", "soon").code == 2
    assert lab("retain", "r", "--keep-last", "0").code == 2


def test_the_stores_rules_are_set_shown_and_taken_away(lab: Lab) -> None:
    assert lab("retain", "--default", "--json").json == {"retention": None}
    assert lab("retain", "--default", "--daily", "7", "--dry-run").code == 0
    assert lab.store.get_retention() is None
    assert "daily=7" in lab("retain", "--default", "--daily", "7").out
    assert lab("retain", "--default").out == "the store's rules: daily=7\n"
    assert lab("retain", "--default", "--json").json == {"retention": {"daily": 7}}
    assert lab("retain", "--default", "--clear").code == 0
    assert lab.store.get_retention() is None


def test_the_stores_rules_are_applied_to_runs_without_their_own(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent(lab, "own", 4, keep_last=3)
    agent(lab, "gone", 1)
    lab.store.delete("gone")
    apply = ("retain", "--default", "--keep-last", "1", "--apply")
    told = lab(*apply, "--dry-run")
    assert told.lines[0] == ["own", '{"keep_last": 3}', "3", "0", "0"]
    assert told.lines[1][:4] == ["r", '{"keep_last": 1}', "2", "3"]
    assert [line[0] for line in lab(*apply, "--prefix", "o", "--dry-run").lines] == ["own"]
    assert lab(*apply).code == 2
    assert (seqs(lab), lab.store.get_retention()) == ([5, 4, 3, 2, 1], None)
    done = lab.terminal(monkeypatch, *apply, answer="y\n")
    assert (done.code, "keep_last=1" in done.out) == (0, True)
    assert (seqs(lab), seqs(lab, "own")) == ([5, 3], [4, 3, 2])
    assert lab.store.get_retention() == Retention(keep_last=1)
    assert lab("retain", "--default", "--apply", "--yes").code == 0
    spoil(lab, keys.manifest_key("own"))
    told = lab("retain", "--default", "--apply", "--yes", "--json")
    assert (told.code, [row["run"] for row in told.rows]) == (1, ["r"])
    assert "damaged" in told.err


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store in memory pass for one that can lock objects."""
    monkeypatch.setattr(Placer, "_check", lambda _, placing: None)


@pytest.mark.usefixtures("places")
def test_a_lock_leaves_the_other_rules_and_they_leave_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who adds a lock wants no checkpoint dropped, and who drops some, no lock ended."""
    lab.store.run("r").retain(Retention(daily=7, keep_last=50))
    placed = ("--lock", "compliance:7y", "--storage-class", "GLACIER_IR")
    told = lab("retain", "r", *placed, "--json").json
    rules = {"keep_last": 50, "daily": 7, "lock": "compliance:7y", "storage_class": "GLACIER_IR"}
    assert (told["rules"], told["drops"]) == (rules, 0)
    assert lab("show", "r", "--json").json["retention"] == rules
    assert "lock=compliance:7y" in lab.terminal(monkeypatch, "show", "r").out
    rules = {**rules, "keep_last": 20}
    del rules["daily"]
    assert lab("retain", "r", "--keep-last", "20", "--json").json["rules"] == rules
    told = lab("retain", "r", "--lock", "none", "--storage-class", "none", "--json").json
    assert told["rules"] == {"keep_last": 20}
    assert lab("retain", "r", "--lock", "7y").code == 2
    assert lab.store.run("r").summary().retention == Retention(keep_last=20)


@pytest.mark.usefixtures("places")
def test_the_stores_lock_is_set_shown_applied_and_taken_off(lab: Lab) -> None:
    default = ("retain", "--default")
    lab(*default, "--daily", "7")
    assert "daily=7, lock=governance:30d" in lab(*default, "--lock", "governance:30d", "--dry-run").out
    assert lab.store.get_retention() == Retention(daily=7)
    assert "daily=7, lock=governance:30d" in lab(*default, "--lock", "governance:30d").out
    told = lab(*default, "--keep-last", "9", "--apply", "--yes", "--json")
    assert told.json["rules"] == {"keep_last": 9, "lock": "governance:30d"}
    assert lab.store.run("r").summary().retention == Retention(keep_last=9, lock="governance:30d")
    assert lab(*default, "--lock", "none", "--apply", "--yes", "--json").json["rules"] == {"keep_last": 9}
    assert lab.store.run("r").summary().retention == lab.store.get_retention() == Retention(keep_last=9)


def test_a_store_that_knows_no_locks_takes_none_into_its_rules(lab: Lab) -> None:
    for args in (["r"], ["--default"]):
        told = lab("retain", *args, "--lock", "compliance:7y")
        assert told.code == 2
        assert "--lock none" in told.err
    assert lab.store.get_retention() is None


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["r", "--apply"],
        ["--default", "--prefix", "r"],
        ["r", "--default"],
        ["--default", "--apply", "--yes"],
        ["--default", "--clear", "--daily", "1"],
    ],
)
def test_what_makes_no_sense_together_is_refused(lab: Lab, args: list[str]) -> None:
    told = lab("retain", *args)
    assert (told.code, told.out) == (2, "")


# ---- removal


def spoil(lab: Lab, key: str) -> None:
    async def replace(storage: Any) -> None:
        await storage.replace(key, b"junk", (await storage.read(key)).token)

    lab.store._core.call(replace(lab.store._core.storage))


def litter(lab: Lab, run: str, count: int) -> int:
    """Leave objects as a crash does; return their bytes."""
    storage = lab.store._core.storage
    for number in range(count):
        key = keys.object_key(run, 99, "0" * 64, f"{number:016x}")
        lab.store._core.call(storage.put(key, b"x" * 100))
    return 100 * count


def test_delete_asks_and_leaves_a_tombstone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    agent(lab, "s", 1)
    with lab.store.run("big") as run:
        run.save(random.Random(1).randbytes(50_000))
    [row] = lab("delete", "big", "--dry-run", "--json").rows
    assert (row["objects"], row["removed"], row["dry_run"]) == (1, 1, True)
    assert lab("delete", "r", "s").code == 2
    told = lab.terminal(monkeypatch, "delete", "r", "s", answer="n\n")
    assert (told.code, "Delete 'r', 's'?" in told.err) == (1, True)
    assert {lab.store.run(name).summary().status for name in ("r", "s", "big")} == {"running"}
    done = lab("delete", "r", "s", "--yes", "--why", "done", "--by", "ann")
    assert [line[0] for line in done.lines] == ["r", "s"]
    tombstone = lab.store.run("r").summary().tombstone
    assert (tombstone and tombstone.by, tombstone and tombstone.why) == ("ann", "done")
    assert lab("delete", "r", "--yes").code == 0
    assert lab("delete", "bgi", "--yes").code == 3


def test_delete_touches_nothing_when_one_of_the_runs_is_held_or_unknown(lab: Lab) -> None:
    """Half of a deletion that was refused would be worse than none."""
    agent(lab, "held", 1)
    lab.store.run("held").hold("case", whole=True)
    assert lab("delete", "r", "held", "--yes").code == 1
    assert lab("delete", "r", "nowhere", "--yes").code == 3
    assert lab.store.run("r").summary().status == "running"


@pytest.mark.parametrize("command", ["collect", "gc"])
def test_collect_removes_what_nothing_refers_to(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    agent(lab, "s", 1)
    size = litter(lab, "r", 3)
    told = lab(command, "--dry-run")
    assert told.lines == [["r", "3", "3", str(size)], ["s", "0", "0", "0"]]
    assert told.err == "would remove 3 objects, 300 B, of 2 runs\n"
    rows = lab(command, "s", "--json").rows
    assert rows == [{"run": "s", "objects": 0, "removed": 0, "bytes": 0, "dry_run": False}]
    assert lab(command, "--prefix", "s", "--json").rows == rows
    shown = lab.terminal(monkeypatch, command)
    assert (shown.code, "300 B" in shown.out, "removed 3 objects, 300 B, of 2 runs" in shown.err) == (
        0,
        True,
        True,
    )
    assert lab(command, "--json").rows[0]["objects"] == 0
    assert lab(command, "nowhere").code == 3


def test_collect_goes_on_past_a_damaged_run(lab: Lab) -> None:
    agent(lab, "a", 1)
    spoil(lab, keys.manifest_key("a"))
    litter(lab, "r", 1)
    told = lab("collect", "--json")
    assert (told.code, [row["removed"] for row in told.rows]) == (1, [1])
    assert "run='a'" in told.err


def test_damaged_settings_of_a_store_can_be_taken_away(lab: Lab) -> None:
    """Until then no run begins, and they said "set them again", which failed the same way."""
    storage = lab.store.run("x").access.storage
    lab.store._core.call(storage.create("settings.json", b'{"retention": {"daily": 3}}'))
    for args in (("submit", "new"), ("retain", "--default"), ("retain", "--default", "--daily", "3")):
        told = lab(*args)
        assert (told.code, "retain --default --clear` and set them again" in told.err) == (1, True)
        assert "key='settings.json'" in told.err
    assert lab("retain", "--default", "--clear").code == 0
    assert lab("retain", "--default", "--daily", "3").code == 0
    assert lab.store.get_retention() == Retention(daily=3)
    assert lab("submit", "new").code == 0
