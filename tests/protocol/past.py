"""A run with a long past in memory, and what its clients were told.

Owns: the run, its saves, and the fixture that makes its window so small that the past is in pages.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cloudckpt import folding, objects, runner, sweep
from cloudckpt.model import CheckpointInfo
from cloudckpt.retention import Retention
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol.scripted import no_sleep
from tests.protocol.windows import small_window

RUN = "r"
SAVES = 30
TAGGED = 4
RULES = Retention(keep_last=100)
_names = itertools.count()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the window three to five checkpoints, and pages of a few."""
    small_window(monkeypatch)
    monkeypatch.setattr(folding, "LEAF_ENTRIES", 4)
    monkeypatch.setattr(folding, "SLACK", 4)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    monkeypatch.setattr(objects, "RIDE_BYTES", 150)
    monkeypatch.setattr(runner, "_sleep", no_sleep)


def state_of(step: int) -> dict[str, Any]:
    return {"step": step}


class World:
    """A run with a long past, in memory, and what its clients were told."""

    def __init__(self, saves: int = SAVES, rules: Retention = RULES) -> None:
        self.inner = MemoryStorage(f"history-{next(_names)}")
        self.rules = rules
        self.ledger = Ledger(keep_last=rules.keep_last or 1)
        self.store = self.open(self.inner)
        with self.store.run(RUN) as run:
            self.ledger.took_over(run.epoch)
            for step in range(1, saves + 1):
                save(self, run, step)

    def open(self, storage: Any) -> Store:
        return Store(lambda: storage, retention=self.rules, timeout=1)

    def check(self) -> Any:
        return by_hand(check_laws(self.inner, RUN, self.ledger))

    def seqs(self) -> list[int]:
        return [one.seq for one in self.store.run(RUN).history()]


def save(world: World, run: Any, step: int) -> CheckpointInfo:
    with world.ledger.asking(state_of(step)) as told:
        info: CheckpointInfo = run.save(state_of(step), tags=["good"] if step == TAGGED else [])
        told(info)
    return info
