"""Operators beside agents in every order that a seed comes upon, over a network that fails.

The laws are held after each step that wrote, and what each was told in the end.
"""

from __future__ import annotations

import pytest

from tests.protocol.operators import PLOTS, Operated
from tests.protocol.plots import RIDES, riding
from tests.protocol.scheduler import RandomChooser

SEEDS = 6
"""Of each plot and each share of riding payloads."""


def play(plot: str, ride: str, seed: int) -> Operated:
    """Play one run of a plot, all of it by a seed; return its stage."""
    acts = PLOTS[plot]
    alone = not acts.keys() & {"B", "roller", "repairer"}
    stage = Operated(RandomChooser(seed), faults=seed % 4 * 2, patience=seed % 3 * 0.5, alone=alone)
    try:
        with riding(ride):
            for name, act in acts.items():
                stage.start(name, act)
            manifest = stage.run()
        if manifest is not None:
            stage.check(manifest)
    except BaseException as error:
        error.add_note(f"{plot=} {ride=} {seed=}")
        raise
    return stage


@pytest.mark.parametrize("ride", RIDES)
@pytest.mark.parametrize("plot", PLOTS)
def test_what_operators_and_agents_are_told_stands(plot: str, ride: str) -> None:
    stages = [play(plot, ride, seed) for seed in range(SEEDS)]
    assert any(stage.done for stage in stages), "nothing was done once"
    assert any(stage.tags for stage in stages), "nothing was tagged"
    if plot in ("a hold", "a hold on all"):
        assert any(stage.holds or stage.whole for stage in stages), "nothing was held"
