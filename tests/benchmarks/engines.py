"""The engines at no latency, each with its bare conditional write beside the saves of its runs.

Owns: which engines there are and where each has its place. The bare write is what
a small save comes down to: `replace` of the engine object that the store uses, with
the bytes of a run's manifest. It is timed where the engine runs (on the IO loop, or
on the calling thread), so that no hop to that place is in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import cloudckpt
from cloudckpt import keys
from cloudckpt.clock import SystemClock
from cloudckpt.runner import Runner, make_runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from tests.benchmarks.lab import Lab
from tests.servers.base import Unavailable

STATE = 2048
"""Bytes of a state; random, so that ten of them ride in each manifest."""

FILLED = 12
"""Saves until a manifest has its full length."""


@dataclass(frozen=True, slots=True)
class Place:
    """A new store for one engine.

    Attributes:
        label: Engine and server, for people.
        engine: Its name.
        url: The store's.
        options: Its storage options.
    """

    label: str
    engine: str
    url: str
    options: Mapping[str, Any] | None = None


def places(lab: Lab, say: Callable[[str], None]) -> Iterator[Place]:
    """Yield a place for each engine that can run here.

    Args:
        lab: Where.
        say: Told which can't, and why.
    """
    yield Place("file", "file", str(lab.folder()))
    kinds = {
        ("boto3", "obstore", "s3fs"): (lab.server, "MinIO"),
        ("gcsfs",): (lab.google, "fake-gcs-server"),
    }
    for engines, (start, name) in kinds.items():
        try:
            server = start()
        except Unavailable as error:
            say(f"{', '.join(engines)} skipped: {error}")
            continue
        for engine in engines:
            url = f"{server.url}/{lab.name()}"
            yield Place(f"{engine} on {name}", engine, url, server.storage_options())


class Bare:
    """The engine's conditional write of the same bytes, over and over."""

    def __init__(self, engine: Storage, key: str, data: bytes, token: str) -> None:
        self._engine = engine
        self._key = key
        self._data = data
        self._token = token

    async def __call__(self) -> None:
        self._token = await self._engine.replace(self._key, self._data, self._token)


class Bench(AbstractContextManager["Bench"]):
    """A store in a place, and the engine object that it uses.

    Attributes:
        runner: Runs the bare calls where the store's runner runs them too.
    """

    runner: Runner

    def __init__(self, place: Place) -> None:
        self.engine = engine_for(place.url, storage_options=place.options, engine=place.engine)()
        self.store = cloudckpt.Store(lambda: self.engine)
        self.runner = make_runner(blocking=self.engine.blocking, clock=SystemClock())
        self.state = os.urandom(STATE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()

    def filled(self, run_id: str) -> cloudckpt.Run:
        """Return a run whose manifest has its full length."""
        run = self.store.run(run_id)
        for _ in range(FILLED):
            run.save(self.state)
        return run

    def bare(self, run_id: str) -> Bare:
        """Return the bare write of a run's manifest, under a key of its own."""
        found = self.runner.call(self.engine.read(keys.manifest_key(run_id)))
        if found is None:
            raise RuntimeError("the manifest is not where it should be")
        key = f"bare/{run_id}"
        return Bare(self.engine, key, found.data, self.runner.call(self.engine.create(key, found.data)))

    def seconds(self, bare: Bare) -> float:
        """Return how long a bare write takes where the engine runs."""
        return self.runner.call(awaited(bare))


async def awaited(work: Callable[[], Awaitable[object]]) -> float:
    """Return how long a call takes that is awaited."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start
