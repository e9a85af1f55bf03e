"""Leases and claims under the scheduler: safety never rests on them, and one worker gets a run."""

from __future__ import annotations

import pytest

from cloudckpt import making, sweep
from tests.protocol.paying import Payday
from tests.protocol.scheduler import RandomChooser
from tests.protocol.stage import Stage, collector, killer, reader
from tests.protocol.workers import claimants, worker

SEEDS = 100

PLOTS = {
    "two workers": {"A": worker("A", 3), "B": worker("B", 3)},
    "a worker, a collector and a reader": {"A": worker("A", 4), "collector": collector, "reader": reader},
    "one is killed, the other takes over": {
        "A": worker("A", 4),
        "killer": killer,
        "B": worker("B", 3),
        "collector": collector,
    },
    "one takes the run from the other": {"A": worker("A", 3), "B": worker("B", 3, busy="take")},
}


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("inline", [1000, 0])
def test_the_laws_hold_under_leases(plot: str, inline: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal is a commit beside the saves: it may cross a collector's fence, be lost, or land late."""
    monkeypatch.setattr(making, "INLINE_BYTES", inline)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    for seed in range(SEEDS):
        stage = Stage(RandomChooser(seed), faults=seed % 7, patience=seed % 2 * 0.1)
        for name, act in PLOTS[plot].items():
            stage.start(name, act)
        try:
            stage.run()
        except BaseException as error:
            error.add_note(f"seed={seed}")
            raise


def test_a_run_is_claimed_by_one_of_several_workers() -> None:
    """Also when it has ended before the slower one looks again, and then is free of any lease."""
    shared = 0
    for seed in range(SEEDS):
        got = claimants(seed)
        assert sorted(run for run, _ in got) == ["r0", "r1", "r2"], f"seed={seed}"
        shared += len({name for _, name in got}) > 1
    assert shared > SEEDS / 4, "the workers hardly met"


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_each_run_is_claimed_paid_for_once_and_ended_whatever_is_lost(deaths: int) -> None:
    """A claim that lands without its worker, or whose worker dies in it, leaves a run that others get."""
    for seed in range(SEEDS // 2):
        day = Payday(seed, faults=seed % 9, deaths=deaths, patience=seed % 2 * 0.3)
        try:
            day.play()
            day.check()
        except BaseException as error:
            error.add_note(f"{seed=}")
            raise
