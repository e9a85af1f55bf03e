"""A store: where runs live.

Owns: what a user opens, lists and closes. Invariant: nothing that a run started
aside is left when its store, or the interpreter, ends in order.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cloudckpt.claiming import Claiming
from cloudckpt.clock import Clock, SystemClock
from cloudckpt.codec.frame import check_max_state_bytes
from cloudckpt.codec.intake import Intake
from cloudckpt.core import Core
from cloudckpt.errors import InvalidInputError
from cloudckpt.keeping import Keeping
from cloudckpt.leases import Busy, terms_for
from cloudckpt.load import list_runs
from cloudckpt.model import RunInfo
from cloudckpt.pace import Cadence, Overflow, Pace
from cloudckpt.progress import Callback, Meter, check_max_steps
from cloudckpt.proving import Proving
from cloudckpt.retention import Retention, chosen
from cloudckpt.run import Run
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from cloudckpt.storage.placing import placing_of
from cloudckpt.storage.retry import DEADLINE, RetryPolicy
from cloudckpt.working import work_of

if TYPE_CHECKING:
    from cloudckpt.codec.redaction import Rule
    from cloudckpt.watching import OnFenced

TIMEOUT = DEADLINE


def open(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    engine: str | None = None,
    keep_last: int | None = None,
    retention: Retention | None = None,
    redact: Iterable[Rule] = (),
    max_state_bytes: int | None = None,
    timeout: float = TIMEOUT,
    latency: float = 0.0,
    clock: Clock | None = None,
    unsafe_single_writer: bool = False,
    lock: str | None = None,
    storage_class: str | None = None,
) -> Store:
    """Open a store. Nothing is read or written yet.

    Args:
        url: ``s3://bucket/prefix``, ``file:///folder`` or a plain path, ``memory://name``.
        storage_options: fsspec's own options for the file system (such as `key`, `secret`,
            `profile`, `endpoint_url`, `client_kwargs` for s3fs).
        engine: Name of the engine, where a URL has more than one.
        keep_last: How many of a run's newest checkpoints are kept, from 1: short for `retention`.
        retention: Which checkpoints of a run are kept, unless an operator said so for the run. By
            default what the store says (`Store.retention`), else ``Retention(keep_last=10)``.
        redact: What no run ever writes: paths such as ``**.api_key``, and regular expressions
            by `re.compile` for what may be in any text. See docs/state.md.
        max_state_bytes: Refuse a state that is larger than this before compression.
        timeout: Seconds a call has: what fails in passing is tried again for so long, and one
            request that stays without an answer is given up after a third of it. So a store that is
            gone is told after this time, and at most two thirds more. See docs/stores.md.
        latency: Seconds added before every request, to try out a far store.
        clock: Where times come from; safety never depends on it.
        unsafe_single_writer: Take any other fsspec protocol, whose writes are not
            conditional, on your promise that a run never has two writers.
        lock: Lock each object that is written, such as ``"compliance:7y"`` or ``"governance:30d"``: nobody
            can erase it before. Needs a bucket with object lock. Pointers are never locked.
        storage_class: Of each object that is written, such as ``"STANDARD_IA"``; pointers stay in the
            bucket's own. See docs/erasure.md for both; the rules (`retention`) may have them, too.

    Raises:
        InvalidInputError: An argument is not usable.
        UnsupportedStoreError: No engine serves this URL, or its package is missing.
    """
    make = engine_for(
        url,
        storage_options=storage_options,
        engine=engine,
        patience=RetryPolicy(deadline=_seconds("timeout", timeout)).patience,
        unsafe_single_writer=unsafe_single_writer,
        placing=placing_of(lock, storage_class, clock),
    )
    store = Store(
        make,
        keep_last=keep_last,
        retention=retention,
        redact=redact,
        max_state_bytes=max_state_bytes,
        timeout=timeout,
        latency=latency,
        clock=clock,
        probed=unsafe_single_writer,
        rides=lock is None,
    )
    store._opened = {
        "storage_options": storage_options,
        "engine": engine,
        "retention": store._rules,
        "redact": store._redact,
        "max_state_bytes": max_state_bytes,
        "timeout": timeout,
        "latency": latency,
        "clock": clock,
        "unsafe_single_writer": unsafe_single_writer,
        "lock": lock,
        "storage_class": storage_class,
    }
    return store


_arrived: dict[bytes, Store] = {}
"""Stores that were sent to this process, each opened once."""


def _arrive(url: str, options: bytes) -> Store:
    import pickle

    key = url.encode() + options
    store = _arrived.get(key)
    if store is None or store.closed:
        store = _arrived[key] = open(url, **pickle.loads(options))  # noqa: S301 - inside a pickle already
    return store


def _seconds(name: str, value: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise InvalidInputError(f"{name} must be a number of seconds from 0", got=value)
    return float(value)


class Store(Keeping, Proving, Claiming):
    """A bucket prefix or a folder that holds runs. Safe from any thread.

    Made by `cloudckpt.open`, or of an engine of your own: docs/engines.md. A context
    manager (``with`` and ``async with``) that closes itself.

    Args:
        make: Makes the engine: once now, and again in the child after a fork.
        keep_last, retention, redact, max_state_bytes, timeout, latency, clock: As in `open`.
        probed: True when the store need not be tried before its first run is created.
        rides: Whether small payloads may ride in the pointer until they become objects.

    Raises:
        InvalidInputError: An argument is not usable.
    """

    def __init__(
        self,
        make: Callable[[], Storage],
        *,
        keep_last: int | None = None,
        retention: Retention | None = None,
        redact: Iterable[Rule] = (),
        max_state_bytes: int | None = None,
        timeout: float = TIMEOUT,
        latency: float = 0.0,
        clock: Clock | None = None,
        probed: bool = False,
        rides: bool = True,
    ) -> None:
        if not callable(make):
            raise InvalidInputError(
                "a store is made of a function that makes an engine; for a URL use cloudckpt.open", got=make
            )
        self._rules = chosen(keep_last, retention)
        self._redact = Intake(redact=redact).redact
        self._max_state_bytes = check_max_state_bytes(max_state_bytes)
        self._core = Core(
            make,
            timeout=_seconds("timeout", timeout),
            latency=_seconds("latency", latency),
            clock=clock or SystemClock(),
            probed=probed,
            rides=rides,
        )
        self.url = self._core.url
        self._opened: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as URL and options, credentials among them; it is opened there once."""
        import pickle  # a process that only loads does without

        if self._opened is None:
            raise TypeError("a store made of an engine can't be sent to another process; open it there")
        return _arrive, (self.url, pickle.dumps(self._opened))

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def run(
        self,
        run_id: str,
        *,
        keep_last: int | None = None,
        retention: Retention | None = None,
        fingerprint: Mapping[str, str] | None = None,
        exclude: Iterable[str] = (),
        redact: Iterable[Rule] = (),
        max_state_bytes: int | None = None,
        cadence: Cadence = "step",
        every: int | None = None,
        every_seconds: float | None = None,
        queue: int = 1,
        overflow: Overflow = "latest",
        drain_on_sigterm: float | None = None,
        lease: float | None = None,
        busy: Busy = "raise",
        watch: float | None = None,
        on_fenced: OnFenced | None = None,
        progress: Callback | None = None,
        max_steps: int | None = None,
    ) -> Run:
        """Return the run of that id, which need not exist yet. Nothing is read or written yet.

        Args:
            run_id: Any str of 1 to 1,024 characters.
            keep_last: Another value than that of `open`, for this run.
            retention: Other rules than those of `open`, for this run.
            fingerprint: From `cloudckpt.fingerprint`: saved with each checkpoint, compared on `load`.
            exclude: Paths of what is not saved: fields, which come back as their default, and
                items of dicts, which come back absent. See docs/state.md.
            redact: Rules besides the store's.
            max_state_bytes: Another value than the store's, for this run.
            cadence: When a save is durable, and so what a crash may cost: "step" (when `save`
                returns), "selective" (when it is due), or "background" (soon). See `Run.pace`, which
                changes it in mid-run, and docs/background.md.
            every: As in `Run.pace`.
            every_seconds: As in `Run.pace`.
            queue: As in `Run.pace`.
            overflow: As in `Run.pace`.
            drain_on_sigterm: Seconds in which what is pending is made durable when the process is told
                to end, see `Run.on_sigterm`.
            lease: Seconds for which other workers leave the run alone after each write of this one, which is
                renewed while the run is open. Safety never needs it. See docs/workers.md.
            busy: What to do when another worker holds a lease: "raise" a `RunBusyError`, "wait" until it
                ends or this process has seen it expire, or "take" the run over.
            watch: Look, after so many seconds without a request, whether somebody took the run over: see
                `Run.fenced`. Below 4 seconds it also keeps the connection open for the next save.
            on_fenced: Called with the error, in a thread of ours, when somebody did; needs `lease` or
                `watch`. What it raises is raised where the run is closed.
            progress: Called with a `Progress` after each save, where that is made: it must be
                quick and must not call cloudckpt. See `cloudckpt.progress_bar`.
            max_steps: How many steps there will be at most; by default `state.max_steps` or
                `state["max_steps"]`, where that is a whole number.

        Raises:
            InvalidInputError: An argument is not usable.
        """
        self._core.check_open()
        pace = Pace(cadence=cadence, every=every, every_seconds=every_seconds, queue=queue, overflow=overflow)
        limit = self._max_state_bytes if max_state_bytes is None else check_max_state_bytes(max_state_bytes)
        redact = (*self._redact, *Intake(redact=redact).redact)
        run = Run(
            self._core,
            run_id,
            rules=chosen(keep_last, retention) or self._rules,
            fingerprint=fingerprint,
            intake=Intake(exclude, redact, max_state_bytes=limit),
            pace=pace,
            work=work_of(terms_for(run_id, lease, busy), watch, on_fenced),
            meter=Meter(self._core.effects.clock, progress, check_max_steps(max_steps)),
        )
        if drain_on_sigterm is not None:
            run.on_sigterm(drain_on_sigterm)
        return run

    def runs(self, prefix: str = "") -> Iterator[RunInfo]:
        """Iterate over the runs whose id starts with `prefix`: one request per 1,000 runs.

        In the order of their keys, which for ids of lower-case letters and digits is
        alphabetical.
        """
        cursor = None
        while True:
            found, cursor = self._core.call(self._page(prefix, cursor))
            yield from found
            if cursor is None:
                return

    async def aruns(self, prefix: str = "") -> AsyncIterator[RunInfo]:
        """`runs`, for ``async for``."""
        cursor = None
        while True:
            found, cursor = await self._core.acall(self._page(prefix, cursor))
            for info in found:
                yield info
            if cursor is None:
                return

    async def _page(self, prefix: str, cursor: str | None) -> tuple[list[RunInfo], str | None]:
        return await list_runs(self._core.storage, prefix, cursor)

    def close(self) -> None:
        """Make durable what its runs have pending, and close its connections. Safe to call twice.

        Raises:
            CloudckptError: Why something that was saved is not durable, unless a call raised it before.
        """
        self._core.close()

    async def aclose(self) -> None:
        """`close`, awaited."""
        await self._core.aclose()

    def __enter__(self) -> Self:
        self._core.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._core.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
