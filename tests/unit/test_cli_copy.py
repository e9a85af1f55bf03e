"""``cloudckpt copy``: what is copied, what is told of it, and how it fails and goes on."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

import cloudckpt
from cloudckpt import copying
from cloudckpt.cli import copies, failures, screen
from cloudckpt.retention import Retention
from cloudckpt.storage.memory import MemoryStorage
from tests.unit.cli_lab import Lab, agent, counted, new_lab


@pytest.fixture
def lab() -> Lab:
    lab = new_lab()
    agent(lab, "day-1", 3, tags={2: ("best",)})
    agent(lab, "night-1", 2)
    lab.store.run("night-1").hold("case 7", whole=True)
    with lab.store.run("night-2") as run:
        for step in range(1, 4):
            run.save({"step": step, "log": [str(n) for n in range(step * 40_000)]})  # none of them rides
    return lab


@pytest.fixture
def other() -> Lab:
    return new_lab()


def test_all_runs_are_copied_or_those_that_are_named(lab: Lab, other: Lab) -> None:
    told = lab("copy", lab.url, other.url, "day-1", url=None)
    assert (told.code, told.lines) == (0, [["day-1", "3", "3", "0", "0", "true"]])
    assert told.err == "copied 1 of 1 run: 0 objects, 0 B\n"
    rows = lab("copy", lab.url, other.url, "--prefix", "night", "--json").rows
    assert [row["run"] for row in rows] == ["night-1", "night-2"]
    assert [row["run"] for row in lab("copy", lab.url, other.url, "--json").rows if row["changed"]] == []
    assert [info.id for info in other.store.runs()] == ["day-1", "night-1", "night-2"]
    assert other.store.run("day-1").find(tag="best").seq == 2  # type: ignore[union-attr]
    assert other.store.run("night-1").summary().hold is not None
    assert other.store.run("night-2").load()["step"] == 3


def test_a_dry_run_sends_nothing_and_says_what_it_would(
    lab: Lab, other: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as calls:
        plan = lab("copy", lab.url, other.url, "night-2", "--dry-run", "--json", "--settings").rows
    assert {name for name, _ in calls} == {"read", "list"}
    done = lab("copy", lab.url, other.url, "night-2", "--json").rows
    assert plan == [{**done[0], "dry_run": True}]
    assert done[0]["sent"] > 0
    assert lab("copy", lab.url, other.url, "-n").err.startswith("would copy 2 of 3 runs: 0 objects, 0 B")


def test_what_the_destination_has_lost_is_sent_again_when_asked(lab: Lab, other: Lab) -> None:
    lab("copy", lab.url, other.url)
    core = other.store._core
    [key] = [row.key for row in core.call(core.storage.list("objects/night-2/")).rows if "/3-" in row.key]
    core.call(core.storage.delete([key]))
    assert [row["sent"] for row in lab("copy", lab.url, other.url, "night-2", "--json").rows] == [0]
    plan = lab("copy", lab.url, other.url, "--check", "--dry-run", "--json").rows
    assert [row["run"] for row in plan if row["changed"]] == ["night-2"]
    told = lab("copy", lab.url, other.url, "--check")
    assert told.err.startswith("copied 1 of 3 runs: 1 object, ")
    assert other.store.run("night-2").load()["step"] == 3
    assert lab("copy", lab.url, other.url, "--check").err == "copied 0 of 3 runs: 0 objects, 0 B\n"


def test_a_run_that_fails_hides_no_other(lab: Lab, other: Lab) -> None:
    other.store.run("night-1").save({"own": True})
    told = lab("copy", lab.url, other.url)
    assert told.code == failures.NO
    assert [line[0] for line in told.lines] == ["day-1", "night-2"]
    assert "error: the destination has a run of that id with another history" in told.err
    assert told.err.endswith("; 1 failed\n")
    assert other.store.run("night-1").load() == {"own": True}


def test_a_deleted_run_is_left_out_unless_it_is_named(lab: Lab, other: Lab) -> None:
    """Its tombstone is for late writers of its own store; one of the destination's is a refusal."""
    lab.store.delete("day-1")
    other.store.run("night-2").save(1)
    other.store.delete("night-2")
    told = lab("copy", lab.url, other.url)
    assert (told.code, [line[0] for line in told.lines]) == (failures.NO, ["night-1"])
    assert "tombstone" in told.err
    assert "1 deleted run left out; 1 failed" in told.err
    named = lab("copy", lab.url, other.url, "day-1")
    assert (named.code, "the run was deleted" in named.err) == (failures.NO, True)


def test_nothing_is_copied_when_one_of_the_runs_is_not_there(lab: Lab, other: Lab) -> None:
    told = lab("copy", lab.url, other.url, "day-1", "nigth-1")
    assert told.code == failures.ABSENT
    assert "did you mean 'night-1'" in told.err
    assert list(other.store.runs()) == []


def test_the_stores_own_rules_are_copied_when_asked(lab: Lab, other: Lab) -> None:
    other.store.set_retention(Retention(daily=3))
    assert "those of DST stay" in lab("copy", lab.url, other.url, "day-1", "--settings").err
    assert other.store.get_retention() == Retention(daily=3)
    lab.store.set_retention(Retention(weekly=5))
    assert "would keep weekly=5" in lab("copy", lab.url, other.url, "day-1", "--settings", "-n").err
    lab("copy", lab.url, other.url, "day-1")
    assert other.store.get_retention() == Retention(daily=3)
    assert "from now on keep weekly=5" in lab("copy", lab.url, other.url, "day-1", "--settings").err
    assert other.store.get_retention() == Retention(weekly=5)


def test_both_stores_have_options_of_their_own(lab: Lab, other: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[Any, ...]] = []
    right = cloudckpt.open

    def noted(url: str, *, engine: Any = None, storage_options: Any = None) -> Any:
        opened.append((url, engine, storage_options))
        return right(url)

    monkeypatch.setattr(cloudckpt, "open", noted)
    here = ("--engine", "a", "--storage-options", '{"x": 1}')
    there = ("--to-engine", "b", "--to-storage-options", '{"x": 2}')
    assert lab("copy", lab.url, other.url, *here, *there).code == 0
    assert opened == [(lab.url, "a", {"x": 1}), (other.url, "b", {"x": 2})]


def test_an_interrupt_ends_what_is_under_way_and_a_second_call_goes_on(
    lab: Lab, other: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run of many gigabytes would be copied to its end first."""
    monkeypatch.setattr(copying, "AT_ONCE", 1)
    right = MemoryStorage.put
    puts: list[str] = []
    main = threading.get_ident()
    before = signal.getsignal(signal.SIGINT)
    [plan] = lab("copy", lab.url, other.url, "night-2", "--dry-run", "--json").rows

    async def interrupted(self: MemoryStorage, key: str, data: bytes) -> Any:
        answer = await right(self, key, data)
        if key.startswith("objects/"):
            puts.append(key)
            if len(puts) == 1:
                signal.pthread_kill(main, signal.SIGINT)  # by a signal of its own: it may be waiting
                assert stopped.wait(30)
        return answer

    stopped = threading.Event()
    handler = copies._stoppable

    def noted() -> Any:
        return _setting(handler(), stopped)

    monkeypatch.setattr(copies, "_stoppable", noted)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryStorage, "put", interrupted)
        assert lab("copy", lab.url, other.url, "night-2").code == failures.INTERRUPTED
    assert len(puts) == 1, "what was not begun is not sent"
    assert signal.getsignal(signal.SIGINT) is before
    assert list(other.store.runs()) == []
    [row] = lab("copy", lab.url, other.url, "night-2", "--json").rows
    assert row["sent"] == plan["sent"] - 1 > 0
    assert other.store.run("night-2").load()["step"] == 3


class _setting:
    """A `_stoppable` that also says when its handler has run."""

    def __init__(self, inner: Any, stopped: threading.Event) -> None:
        self._inner = inner
        self._stopped = stopped

    def __enter__(self) -> Any:
        check = self._inner.__enter__()
        handler: Any = signal.getsignal(signal.SIGINT)

        def noted(number: int, frame: Any) -> None:
            try:
                handler(number, frame)
            finally:
                self._stopped.set()

        signal.signal(signal.SIGINT, noted)
        return check

    def __exit__(self, *error: object) -> Any:
        return self._inner.__exit__(*error)


@pytest.mark.parametrize("runs", [[], ["night-2", "day-1"]])
def test_the_progress_ends_where_it_should(
    lab: Lab, other: Lab, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are counted; of runs that are named their bytes, since one may be large."""
    seen: dict[str, Any] = {}

    class Noting(screen.Output):
        def progress(self, label: str, total: Any = None) -> Any:
            from contextlib import contextmanager

            @contextmanager
            def bar() -> Any:
                seen.update(label=label, total=total(), done=0)

                def advance(more: int) -> None:
                    seen["done"] += more

                yield advance

            return bar()

    monkeypatch.setattr("cloudckpt.cli.frame.Output", Noting)
    assert lab("copy", lab.url, other.url, *runs, "--json").code == 0
    if runs:
        assert seen == {"label": "KiB", "total": seen["done"], "done": seen["total"]}
        assert seen["total"] > 20
    else:
        assert seen == {"label": "runs", "total": 3, "done": 3}


def test_a_shell_completes_runs_of_the_source(lab: Lab, other: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.test_cli_completion import completed

    assert completed(other, "copy", lab.url, other.url, "ni") == ["night-1", "night-2"]
