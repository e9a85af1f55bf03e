"""Runs whose bytes a test may change from outside, as disks, networks and people do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cloudckpt import folding, keys, ledger, objects, runner
from cloudckpt.examine import ADVICE
from cloudckpt.format import decode_manifest
from cloudckpt.history import Filter, listed
from cloudckpt.model import Manifest, Page
from cloudckpt.pages import ledger_pages
from cloudckpt.run import Run
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol.scripted import AtOnce, no_sleep
from tests.protocol.windows import small_window

RUN = "nightly/42"
KEY = keys.manifest_key(RUN)
SAVES = 4
LONG = 30
ACTIONS = 40
_names = itertools.count()


class World:
    """A run whose checkpoints are objects, or all ride; its bytes can be changed from outside."""

    def __init__(self, *, large: bool) -> None:
        self._blob = 40_000 if large else 40
        self._storage = MemoryStorage(f"damage-{next(_names)}")
        self.store = Store(lambda: self._storage)
        with self.store.run(RUN) as run:
            for n in range(1, SAVES + 1):
                run.save(self.state(n))
        assert bool(self.manifest.inline) != large
        self._objects = {entry.seq: entry.extents[0].key for entry in self.manifest.checkpoints}

    @property
    def manifest(self) -> Manifest:
        return decode_manifest(self.at(KEY), RUN)

    def state(self, seq: int) -> dict[str, Any]:
        return {"n": seq, "blob": random.Random(seq).randbytes(self._blob)}

    @property
    def run(self) -> Run:
        """The run, as a process that knows nothing of it sees it."""
        return self.store.run(RUN)

    def object_of(self, seq: int) -> str:
        return self._objects[seq]

    def at(self, key: str) -> bytes:
        stored = by_hand(self._storage.read(key))
        assert stored is not None
        return stored.data

    def write(self, key: str, data: bytes | None) -> None:
        """Put other bytes in the key's place, or none, as nobody who keeps to the protocol does."""
        by_hand(self._storage.delete([key]))
        if data is not None:
            by_hand(self._storage.put(key, data))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Undo at the end what was written inside."""
        before = self.everything()
        try:
            yield
        finally:
            by_hand(self.store._core._sweeper.settle())  # or it would delete what is brought back
            for key in before.keys() | self.everything().keys():
                self.write(key, before.get(key))

    def everything(self) -> dict[str, bytes]:
        """Return all that is in the store."""
        return {row.key: self.at(row.key) for row in by_hand(self._storage.list("")).rows}


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def damages(data: bytes) -> Iterator[bytes]:
    """Yield some of what disks, networks and people do to bytes."""
    yield b""
    for at in (0, 1, len(data) // 2, len(data) - 1):
        yield data[:at]
        yield flipped(data, at, 0x20)
    for tail in (b"\0", b"\n", b" " * 512, data):
        yield data + tail
    yield data[1:]
    yield bytes(len(data))
    yield b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>"


@contextmanager
def small_pages() -> Iterator[None]:
    """Make the window three to five checkpoints, pages of a few, and all work aside done at once."""
    with pytest.MonkeyPatch.context() as patch:
        small_window(patch)
        patch.setattr(folding, "LEAF_ENTRIES", 4)
        patch.setattr(ledger, "WINDOW_BYTES", 1500)
        patch.setattr(ledger, "WINDOW_LEFT", 500)
        patch.setattr(objects, "RIDE_BYTES", 0)
        patch.setattr(runner, "_spawn_aside", AtOnce)
        patch.setattr(runner, "_sleep", no_sleep)
        yield


class LongWorld(World):
    """A run of `LONG` checkpoints, most of them in pages of three levels. Make it within `small_pages`."""

    def __init__(self) -> None:
        self._blob = 40_000
        self._storage = MemoryStorage(f"damage-{next(_names)}")
        self.store = Store(lambda: self._storage, keep_last=100)
        with self.store.run(RUN) as run:
            for n in range(1, LONG + 1):
                run.save(self.state(n), step=n, tags=["good"] if n == 4 else [])
        past = by_hand(listed(self.run.access.pages, self.manifest, Filter()))
        self._objects = {entry.seq: entry.extents[0].key for entry in past}
        assert {page.level for page in self.pages()} == {0, 1, 2}

    def pages(self) -> list[Page]:
        """Return every page of history, each before those in it."""
        found: list[Page] = []
        left = list(self.manifest.history)
        while left:
            found.append(left.pop(0))
            left = [*by_hand(self.run.access.pages.read(found[-1]))[1], *left]
        return found


def act(run: Run, *, large: bool) -> None:
    """Let an agent do `ACTIONS` things once; every other result is an object of its own if `large`."""
    for n in range(ACTIONS):
        run.once(f"pay-{n}", outcome, n, large=large and n % 2 == 0)


def outcome(n: int, *, large: bool) -> dict[str, Any]:
    return {"paid": n, "receipt": random.Random(n).randbytes(6000 if large else 6)}


class ActiveWorld(World):
    """A run with a ledger in pages of three levels. Make it within `small_pages`."""

    def __init__(self) -> None:
        self._storage = MemoryStorage(f"damage-{next(_names)}")
        self.store = Store(lambda: self._storage)
        with self.store.run(RUN) as run:
            act(run, large=True)
            run.save({"n": 1})
        by_hand(self.store._core._sweeper.settle())
        leaves, branches = by_hand(ledger_pages(self.run.access.pages, self.manifest))
        assert {page.level for page in branches} == {1, 2}
        self.ledger = [self.run.access.pages.key(page) for page in (*branches, *leaves)]
        self.results = [
            key for key in self.everything() if keys.is_object_of(key, RUN) and keys.is_result(key)
        ]
        assert len(self.results) == ACTIONS // 2
        self._objects = {}


@pytest.fixture(scope="module")
def long_world() -> LongWorld:
    with small_pages():
        return LongWorld()


@pytest.fixture
def world(long_world: LongWorld) -> Iterator[LongWorld]:
    with long_world.restored():
        yield long_world


def found(world: World, depth: int) -> list[tuple[str, int | None, str | None]]:
    """Return kind, seq and key of each problem; both doors must say the same."""
    report = world.run.verify(depth=depth)
    assert list(world.store.verify(RUN, depth=depth)) == [report]
    for problem in report.problems:
        assert problem.run == RUN
        assert problem.do == ADVICE[problem.kind]
    return [(problem.kind, problem.seq, problem.key) for problem in report.problems]
