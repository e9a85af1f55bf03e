"""What is tried at random, cut into pieces that each follow from one seed.

Owns: `PROOFS`. Invariant: a piece of the same seed makes the same choices again, as far
as they are its own: how processes are scheduled is not.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from tests.protocol.explore import MANY, Found
from tests.protocol.explore import explore as every_run
from tests.protocol.model import Model
from tests.protocol.plots import EXHAUSTIVE, RANDOM, RIDES, riding
from tests.protocol.processes import run_program
from tests.protocol.test_model import EXAMPLES, STEPS, InMemory, OnAFolder, explore
from tests.protocol.test_simulation import play_seed
from tests.servers.registry import PREPARES, Servers

Figures = Counter[str]
Tell = Callable[[Figures], None]
Piece = Callable[[int, float, Tell], Figures]
"""Tries what belongs to a seed, for about so many seconds at most; raises when a law is broken.

One that takes long tells meanwhile how far it is.
"""

LONGEST_CONTEST = 20.0
PATIENCE = (0.0, 0.03, 0.1)
MOST_STATES = 8_000_000  # which take about 2 GB


class Lab:
    """What the proofs run on, each started when first asked for and gone at the end."""

    def __init__(self) -> None:
        self._servers = Servers()
        self._ends = ExitStack()
        self._ends.callback(self._servers.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def folder(self) -> tuple[str, dict[str, Any]]:
        """Return the URL of a new folder, and its options."""
        path = tempfile.mkdtemp(prefix="cloudckpt-soak-")
        self._ends.callback(shutil.rmtree, path, ignore_errors=True)
        return f"file://{path}", {}

    def server(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return a new URL on a server, and its options.

        Raises:
            Unavailable: It can't run here.
        """
        if name in PREPARES:
            PREPARES[name](print)
        server = self._servers.get(name)
        return f"{server.url}/{secrets.token_hex(4)}", server.storage_options()


def histories(place: Callable[[Lab], tuple[str, dict[str, Any]]], lab: Lab) -> Piece:
    """Processes that are killed and stopped; see `tests/protocol/histories/`."""
    place(lab)  # so that a server which can't run is told at once

    def piece(seed: int, seconds: float, _: Tell) -> Figures:
        url, options = place(lab)
        span = max(2.0, min(LONGEST_CONTEST, seconds))
        return Counter(run_program("tests.protocol.histories.contest", url, options, seed, span))

    return piece


def model(machine: type[Model], _: Lab) -> Piece:
    """Any calls in any order beside an oracle; see `tests/protocol/model/`."""

    def piece(seed: int, _: float, __: Tell) -> Figures:
        before = Counter(Model.figures)
        explore(machine, seed=seed, examples=EXAMPLES[machine], steps=STEPS, shrink=True)
        return Model.figures - before

    return piece


def simulation(_: Lab) -> Piece:
    """The core under a scheduler; see `tests/protocol/test_simulation.py`."""

    def piece(seed: int, _: float, __: Tell) -> Figures:
        figures: Figures = Counter()
        for ride in RIDES:
            for plot in RANDOM:
                stage, steps = play_seed(plot, ride, seed)
                asked = stage.ledger.asked
                figures += Counter(
                    {
                        "runs": 1,
                        "steps": steps,
                        "saves": len(asked),
                        "saves in doubt": sum(ask.told is None for ask in asked),
                        "takeovers": len(stage.ledger.epochs),
                    }
                )
        return figures

    return piece


def exhaustive(_: Lab) -> Piece:
    """Every run of a few processes, see `tests/protocol/explore.py`: one plot after the other.

    The plots that are left share what is left of the time. Nothing here is random: later seeds
    only go through the same plots again, with processes that are more patient.
    """
    plots = [(plot, ride) for plot in EXHAUSTIVE for ride in RIDES]
    left: list[tuple[str, str]] = []

    def piece(seed: int, seconds: float, tell: Tell) -> Figures:
        left[:] = left or plots
        share = seconds / len(left)
        plot, ride = left.pop(0)
        bounds = EXHAUSTIVE[plot]
        name = f"{plot}, {ride}"
        with riding(ride):
            found = every_run(
                bounds.plot,
                faults=MANY,
                patience=PATIENCE[seed // len(plots) % len(PATIENCE)],
                keep_last=bounds.keep_last,
                epochs=bounds.epochs,
                seconds=share,
                most=MOST_STATES,
                tell=lambda one: tell(Counter({f"states of {name}": one.states})),
            )
        return _told(name, found)

    return piece


def _told(name: str, found: list[Found]) -> Figures:
    last = found[-1]
    complete = [one.faults for one in found if one.complete]
    if last.finished:
        how = "all of them"
    else:
        how = f"all with up to {complete[-1]} faults" if complete else "not all of them"
    return Counter(
        {
            f"states of {name}: {how}": last.states,
            "states": last.states,
            "steps": last.steps,
            "moments": last.moments,
        }
    )


PROOFS: dict[str, Callable[[Lab], Piece]] = {
    "histories-file": partial(histories, Lab.folder),
    "histories-seaweedfs": partial(histories, lambda lab: lab.server("seaweedfs")),
    "histories-minio": partial(histories, lambda lab: lab.server("minio")),
    "model-memory": partial(model, InMemory),
    "model-file": partial(model, OnAFolder),
    "simulation": simulation,
    "exhaustive": exhaustive,
}
