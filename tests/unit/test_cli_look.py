"""Commands that look: runs, show, history, cat, diff, size; in a pipe, in a terminal, as JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.cli import runs as runs_command
from cloudckpt.cli import shapes
from cloudckpt.cli.show import CHECKPOINT, HISTORY, RUN
from cloudckpt.retention import Retention
from cloudckpt.storage.memory import PAGE_ROWS
from tests.unit.cli_lab import Lab, T, agent, counted, new_lab, nightly_lab


@pytest.fixture
def lab() -> Lab:
    return nightly_lab()


def damage(lab: Lab, key: str) -> None:
    async def spoil(storage: Any) -> None:
        found = await storage.read(key)
        await storage.replace(key, b"junk", found.token)

    lab.store._core.call(spoil(lab.store._core.storage))


# ---- runs


def test_runs_in_a_pipe_are_a_line_each(lab: Lab) -> None:
    told = lab("runs")
    assert (told.code, told.err) == (0, "")
    assert sorted(line[0] for line in told.lines) == ["a b/c@d", "nightly-42", "nightly-43"]
    assert all(len(line) == 3 and line[1].endswith("Z") and int(line[2]) > 100 for line in told.lines)
    assert [line[0] for line in lab("runs", "night").lines] == ["nightly-42", "nightly-43"]
    assert len(lab("runs", "--limit", "2").lines) == 2
    assert lab("runs", "none").out == ""


def test_runs_for_programs_are_a_document_a_line(lab: Lab) -> None:
    rows = lab("runs", "nightly", "--json").rows
    assert [list(row) for row in rows] == [["run", "modified", "manifest_size"]] * 2
    [row] = lab("runs", "nightly-42", "--json", "--long").rows
    assert row == {
        **shapes.listed(next(iter(lab.store.runs("nightly-42")))),
        **shapes.summary(lab.store.run("nightly-42").summary()),
    }


def test_columns_are_chosen(lab: Lab) -> None:
    assert lab("runs", "nightly", "--columns", "seq,run").lines == [["3", "nightly-42"], ["1", "nightly-43"]]
    told = lab("runs", "--columns", "run,nothing")
    assert (told.code, "no column 'nothing'" in told.err) == (2, True)
    [line] = lab("runs", "nightly-42", "-l").lines
    assert line[:7] == ["nightly-42", "running", "3", "3", T[2], "3", line[6]]


def test_runs_in_a_terminal_are_a_table(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = lab.terminal(monkeypatch, "runs", "nightly", "-l").out.splitlines()
    assert shown[0].split() == [runs_command.COLUMNS[name].title for name in runs_command.LONG]
    assert shown[1].split()[:6] == ["nightly-42", "running", "3", "3", "2026-03-01", "12:50:00"]


def test_a_listing_asks_for_no_run_unless_a_column_does(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = new_lab()
    storage = lab.store._core.storage
    many = 2 * PAGE_ROWS + 1
    for number in range(many):
        lab.store._core.call(storage.put(keys.manifest_key(f"n{number:05}"), b"x"))
    with counted(monkeypatch) as calls:
        assert len(lab("runs", "--json").rows) == many
    assert [name for name, _ in calls] == ["list"] * 3
    with counted(monkeypatch) as calls:
        assert len(lab("runs", "n0000", "-l").lines) == 10
    assert sorted(name for name, _ in calls) == ["list"] + ["read"] * 10


def test_a_damaged_run_hides_no_other_and_is_exit_code_1(lab: Lab) -> None:
    damage(lab, keys.manifest_key("nightly-42"))
    assert lab("runs").code == 0
    told = lab("runs", "nightly", "-l")
    assert told.code == 1
    assert [line[:3] for line in told.lines] == [
        ["nightly-42", "damaged", "-"],
        ["nightly-43", "running", "1"],
    ]
    assert told.err.startswith("error: the run's manifest is damaged")
    [row] = lab("runs", "nightly-42", "--json", "--columns", "status").rows
    assert (row["status"], "damaged" in row["error"]) == ("damaged", True)


def test_the_columns_are_fields_of_the_document(lab: Lab) -> None:
    [row] = lab("runs", "nightly-42", "--json", "-l").rows
    assert set(runs_command.COLUMNS) <= set(row)
    assert {each.key for each in RUN} <= set(lab("show", "nightly-42", "--json").json)
    assert {each.key for each in (*CHECKPOINT, *HISTORY)} <= set(lab("show", "nightly-42@1", "--json").json)


# ---- show and history


def test_a_run_is_shown_as_a_whole(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    told = lab("show", "nightly-42").lines
    assert [line[0] for line in told] == [each.key for each in RUN]
    assert told[:8] == [
        ["run", "nightly-42"],
        ["status", "running"],
        ["seq", "3"],
        ["step", "3"],
        ["saved", T[2]],
        ["checkpoints", "3"],
        ["oldest", "1"],
        told[7],
    ]
    document = lab("show", "nightly-42", "--json").json
    assert document["newest"]["seq"] == 3
    shown = lab.terminal(monkeypatch, "show", "nightly-42").out
    assert "2026-03-01 12:50:00" in shown
    assert "hold" not in shown  # what is not there takes no line


def test_a_checkpoint_is_shown(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.store.run("nightly-42").hold("audit", by="ann", seq=2)
    document = lab("show", "nightly-42@best", "--json").json
    assert document == shapes.checkpoint(lab.store.run("nightly-42").find(seq=2))
    assert (document["tags"], document["hold"]["why"], document["time"]) == (["best"], "audit", T[1])
    assert ["tags", "best"] in lab("show", "nightly-42@2").lines
    assert "audit" in lab.terminal(monkeypatch, "show", "nightly-42@2").out
    assert lab("show", "a b/c@d").lines[0] == ["run", "a b/c@d"]


def test_a_deleted_run_is_shown_and_its_checkpoints_are_gone(lab: Lab) -> None:
    lab.store.delete("nightly-43", by="ann", why="done")
    document = lab("show", "nightly-43", "--json").json
    assert (document["status"], document["newest"], document["tombstone"]["why"]) == ("deleted", None, "done")
    told = lab("show", "nightly-43@1")
    assert (told.code, told.out) == (3, "")
    assert "the run was deleted" in told.err


def test_what_is_not_there_is_exit_code_3_and_says_what_is(lab: Lab) -> None:
    told = lab("show", "nigtly-42")
    assert (told.code, told.out) == (3, "")
    assert "did you mean 'nightly-42'" in told.err
    agent(lab, "short", 9, keep_last=2)
    told = lab("show", "short@4")
    assert told.code == 3
    assert told.err.count("\n") == 1
    for part in ("has expired", "rule='keep_last=2'", "until=", "retained=[9, 8]"):
        assert part in told.err


def test_history_is_newest_first(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    told = lab("history", "nightly-42")
    assert [line[:3] for line in told.lines] == [["3", "3", T[2]], ["2", "2", T[1]], ["1", "1", T[0]]]
    assert [line[4] for line in told.lines] == ["-", "best", "-"]
    rows = lab("history", "nightly-42", "--json").rows
    assert rows == [shapes.checkpoint(info) for info in lab.store.run("nightly-42").history()]
    table = lab.terminal(monkeypatch, "history", "nightly-42").out.splitlines()
    assert table[0].split()[:4] == ["seq", "step", "saved", "stored"]
    assert table[2].split()[-1] == "best"


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (["--since", T[1]], ["3", "2"]),
        (["--until", T[1]], ["1"]),
        (["--since", "2026-03-01", "--until", "2026-03-01 12:45"], ["2", "1"]),
        (["--since", "1h"], []),
        (["--step", "2"], ["2"]),
        (["--tag", "best"], ["2"]),
        (["--limit", "2"], ["3", "2"]),
    ],
)
def test_history_is_filtered(lab: Lab, options: list[str], seqs: list[str]) -> None:
    told = lab("history", "nightly-42", *options)
    assert (told.code, [line[0] for line in told.lines]) == (0, seqs)


def test_a_history_that_is_cut_says_so(lab: Lab) -> None:
    """Else a script takes the newest twenty for all."""
    assert lab("history", "nightly-42", "--limit", "3").err == ""
    assert "the newest 2; --limit 0 lists all" in lab("history", "nightly-42", "--limit", "2").err
    agent(lab, "long", 30, retention=Retention(keep_last=100))
    assert len(lab("history", "long").lines) == 20
    assert len(lab("history", "long", "--limit", "0").lines) == 30


def test_the_newest_of_a_long_history_cost_two_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = new_lab()
    agent(lab, "long", 400, retention=Retention(keep_last=1000))
    with counted(monkeypatch) as calls:
        assert len(lab("history", "long").lines) == 20
    assert len(calls) <= 2
    assert {name for name, _ in calls} == {"read"}


def test_a_history_of_nothing_says_what_is_missing(lab: Lab) -> None:
    assert lab("history", "none").code == 3
    assert lab("history", "nightly-42", "--since", "someday").code == 2
    with lab.store.run("empty"):
        pass
    assert (lab("history", "empty").code, lab("history", "empty").out) == (0, "")


# ---- cat, diff, size


def test_a_state_is_json(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {
        "$record": "Research/1",
        "task": "find it",
        "step": 2,
        "messages": [{"role": "user", "content": f"hello {n}"} for n in (1, 2)],
        "seen": {"$set": [1, 2]},
    }
    assert lab("cat", "nightly-42@2").json == wanted
    assert lab("cat", "nightly-42@best", "--json").rows == [wanted]
    assert json.loads(lab.terminal(monkeypatch, "cat", "nightly-42@-1").out) == wanted


def test_a_part_of_a_state_is_named_by_its_path(lab: Lab) -> None:
    assert lab("cat", "nightly-42", "--path", "state.messages[1]").json == {
        "role": "user",
        "content": "hello 2",
    }
    assert lab("cat", "nightly-42", "--path", "messages[*].content").rows[0] == {
        "path": "state.messages[0].content",
        "value": "hello 1",
    }
    assert lab("cat", "nightly-42", "--path", "task", "--raw").out == "find it"
    told = lab("cat", "nightly-42", "--path", "messages[9]")
    assert (told.code, told.out, "no such part" in told.err) == (2, "", True)
    told = lab("cat", "nightly-42", "--path", "messages", "--raw")
    assert (told.code, "--raw is for a str or bytes" in told.err) == (2, True)
    assert lab("cat", "nightly-42", "--path", "messages[").code == 2


def test_none_is_a_state_and_no_run_is_not(lab: Lab) -> None:
    lab.store.run("none").save(None)
    assert (lab("cat", "none").code, lab("cat", "none").out) == (0, "null\n")
    assert lab("cat", "nowhere").code == 3


def test_stored_bytes_are_as_they_are_in_the_store(tmp_path: Any, lab: Lab, capfdbinary: Any) -> None:
    import cloudckpt
    from cloudckpt.cli.commands import cli

    state = bytes(range(256))
    with cloudckpt.open(tmp_path) as store:
        info = store.run("r").save(state)
    cli(["cat", "r", "--store", str(tmp_path), "--stored"], standalone_mode=False)
    assert hashlib.sha256(capfdbinary.readouterr().out).hexdigest() == info.digest
    cli(["cat", "r", "--store", str(tmp_path), "--raw"], standalone_mode=False)
    assert capfdbinary.readouterr().out == state
    assert lab("cat", "nightly-42", "--stored", "--raw").code == 2


def test_damage_is_exit_code_1_and_names_what_is_intact(lab: Lab) -> None:
    import random

    with lab.store.run("big") as run:
        first = run.save(random.Random(1).randbytes(40_000))
        second = run.save(random.Random(2).randbytes(40_000))
    [key] = [key for key in _objects(lab, "big") if second.digest in key]
    damage(lab, key)
    told = lab("cat", "big", "--raw")
    assert (told.code, told.out) == (1, "")
    assert "newest_intact=1" in told.err
    told = lab("cat", "big", "--fallback", "--json")
    assert told.code == 0
    told = lab("cat", "big", "--fallback", "--stored")
    assert f"went back to seq={first.seq}" in told.err


def _objects(lab: Lab, run: str) -> list[str]:
    return [
        row.key for row in lab.store._core.call(lab.store._core.storage.list(keys.objects_prefix(run))).rows
    ]


def test_a_state_that_is_nested_too_deep_is_a_line(lab: Lab) -> None:
    """The codec goes 1023 levels deep, Python 1000 calls: in how many levels, differs by its version."""
    state: Any = []
    for _ in range(1000):
        state = [state]
    lab.store.run("deep").save(state)
    told = lab("cat", "deep")
    assert (told.code, "nested too deep" in told.err) == (2, True)
    assert lab("diff", "deep").code == 0


def test_a_difference_is_exit_code_1(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    told = lab("diff", "nightly-42@2", "@3")
    assert (told.code, told.err) == (1, "")
    assert told.lines == [
        ["changed", "state.step", "2", "3"],
        ["added", "state.messages[2]", "-", '{"role": "user", "content": "hello 3"}'],
        ["added", "state.seen[*]", "-", "3"],
    ]
    assert lab("diff", "nightly-42@2").out == told.out == lab("diff", "nightly-42@best", "nightly-42@-0").out
    same = lab("diff", "nightly-42", "nightly-42@3")
    assert (same.code, same.out) == (0, "")
    assert lab("diff", "nightly-42@1", "nightly-43", "--json").code == 0  # other runs, the same state
    assert lab("diff", "nightly-42@2", "--json").rows[0] == {
        "path": "state.step",
        "kind": "changed",
        "old": 2,
        "new": 3,
    }
    shown = lab.terminal(monkeypatch, "diff", "nightly-42@2")
    assert (shown.code, "state.messages[2]" in shown.out) == (1, True)
    assert lab("diff", "nightly-42@9").code == 3


def test_sizes_are_by_part_or_over_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = lab("size", "nightly-42@2", "--json").rows
    info = lab.store.run("nightly-42").find(seq=2)
    assert (rows[0]["path"], rows[0]["encoded"], rows[0]["share"]) == ("state", info.encoded_size, 1.0)
    assert rows[0]["compressed"] == info.size
    assert len(lab("size", "nightly-42", "--limit", "3").lines) == 3
    assert "smaller parts; --limit 0" in lab("size", "nightly-42", "--limit", "3").err
    assert "100.0%" in lab.terminal(monkeypatch, "size", "nightly-42").out
    over = lab("size", "nightly-42", "--history", "--json").rows
    sizes = [one.encoded_size for one in lab.store.run("nightly-42").history()]
    assert [row["encoded_size"] for row in over] == sizes
    assert [row["grown"] for row in over] == [sizes[0] - sizes[1], sizes[1] - sizes[2], None]
    cut = lab("size", "nightly-42", "--history", "--limit", "1", "--json").rows
    assert [row["grown"] for row in cut] == [sizes[0] - sizes[1]]
    assert "+" in lab.terminal(monkeypatch, "size", "nightly-42", "--history").out
