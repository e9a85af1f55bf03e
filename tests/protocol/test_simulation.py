"""The real core under a scheduler of our own, one run after the other: by a seed, and drawn by Hypothesis.

The laws are held after each step that wrote. A failing run names its seed, or all of its
choices, and `play` with the same ones replays it step by step. Every run of smaller plots is in
`test_exhaustive.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudckpt.model import Entry
from tests.protocol.plots import RANDOM, RIDES, riding
from tests.protocol.scheduler import NumberChooser, RandomChooser
from tests.protocol.stage import Act, Plot, Stage, collector, deleter, killer, loader, reader, writer

SEEDS = 100
"""Of each plot and each share of riding payloads."""

EXAMPLES = 200


@pytest.mark.parametrize("ride", RIDES)
@pytest.mark.parametrize("plot", RANDOM)
def test_the_laws_hold_in_random_runs(plot: str, ride: str) -> None:
    told: set[object] = set()
    for seed in range(SEEDS):
        told |= {type(ask.told) for ask in play_seed(plot, ride, seed)[0].ledger.asked}
    assert told >= {Entry, type(None)}, "no save was acknowledged, or none was left in doubt"


def play_seed(plot: str, ride: str, seed: int) -> tuple[Stage, int]:
    """Play one run of a plot, all of it by a seed; return its stage, and how many steps it took."""
    faults, patience = seed % 7, seed % 2 * 0.1
    chooser = RandomChooser(seed)
    stage = Stage(chooser, faults=faults, patience=patience)
    try:
        with riding(ride):
            play(RANDOM[plot], stage)
    except BaseException as error:
        error.add_note(f"{plot=} {ride=} {seed=} {faults=} {patience=}")
        raise
    return stage, chooser.steps


def play(plot: Plot, stage: Stage) -> None:
    """Play one run to its end; every law held all the time."""
    for name, act in plot.items():
        stage.start(name, act)
    stage.run()


@st.composite
def plots(draw: st.DrawFn) -> Plot:
    """Draw who acts: more of them, and for longer, than one could play every run of."""
    saves, times = st.integers(1, 6), st.integers(1, 3)
    plot: dict[str, Act] = {
        name: draw(
            st.builds(writer, st.just(name), saves, times=times)
        )  # so that it is shown as it is called
        for name in "ABCD"[: draw(st.integers(1, 4))]
    }
    others = {
        "reader": reader,
        "reader 2": loader(3),
        "collector": collector,
        "collector 2": collector,
        "deleter": deleter,
        "killer": killer,
    }
    chosen = draw(st.sets(st.sampled_from(sorted(others))))
    return plot | {name: others[name] for name in sorted(chosen)}


@given(
    plot=plots(),
    ride=st.sampled_from(sorted(RIDES)),
    keep_last=st.integers(1, 4),
    patience=st.sampled_from([0.0, 0.03, 0.1, 1.0]),
    numbers=st.lists(st.integers(0, 40), max_size=400),
)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_the_laws_hold_in_runs_that_hypothesis_draws(
    plot: Plot, ride: str, keep_last: int, patience: float, numbers: list[int]
) -> None:
    """What fails becomes the fewest and smallest choices that still fail."""
    stage = Stage(NumberChooser(numbers), faults=len(numbers), patience=patience, keep_last=keep_last)
    with riding(ride):
        play(plot, stage)
