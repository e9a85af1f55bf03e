"""One store's engine, with its wrappers, and the runner that drives it.

Owns: what `Run` and `Store` share, and its end. Invariant: after a fork the child
works on an engine and a loop of its own, and never closes what the parent uses.
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from cloudckpt.access import Access
from cloudckpt.clock import Clock
from cloudckpt.effects import Effects
from cloudckpt.errors import ClosedError
from cloudckpt.late import Late
from cloudckpt.retention import Retention
from cloudckpt.runner import Runner, make_runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy, within
from cloudckpt.sweep import Sweeper

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures

    from cloudckpt import commit, settings
    from cloudckpt.objects import Objects
    from cloudckpt.storage import probe
else:  # a load by an engine that blocks needs none of them
    asyncio = Late("asyncio")
    commit = Late("cloudckpt.commit")
    futures = Late("concurrent.futures")
    probe = Late("cloudckpt.storage.probe")
    settings = Late("cloudckpt.settings")

T = TypeVar("T")

TEST_MODE = "CLOUDCKPT_CRASH_AT"
"""Environment variable that only `cloudckpt gauntlet` sets: the storage call at which to die, see
`crashtest/points.py`. The one that a store reads."""

EXIT_SECONDS = 10.0
"""An interpreter that ends waits no longer than this for a store that nobody closed."""


class Core:
    """Runs the protocol on one engine.

    Args:
        make: Makes the engine: once now, and again after a fork.
        timeout: Seconds from the beginning of a call for which what failed in passing is tried again.
        latency: Seconds added before every request.
        clock: Where times come from.
        probed: True when the store needs no probe.
        rides: Whether small payloads ride in the pointer, see `RunWriter`.
    """

    def __init__(
        self,
        make: Callable[[], Storage],
        *,
        timeout: float,
        latency: float,
        clock: Clock,
        probed: bool,
        rides: bool = True,
    ) -> None:
        self._make = make
        self._policy = RetryPolicy(deadline=timeout)
        self._latency = latency
        self._probed = probed
        self._rides = rides
        self._settings: settings.Settings | None = None  # for runs that begin here; read once
        engine = make()
        self.url = engine.url
        self._runner = make_runner(blocking=engine.blocking, clock=clock)
        self._take(engine)
        self.closed = False
        _cores.add(self)

    @property
    def effects(self) -> Effects:
        """Time, chance and concurrency."""
        return self._runner.effects

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the protocol and wait for it."""
        self.check_open(work)
        with within(self._policy, self.effects):
            return self._runner.call(work)

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the protocol and await it."""
        self.check_open(work)
        with within(self._policy, self.effects):
            return await self._runner.acall(work)

    def writer(self, run_id: str, *, rules: Retention | None) -> commit.RunWriter:
        """Return a new claim to write a run."""
        writer = commit.RunWriter(
            self.storage,
            self.effects,
            run_id,
            rules=rules,
            policy=self._policy,
            prepare=self.prepare,
            sweeper=self._sweeper,
            rides=self._rides,
        )

        self._objects.add(writer.objects)
        return writer

    def access(self, run_id: str) -> Access:
        """Return a run as an operator has it."""
        return Access(self.storage, self.effects, run_id, self._policy, self._sweeper)

    async def prepare(self) -> Retention | None:
        """Probe the store before a run's first manifest is created; return the store's own rules.

        Raises:
            UnsupportedStoreError: It does not keep what it promises.
        """
        if not self._probed:
            await probe.ensure_probed(self.storage, self.effects)
            self._probed = True
        if self._settings is None:
            self._settings = await settings.read_settings(self.storage)
        return self._settings.retention

    def close(self, *, timeout: float | None = None) -> None:
        """Let what runs started aside end, and close the engine. Safe to call twice."""
        if not self.closed:
            self.closed = True
            if self._runner.abandoned:
                futures.wait(self._runner.abandoned, timeout)
            with within(self._policy, self.effects):
                self._runner.call(self._end(), timeout=timeout)

    async def aclose(self) -> None:
        """`close`, awaited."""
        if not self.closed:
            self.closed = True
            if self._runner.abandoned:
                await asyncio.to_thread(futures.wait, self._runner.abandoned)
            with within(self._policy, self.effects):
                await self._runner.acall(self._end())

    async def _end(self) -> None:
        for objects in list(self._objects):
            await objects.settle()
        await self._sweeper.settle()
        self._dropped.detach()
        await self.storage.close()

    def check_open(self, work: Coroutine[Any, Any, Any] | None = None) -> None:
        """Raise `ClosedError` after the end; `work` is then let go."""
        if self.closed:
            if work is not None:
                work.close()
            raise ClosedError("the store was closed; open it again", url=self.url)

    def renew(self) -> None:
        """Take an engine of this process's own, in the child after a fork."""
        self._dropped.detach()
        self._inherited = self.storage  # kept, so that it never closes what the parent uses
        self._take(self._make())

    def _take(self, engine: Storage) -> None:
        # Connections must be closed on their own loop, also when nobody calls `close`.
        self._dropped = weakref.finalize(self, _close_dropped, self._runner, engine)
        self._dropped.atexit = False  # see `_close_open`
        if TEST_MODE in os.environ:  # by name: the product knows no test code
            engine = importlib.import_module("cloudckpt.crashtest.points").wrapped(engine)
        if self._latency:
            engine = LatencyStorage(engine, self._latency, self.effects)
        self.storage: Storage = RetryingStorage(engine, self._policy, self.effects)
        self._sweeper = Sweeper(self.storage, self.effects)
        self._objects: weakref.WeakSet[Objects] = weakref.WeakSet()  # one with a put under way lives


def _close_dropped(runner: Runner, engine: Storage) -> None:
    runner.start(engine.close())


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork() -> None:
    for core in list(_cores):
        core.renew()


os.register_at_fork(after_in_child=_after_fork)


def _close_open() -> None:
    """Let what was started aside end, and close connections before the interpreter goes."""
    for core in list(_cores):
        with suppress(TimeoutError):  # what is left aside is no loss, see `Objects.settle`
            core.close(timeout=EXIT_SECONDS)


# `atexit` comes too late: by then the thread pools, which engines need, take no more work.
getattr(threading, "_register_atexit", atexit.register)(_close_open)
