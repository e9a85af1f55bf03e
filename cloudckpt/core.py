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
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from cloudckpt.access import Access
from cloudckpt.clock import Clock
from cloudckpt.effects import Effects
from cloudckpt.errors import ClosedError, CloudckptError
from cloudckpt.late import Late
from cloudckpt.leases import NO_LEASE, Sightings, Terms
from cloudckpt.model import CheckpointInfo, Entry, Manifest
from cloudckpt.retention import Retention
from cloudckpt.runner import Runner, make_runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy, within
from cloudckpt.sweep import Sweeper

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures

    from cloudckpt import background, commit, pending, settings
    from cloudckpt.objects import Objects
    from cloudckpt.storage import probe
else:  # a load by an engine that blocks needs none of them
    asyncio = Late("asyncio")
    background = Late("cloudckpt.background")
    commit = Late("cloudckpt.commit")
    futures = Late("concurrent.futures")
    pending = Late("cloudckpt.pending")
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

    Attributes:
        left: Work that is seen through without its caller, who was cancelled.
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
        engine = make()
        self.url = engine.url
        self._runner = make_runner(blocking=engine.blocking, clock=clock)
        self.sightings = Sightings(clock)
        self._take(engine)
        self.closed = False  # from when that was asked for
        self._has_ended = False
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

    def saver(
        self, commit: Callable[[Any], Coroutine[Any, Any, CheckpointInfo]], *, of: str
    ) -> background.Saver[Any]:
        """Return what makes the saves of a run behind their caller, each with a deadline of its own."""
        _close_open_before_pools()
        saver: background.Saver[Any] = background.Saver(
            lambda work: self._timed(commit(work)), self._runner.aside, of=of
        )
        self._savers.add(saver)
        return saver

    def aside(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Let a coroutine of the protocol run behind its caller; return what to wait for."""
        return self._runner.aside(self._timed(work))

    def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """As `call`, of what must be noted whatever becomes of saves that are pending, see `paced.py`."""
        return self.call(work)

    async def asee_through(self, work: Coroutine[Any, Any, T]) -> T:
        """`see_through`, awaited; it goes on to its end also when its caller is cancelled."""
        self.check_open(work)
        ended = self.aside(work)
        try:
            await pending.until([ended])
        except BaseException:
            self.leave(ended)
            raise
        return ended.result()

    def leave(self, ended: futures.Future[Any]) -> None:
        """Let work go on whose caller is gone."""
        self.left.add(ended)
        ended.add_done_callback(self.left.discard)

    def pause(self, seconds: float) -> None:
        """Wait between two calls, and not within one: it has no part in their deadlines."""
        self.call(_slept(self.effects, seconds))

    async def apause(self, seconds: float) -> None:
        """`pause`, awaited: on the caller's loop, since a thread that sleeps can't be cancelled."""
        self.check_open()
        await asyncio.sleep(seconds)

    async def _timed(self, work: Coroutine[Any, Any, T]) -> T:
        with within(self._policy, self.effects):
            return await work

    def writer(
        self,
        run_id: str,
        *,
        rules: Retention | None,
        terms: Terms = NO_LEASE,
        saved: Callable[[Manifest, Entry], object] | None = None,
    ) -> commit.RunWriter:
        """Return a new claim to write a run; see `RunWriter` for the arguments."""
        writer = commit.RunWriter(
            self.storage,
            self.effects,
            run_id,
            rules=rules,
            policy=self._policy,
            prepare=self.prepare,
            sweeper=self._sweeper,
            rides=self._rides,
            terms=terms,
            sightings=self.sightings,
            saved=saved,
        )

        self._objects.add(writer.objects)
        self._writers.add(writer)
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
        return (await settings.read_settings(self.storage)).retention  # each time: others may set them

    def close(self, *, timeout: float | None = None) -> None:
        """Let what runs started aside end, and close the engine. Safe to call twice.

        One that was interrupted or cancelled is gone on with by the next call, or by the interpreter's end.

        Raises:
            CloudckptError: Why a save that was behind its caller is not durable.
        """
        if not self._has_ended:
            self.closed = True
            failure = background.end_all(self._savers, timeout) if self._savers else None
            try:
                if left := [*self._runner.abandoned, *self.left]:
                    futures.wait(left, timeout)
                with within(self._policy, self.effects):
                    self._runner.call(self._end(), timeout=timeout)
            finally:
                if failure is not None:
                    raise failure

    async def aclose(self) -> None:
        """`close`, awaited."""
        if not self._has_ended:
            self.closed = True
            failure = await background.aend_all(self._savers) if self._savers else None
            try:
                await pending.until([*self._runner.abandoned, *self.left])
                with within(self._policy, self.effects):
                    await self._runner.acall(self._end())
            finally:
                if failure is not None:
                    raise failure

    async def _end(self) -> None:
        try:
            for writer in list(self._writers):
                await writer.release()
            for objects in list(self._objects):
                await objects.settle()
            await self._sweeper.settle()
            self._dropped.detach()
            await self.storage.close()
        except Exception:
            self._has_ended = True  # as well as it could
            raise
        self._has_ended = True

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
        self._writers: weakref.WeakSet[commit.RunWriter] = weakref.WeakSet()
        self._objects: weakref.WeakSet[Objects] = weakref.WeakSet()  # one with a put under way lives
        self._savers: weakref.WeakSet[background.Saver[Any]] = weakref.WeakSet()  # so does a busy one
        self.left: set[futures.Future[Any]] = set()


async def _slept(effects: Effects, seconds: float) -> None:
    await effects.sleep(seconds)


def _close_dropped(runner: Runner, engine: Storage) -> None:
    runner.start(engine.close())


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork() -> None:
    for core in list(_cores):
        core.renew()


os.register_at_fork(after_in_child=_after_fork)


def _close_open() -> None:
    """Let what was started aside end, and close connections before the interpreter goes."""
    failures = []
    for core in list(_cores):
        try:
            with suppress(TimeoutError):  # what is left aside is no loss, see `Objects.settle`
                core.close(timeout=EXIT_SECONDS)
        except CloudckptError as error:
            failures.append(error)
    if failures:  # the interpreter shows it: its exit code is settled by now
        raise failures[0]


def _close_open_at_exit() -> None:
    # `atexit` comes too late: by then the thread pools, which engines need, take no more work.
    getattr(threading, "_register_atexit", atexit.register)(_close_open)


@cache
def _close_open_before_pools() -> None:
    """See to it that pools take work while the last saves are made: who registers last comes first."""
    importlib.import_module("concurrent.futures.thread")
    with suppress(RuntimeError):  # the interpreter is ending already
        _close_open_at_exit()


_close_open_at_exit()
