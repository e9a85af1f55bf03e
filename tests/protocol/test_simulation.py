"""The real core under a scheduler of our own: every order of steps, every fate of a write.

The laws are held after each step that wrote. A failing run names its seed or
its path of choices, and `play` with that one replays it step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import making, objects, sweep
from cloudckpt.model import Entry
from tests.protocol.scheduler import Chooser, PathChooser, RandomChooser
from tests.protocol.stage import SMALL, Stage, collector, killer, reader, writer

Plot = dict[str, Callable[[Stage, Any], Any]]

SEEDS = 100
"""Of each plot and each share of riding payloads."""

PLOTS: dict[str, Plot] = {
    "two writers": {"A": writer("A", 4, times=2), "B": writer("B", 4, times=2)},
    "a writer, a collector and a reader": {
        "A": writer("A", 5),
        "collector": collector,
        "collector 2": collector,
        "reader": reader,
    },
    "one is killed, the other goes on": {
        "A": writer("A", 5),
        "killer": killer,
        "B": writer("B", 3, times=2),
        "collector": collector,
        "reader": reader,
    },
}

SHORT_PLOTS: dict[str, Plot] = {
    "two writers": {"A": writer("A", 1), "B": writer("B", 1)},
    "a writer and a collector": {"A": writer("A", 2), "collector": collector},
}

RIDES = {
    # making.INLINE_BYTES, objects.RIDE_BYTES, objects.MAX_RIDE_BYTES; a payload is 45 to 60 bytes
    "all ride, put behind at once": (1000, 0, 130),
    "all ride for long": (1000, 160, 200),
    "some ride": (SMALL, 0, 130),
    "none rides": (0, 0, 0),
}


def play(plot: Plot, chooser: Chooser, *, faults: int, patience: float = 1.0) -> Stage:
    """Play one run to its end; every law held all the time."""
    stage = Stage(chooser, faults=faults, patience=patience)
    for name, act in plot.items():
        stage.start(name, act)
    stage.run()
    return stage


@pytest.fixture(params=RIDES)
def riding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    inline, ride, most = RIDES[request.param]
    monkeypatch.setattr(making, "INLINE_BYTES", inline)
    monkeypatch.setattr(objects, "RIDE_BYTES", ride)
    monkeypatch.setattr(objects, "MAX_RIDE_BYTES", most)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)


@pytest.mark.usefixtures("riding")
@pytest.mark.parametrize("plot", PLOTS)
def test_the_laws_hold_in_random_runs(plot: str) -> None:
    told: set[object] = set()
    for seed in range(SEEDS):
        faults, patience = seed % 7, seed % 2 * 0.1
        try:
            stage = play(PLOTS[plot], RandomChooser(seed), faults=faults, patience=patience)
        except BaseException as error:
            error.add_note(f"{plot=} {seed=} {faults=} {patience=}")
            raise
        told |= {type(ask.told) for ask in stage.ledger.asked}
    assert told >= {Entry, type(None)}, "no save was acknowledged, or none was left in doubt"


@pytest.mark.usefixtures("riding")
@pytest.mark.parametrize("plot", SHORT_PLOTS)
def test_the_laws_hold_in_every_run_that_is_close_to_calm(plot: str) -> None:
    """All runs with at most two turns from the calm one.

    A turn is a preemption at a storage call, or a request that is lost, not
    answered, late, or sent twice.
    """
    assert explore(SHORT_PLOTS[plot], budget=2) > 400


def explore(plot: Plot, *, budget: int) -> int:
    """Play every run within the budget; return how many there were."""
    todo: list[tuple[int, ...]] = [()]
    runs = 0
    while todo:
        chooser = PathChooser(todo.pop())
        try:
            play(plot, chooser, faults=budget)
        except BaseException as error:
            error.add_note(f"path={[choice for choice, _ in chooser.taken]}")
            raise
        runs += 1
        todo += chooser.turnings(budget)
    return runs
