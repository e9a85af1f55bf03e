"""A store: where runs live.

Owns: the engine with its wrappers, the runner, and their end. Invariant: a
store that is used after a fork works on an engine and a loop of the child's own.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from cloudckpt.clock import Clock, SystemClock
from cloudckpt.commit import RunWriter
from cloudckpt.effects import Effects
from cloudckpt.errors import ClosedError, InvalidInputError
from cloudckpt.load import list_runs
from cloudckpt.model import RunInfo
from cloudckpt.retention import KEEP_LAST, check_keep_last
from cloudckpt.run import Run
from cloudckpt.runner import make_runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.probe import ensure_probed
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy

T = TypeVar("T")

TIMEOUT = 60.0


def open(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    engine: str | None = None,
    keep_last: int = KEEP_LAST,
    timeout: float = TIMEOUT,
    latency: float = 0.0,
    clock: Clock | None = None,
    unsafe_single_writer: bool = False,
) -> Store:
    """Open a store. Nothing is read or written yet.

    Args:
        url: ``s3://bucket/prefix``, ``file:///folder`` or a plain path, ``memory://name``.
        storage_options: fsspec's own options for the file system (such as `key`, `secret`,
            `profile`, `endpoint_url`, `client_kwargs` for s3fs).
        engine: Name of the engine, where a URL has more than one.
        keep_last: How many of a run's newest checkpoints are kept, from 1.
        timeout: Seconds for which a request that failed in passing is tried again.
        latency: Seconds added before every request, to try out a far store.
        clock: Where times come from; safety never depends on it.
        unsafe_single_writer: Take any other fsspec protocol, whose writes are not
            conditional, on your promise that a run never has two writers.

    Raises:
        InvalidInputError: An argument is not usable.
        UnsupportedStoreError: No engine serves this URL, or its package is missing.
    """
    make = engine_for(
        url, storage_options=storage_options, engine=engine, unsafe_single_writer=unsafe_single_writer
    )
    return Store(
        make,
        keep_last=keep_last,
        timeout=_seconds("timeout", timeout),
        latency=_seconds("latency", latency),
        clock=clock or SystemClock(),
        probed=unsafe_single_writer,
    )


def _seconds(name: str, value: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise InvalidInputError(f"{name} must be a number of seconds from 0", got=value)
    return float(value)


class Store:
    """A bucket prefix or a folder that holds runs. Made by `cloudckpt.open`; safe from any thread.

    A context manager (``with`` and ``async with``) that closes itself.
    """

    def __init__(
        self,
        make: Callable[[], Storage],
        *,
        keep_last: int = KEEP_LAST,
        timeout: float = TIMEOUT,
        latency: float = 0.0,
        clock: Clock | None = None,
        probed: bool = False,
    ) -> None:
        self._make = make
        self._keep_last = check_keep_last(keep_last)
        self._policy = RetryPolicy(deadline=timeout)
        self._latency = latency
        self._probed = probed
        self._closed = False
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self._storage = make()
        self._runner = make_runner(blocking=self._storage.blocking, clock=clock or SystemClock())
        self.url = self._storage.url
        self._storage = self._wrapped(self._storage)
        _open_stores.add(self)

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def run(self, run_id: str, *, keep_last: int | None = None) -> Run:
        """Return the run of that id, which need not exist yet. Nothing is read or written yet.

        Args:
            run_id: Any str of 1 to 1,024 characters.
            keep_last: Another value than the store's, for this run.

        Raises:
            InvalidInputError: An argument is not usable.
        """
        self._check_open()
        run = Run(self, run_id, keep_last=self._keep_last if keep_last is None else keep_last)
        self._runs.add(run)
        return run

    def runs(self, prefix: str = "") -> Iterator[RunInfo]:
        """Iterate over the runs whose id starts with `prefix`: one request per 1,000 runs.

        In the order of their keys, which for ids of lower-case letters and digits is
        alphabetical.
        """
        cursor = None
        while True:
            found, cursor = self.call(self._page(prefix, cursor))
            yield from found
            if cursor is None:
                return

    async def aruns(self, prefix: str = "") -> AsyncIterator[RunInfo]:
        """`runs`, for ``async for``."""
        cursor = None
        while True:
            found, cursor = await self.acall(self._page(prefix, cursor))
            for info in found:
                yield info
            if cursor is None:
                return

    async def _page(self, prefix: str, cursor: str | None) -> tuple[list[RunInfo], str | None]:
        return await list_runs(self.parts()[0], prefix, cursor)

    def close(self) -> None:
        """Close every run of this store, and its connections. Safe to call twice."""
        if not self._closed:
            self._runner.call(self._end())

    async def aclose(self) -> None:
        """`close`, awaited."""
        if not self._closed:
            await self._runner.acall(self._end())

    async def _end(self) -> None:
        self._closed = True
        for run in list(self._runs):
            await run._settle()
        await self._storage.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---- what a run needs of its store

    def parts(self) -> tuple[Storage, Effects]:
        """Return this process's engine, with its wrappers, and the effects."""
        return self._storage, self._runner.effects

    def renew(self) -> None:
        """Take an engine and writers of this process's own, in the child after a fork."""
        self._inherited = self._storage  # kept, so that it never closes what the parent uses
        self._storage = self._wrapped(self._make())
        for run in list(self._runs):
            run.forget_writer()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the core and wait for it."""
        self._check_open(work)
        return self._runner.call(work)

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the core and await it."""
        self._check_open(work)
        return await self._runner.acall(work)

    def new_id(self) -> str:
        """Return a fresh random id."""
        return self._runner.effects.new_id()

    def writer(self, run_id: str, *, keep_last: int) -> RunWriter:
        """Return a new claim to write a run."""
        storage, effects = self.parts()

        async def prepare() -> None:
            if not self._probed:
                await ensure_probed(storage, effects)
                self._probed = True

        return RunWriter(storage, effects, run_id, keep_last=keep_last, policy=self._policy, prepare=prepare)

    def _wrapped(self, storage: Storage) -> Storage:
        effects = self._runner.effects
        if self._latency:
            storage = LatencyStorage(storage, self._latency, effects)
        return RetryingStorage(storage, self._policy, effects)

    def _check_open(self, work: Coroutine[Any, Any, Any] | None = None) -> None:
        if self._closed:
            if work is not None:
                work.close()
            raise ClosedError("the store was closed; open it again", url=self.url)


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_open_stores):
        store.renew()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_open_stores() -> None:
    """Let what was started aside end, and close connections before the interpreter goes."""
    for store in list(_open_stores):
        store.close()
