"""The real queue of saves under the scheduler: its laws at every step, also on a network that fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.behind import Life
from tests.protocol.scheduler import Chooser, PathChooser, RandomChooser
from tests.protocol.stage import Stage, collector, killer, reader, writer

SEEDS = 150


def play(life: Life, chooser: Chooser, *others: tuple[str, Any], faults: int = 0) -> Stage:
    stage = Stage(chooser, faults=faults, patience=0.0 if faults else 1.0)
    stage.start("A", life.act)
    for name, act in others:
        stage.start(name, act)
    stage.run()
    life.check_end()
    return stage


@pytest.mark.parametrize("room", [1, 3])
def test_saves_behind_come_in_order_and_none_is_lost_in_silence(room: int) -> None:
    for seed in range(SEEDS):
        life = Life(room=room, flushes=(seed % 5,))
        play(life, RandomChooser(seed), ("collector", collector), ("reader", reader))
        assert life.ended


@pytest.mark.parametrize("room", [1, 3])
def test_what_fails_is_told_and_the_rest_goes_on(room: int) -> None:
    """A network that loses, repeats and delays: the first error of a commit is the first that is told."""
    failures = 0
    for seed in range(SEEDS):
        life = Life(room=room, faulty=True)
        play(life, RandomChooser(seed), ("reader", reader), faults=2 + seed % 7)
        failures += len(life.failed)
    assert failures > SEEDS // 10, "or nothing was tried"


def test_a_lost_race_ends_it() -> None:
    """No save is committed after one that was refused, however many wait."""
    fenced = 0
    for seed in range(SEEDS):
        life = Life(room=2)
        play(life, RandomChooser(seed), ("B", writer("B", 2)))
        fenced += life.fenced
    assert fenced > SEEDS // 10


def test_a_crash_costs_no_more_than_what_is_pending() -> None:
    dead = 0
    for seed in range(SEEDS):
        life = Life(room=1 + seed % 3)
        play(life, RandomChooser(seed), ("killer", killer), ("B", life.resume))
        dead += not life.ended
    assert dead > SEEDS // 10


def test_a_save_that_is_skipped_is_pending_until_it_is_durable() -> None:
    """Cadence "selective": a crash costs what came since the last commit, and an end costs nothing."""
    dead = 0
    for seed in range(SEEDS):
        life = Life(every=2 + seed % 3, flushes=(seed % 6,))
        play(life, RandomChooser(seed), ("killer", killer), ("B", life.resume))
        dead += not life.ended
    assert SEEDS // 10 < dead < SEEDS


@pytest.mark.parametrize(("turns", "others"), [(5, ()), (2, (("B", writer("B", 1)),))])
def test_every_order_with_few_turns(turns: int, others: tuple[tuple[str, Any], ...]) -> None:
    """All interleavings that differ from the calm one in so many places."""
    paths: list[tuple[int, ...]] = [()]
    played = 0
    while paths:
        chooser = PathChooser(paths.pop())
        play(Life(), chooser, *others)
        played += 1
        paths.extend(chooser.turnings(turns))
    assert played > 100
