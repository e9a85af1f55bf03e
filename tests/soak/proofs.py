"""What is tried at random, cut into pieces that each follow from one seed.

Owns: `PROOFS`. Invariant: a piece of the same seed makes the same choices again, as far
as they are its own: how processes are scheduled is not.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Self

import pytest

from cloudckpt import making, objects, sweep
from tests.protocol.model import Model
from tests.protocol.processes import run_program
from tests.protocol.scheduler import RandomChooser
from tests.protocol.test_model import EXAMPLES, STEPS, InMemory, OnAFolder, explore
from tests.protocol.test_simulation import PLOTS, RIDES, play
from tests.servers.registry import PREPARES, Servers

Figures = Counter[str]
Piece = Callable[[int, float], Figures]
"""Tries what belongs to a seed, for about so many seconds at most; raises when a law is broken."""

LONGEST_CONTEST = 20.0


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

    def piece(seed: int, seconds: float) -> Figures:
        url, options = place(lab)
        span = max(2.0, min(LONGEST_CONTEST, seconds))
        return Counter(run_program("tests.protocol.histories.contest", url, options, seed, span))

    return piece


def model(machine: type[Model], _: Lab) -> Piece:
    """Any calls in any order beside an oracle; see `tests/protocol/model/`."""

    def piece(seed: int, _: float) -> Figures:
        before = Counter(Model.figures)
        explore(machine, seed=seed, examples=EXAMPLES[machine], steps=STEPS, shrink=True)
        return Model.figures - before

    return piece


class CountingChooser(RandomChooser):
    """Notes how many steps it has chosen."""

    steps = 0

    def who(self, options: int) -> int:
        self.steps += 1
        return super().who(options)


def simulation(_: Lab) -> Piece:
    """The core under a scheduler; see `tests/protocol/test_simulation.py`."""

    def piece(seed: int, _: float) -> Figures:
        figures: Figures = Counter()
        for ride in RIDES:
            with _riding(ride):
                for plot in PLOTS:
                    figures += _played(plot, ride, seed)
        return figures

    return piece


def _played(plot: str, ride: str, seed: int) -> Figures:
    chooser = CountingChooser(seed)
    faults, patience = seed % 7, seed % 2 * 0.1
    try:
        stage = play(PLOTS[plot], chooser, faults=faults, patience=patience)
    except BaseException as error:
        error.add_note(f"{plot=} {ride=} {seed=} {faults=} {patience=}")
        raise
    asked = stage.ledger.asked
    return Counter(
        {
            "runs": 1,
            "steps": chooser.steps,
            "saves": len(asked),
            "saves in doubt": sum(ask.told is None for ask in asked),
            "takeovers": len(stage.ledger.epochs),
        }
    )


@contextmanager
def _riding(ride: str) -> Iterator[None]:
    inline, least, most = RIDES[ride]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "INLINE_BYTES", inline)
        patch.setattr(objects, "RIDE_BYTES", least)
        patch.setattr(objects, "MAX_RIDE_BYTES", most)
        patch.setattr(sweep, "SWEEP_KEYS", 1)
        yield


PROOFS: dict[str, Callable[[Lab], Piece]] = {
    "histories-file": partial(histories, Lab.folder),
    "histories-seaweedfs": partial(histories, lambda lab: lab.server("seaweedfs")),
    "histories-minio": partial(histories, lambda lab: lab.server("minio")),
    "model-memory": partial(model, InMemory),
    "model-file": partial(model, OnAFolder),
    "simulation": simulation,
}
