"""A run with a long past in one store, and the store that it is copied to."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from cloudckpt import copying
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.protocol.past import RUN, World, state_of

_names = itertools.count()


class Pair:
    """A run with a long past in one store, and another store."""

    def __init__(self) -> None:
        self.world = World()
        self.world.store.run(RUN).hold("case 7", by="me", seq=2)
        self.world.store.run(RUN).annotate({"odd": True}, seq=3)
        self.there = MemoryStorage(f"copy-{next(_names)}")
        self.to = Store(lambda: self.there)

    def same(self) -> bool:
        here = self.world.store.run(RUN)
        copy = self.to.run(RUN)
        return [replace(one, inline=False) for one in copy.history()] == [
            replace(one, inline=False) for one in here.history()
        ] and copy.load() == here.load()


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that calls have numbers."""
    monkeypatch.setattr(copying, "AT_ONCE", 1)


def all_loads(pair: Pair) -> bool:
    copy = Store(lambda: pair.there).run(RUN)
    return all(copy.load(seq=one.seq) == state_of(one.seq) for one in copy.history())
