"""Eight real workers and thirty runs: each run is worked on by one at a time, also where workers die."""

from __future__ import annotations

import secrets
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.processes import run_program
from tests.protocol.queueing import MOST, STEPS
from tests.servers.base import Server

RUNS, WORKERS, DEATHS = 30, 8, 3


@pytest.fixture(params=["folder", "minio"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    if request.param == "folder":
        return str(tmp_path / "store"), {}
    server: Server = request.getfixturevalue("minio_server")
    return f"{server.url}/queue-{secrets.token_hex(4)}", server.storage_options()


def worked(place: tuple[str, dict[str, Any]], deaths: int) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return who worked on each run, in order of time, and what came of it."""
    told = run_program("tests.protocol.queueing", *place, RUNS, WORKERS, deaths, timeout=300)
    by_run = defaultdict(list)
    for one in sorted(told["told"], key=lambda one: one["begin"]):
        by_run[one["run"]].append(one)
    states = told["states"]
    assert {run: state["status"] for run, state in states.items()} == {f"r{n}": "done" for n in range(RUNS)}
    assert all(state["step"] == STEPS for state in states.values())
    return by_run, states


def test_each_run_is_got_by_exactly_one_worker(place: tuple[str, dict[str, Any]]) -> None:
    by_run, states = worked(place, 0)
    assert {run: len(ones) for run, ones in by_run.items()} == dict.fromkeys(states, 1)
    assert len({one["pid"] for ones in by_run.values() for one in ones}) >= RUNS / MOST


def test_what_a_killed_worker_had_is_picked_up_and_no_two_work_on_it_at_once(
    place: tuple[str, dict[str, Any]],
) -> None:
    """One that stood still for longer than its lease is fenced, and none of its saves is among the heir's."""
    by_run, states = worked(place, DEATHS)
    died = [one for ones in by_run.values() for one in ones if one.get("died")]
    assert len(died) == DEATHS
    for run, ones in by_run.items():
        assert [one["epoch"] for one in ones] == sorted({one["epoch"] for one in ones})
        assert states[run]["by"] == sorted(states[run]["by"])
        for one, after in pairwise(ones):
            assert one.get("died") or one.get("fenced"), f"{run} was claimed although nobody left it"
            assert after["begin"] > one["begin"]
            if one.get("died"):
                assert after["begin"] > one["end"]
    for one in died:
        assert len(by_run[one["run"]]) > 1
        assert set(states[one["run"]]["by"]) >= {one["epoch"]}, "what the dead one saved was lost"
