"""``submit``, ``offer`` and ``work`` as commands; with real agents in tests/e2e/test_work.py."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from tests.unit.cli_lab import Lab, agent, new_lab


@pytest.fixture
def lab() -> Lab:
    return new_lab()


def test_a_submitted_run_has_the_state_of_the_file(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"task": "find it"}')
    told = lab("submit", "a", "--state", str(tmp_path / "state.json"), "--json")
    assert told.json == {"run": "a", "seq": 1}
    assert lab.store.run("a").load() == {"task": "find it"}
    assert lab("submit", "b", "--state", "-", input="[1]").code == 0
    assert lab("submit", "c").out == "run 'c' waits for a worker\n"
    assert lab.store.run("b").load() == [1]
    assert lab.store.run("c").summary().seq == 0


def test_what_is_no_state_and_what_exists_is_refused(lab: Lab) -> None:
    told = lab("submit", "a", "--state", "-", input="{")
    assert (told.code, "not JSON" in told.err) == (2, True)
    deep = lab("submit", "a", "--state", "-", input="[" * 100_000)
    assert (deep.code, "nested too deep to be read" in deep.err) == (2, True)
    agent(lab, "r", 1)
    told = lab("submit", "r")
    assert (told.code, "exists already" in told.err) == (1, True)


def test_runs_are_offered_and_one_that_is_held_is_not(lab: Lab) -> None:
    agent(lab, "r", 1)
    agent(lab, "s", 1)
    assert lab("offer", "r", "s", "--json").out.count("\n") == 2
    assert {lab.store.run(run).summary().lease for run in "rs"} == {0}
    with lab.store.run("r", lease=60):
        told = lab("offer", "r")
        assert (told.code, "holds the run's lease" in told.err) == (1, True)
    assert lab("offer", "nothing").code == 3


def test_a_worker_tells_what_became_of_each_run(lab: Lab) -> None:
    lab("submit", "jobs/1")
    lab("submit", "other")
    told = lab("work", "--prefix", "jobs/", "--tries", "1", "--poll", "0.01", "--", "false")
    assert [row[:3] for row in told.lines] == [["jobs/1", "running", "1"]]
    assert (told.code, "failed too often for jobs/1" in told.err) == (1, True)
    (row,) = lab("work", "--once", "--json", "--", "true").rows
    assert {key: row[key] for key in ("run", "status", "exit", "failed")} in [
        {"run": run, "status": "running", "exit": 0, "failed": 0} for run in ("jobs/1", "other")
    ]


def test_a_command_that_comes_to_nothing_is_given_up(lab: Lab) -> None:
    """An agent that forgets `run.finish` was run again at once, a hundred times a second, for ever."""
    lab("submit", "jobs/1")
    told = lab("work", "--tries", "2", "--poll", "0.01", "--retry-after", "0.01", "--", "true")
    assert [(row[0], row[2], row[4]) for row in told.lines] == [("jobs/1", "0", str(n)) for n in range(3)]
    assert (told.code, "an agent ends its run by run.finish" in told.err) == (1, True)


def test_the_second_interrupt_does_not_wait_for_the_store(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lets a claim end, so that the run is let go; on a store that hangs it takes minutes."""

    def hangs(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(2)

    reached: list[int] = []
    monkeypatch.setattr(cloudckpt.Store, "claim", hangs)
    told = lab("work", "--", "true")
    assert (told.code, told.err, reached) == (130, "interrupted\n", [1])


def test_a_worker_without_a_run_ends_well(lab: Lab) -> None:
    assert lab("work", "--", "true").code == 0
    assert lab("work").code == 2
    assert lab("work", "--lease", "0", "--", "true").code == 2


def test_a_watch_tells_how_many_steps_there_will_be(lab: Lab) -> None:
    lab.store.run("r").save({"step": 3, "max_steps": 9})
    (row,) = lab("watch", "r", "--once", "--json").rows
    assert (row["step"], row["max_steps"], row["remaining"]) == (3, 9, None)


def test_a_rollback_by_an_operator_takes_a_held_run_and_gives_it_back(lab: Lab) -> None:
    lab.store.submit("r", {"n": 1})
    run = lab.store.claim()
    assert run is not None
    run.save({"n": 2})
    assert lab("rollback", "r@1", "--yes").code == 0
    assert lab.store.run("r").summary().lease == 0
    assert lab.store.run("r").load() == {"n": 1}
