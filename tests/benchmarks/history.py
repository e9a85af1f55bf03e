"""A run that keeps every checkpoint: what its manifest weighs, and what it takes to find one.

The saves are real ones, one after the other, on the engine in memory; requests are counted
where the engine is asked, so they are the same on every store.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

import cloudckpt
from cloudckpt.storage.contract import Data, Storage, Token
from cloudckpt.storage.memory import MemoryStorage
from tests.benchmarks.counting import Counting
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table

RUN = "long"
LENGTHS = (1_000, 10_000, 100_000)
QUICK = (500, 5_000)
MOST_MANIFEST = 32
"""KiB of a manifest, without the payloads that ride in it."""

LAST = 300
"""Saves in which each group of pages is made anew at least once."""

_RIDING = re.compile(rb'"inline":\{[^}]*\}')


class Weighing(Counting):
    """An engine that also weighs the manifests that are written to it.

    Attributes:
        heaviest: Bytes of the largest so far, without the payloads that rode in it.
        laden: Bytes of the largest so far, with them.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.heaviest = 0
        self.laden = 0

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        self.heaviest = max(self.heaviest, without_riders(bytes(data)))
        self.laden = max(self.laden, len(data))
        return await super().replace(key, data, token)


def without_riders(manifest: bytes) -> int:
    """Return the bytes of a manifest whose checkpoints have no metadata, less its riding payloads."""
    return len(_RIDING.sub(b'"inline":{}', manifest))


def run(lab: Lab) -> Iterator[Table]:
    engine = Weighing(MemoryStorage(lab.name()))
    weights = Table(
        "a run that keeps every checkpoint",
        ("manifest at most", "with riders", "puts a save", "pages", "saves a second"),
        (
            "states of some 200 bytes; at most: of all saves so far, without the payloads that ride",
            "puts: payloads and pages of history, besides the one write of the manifest",
        ),
    )
    finding = Table(
        "requests to find a checkpoint in a run that keeps every one",
        (
            "load newest",
            "history(limit=20), at most",
            "load(seq=)",
            "load(step=)",
            "load(tag=)",
            "of a time",
            "tag",
            "pages put",
        ),
        (
            f"counted where the engine is asked; at most: after each of the last {LAST} saves",
            "seq, step, tag and time (of 100 saves) are in the middle",
            "tag: reads on the way to an old checkpoint; pages put: what it makes anew before the manifest",
        ),
    )
    retention = cloudckpt.Retention(keep_last=1 << 30)
    with cloudckpt.Store(lambda: engine, retention=retention, probed=True) as store:
        made = 0
        for length in QUICK if lab.quick else LENGTHS:
            engine.taken()
            start = time.monotonic()
            with store.run(RUN) as run:
                for number in range(made, length - LAST):
                    run.save(_state(number), step=number)
                rate = (length - LAST - made) / (time.monotonic() - start)
                puts = engine.taken()["put"] / (length - LAST - made)
                most = 0
                for number in range(length - LAST, length):
                    run.save(_state(number), step=number)
                    engine.taken()
                    store.run(RUN).history(limit=20)
                    most = max(most, engine.taken()["read"])
            made = length
            weights.add(
                f"{length:,} saves",
                Figure(engine.heaviest / 1024, " KiB", MOST_MANIFEST),
                Figure(engine.laden / 1024, " KiB"),
                Figure(puts),
                Figure(_pages(store, engine)),
                Figure(rate, "/s"),
            )
            finding.add(f"{length:,} saves", *_requests(store, engine, length, most))
    yield weights
    yield finding


def _state(number: int) -> dict[str, object]:
    return {"step": number, "notes": f"{number} was looked at. " * 8}


def _pages(store: cloudckpt.Store, engine: Counting) -> int:
    """Return how many history objects the run has in all: what is read to walk through it."""
    store.run(RUN).verify()
    return engine.taken()["read"] - 1


def _requests(store: cloudckpt.Store, engine: Counting, length: int, few: int) -> list[Figure]:
    """Return what it takes to find checkpoints, each by a run object that knows nothing yet."""
    middle = length // 2
    since, until = (store.run(RUN).find(seq=seq).time for seq in (middle - 100, middle))
    store.run(RUN).tag(f"good {length}", seq=middle)
    engine.taken()

    def reads(work: Callable[[cloudckpt.Run], object], most: int | None = None) -> Figure:
        work(store.run(RUN))
        found = engine.taken()
        if found.keys() - {"read"}:
            raise RuntimeError(f"finding takes more than reads: {found}")
        return Figure(found["read"], "", most)

    figures = [
        reads(lambda run: _is(run.load(), length - 1), 1),
        Figure(few, "", 2),
        reads(lambda run: _is(run.load(seq=middle), middle - 1)),
        reads(lambda run: _is(run.load(step=middle), middle)),
        reads(lambda run: _is(run.load(tag=f"good {length}"), middle - 1)),
        reads(partial(_of_a_time, since=since, until=until)),
    ]
    store.run(RUN).tag("old", seq=middle + 1)
    found = engine.taken()
    return [*figures, Figure(found["read"]), Figure(found["put"])]


def _is(state: dict[str, object], number: int) -> None:
    if state != _state(number):
        raise RuntimeError(f"this is not state {number}")


def _of_a_time(run: cloudckpt.Run, since: datetime, until: datetime) -> None:
    if len(run.history(since=since, until=until)) != 100:
        raise RuntimeError("a time that has 100 saves has others")
