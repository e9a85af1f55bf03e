"""One piece of work on each of many runs.

Owns: how it is spread over threads, processes or machines. Invariants: memory stays
flat however many runs there are, since only so many are under way; a run that fails
is told as such and hides no other; what was not begun when the caller stops is not
done. Order: that of the runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from cloudckpt.errors import CloudckptError

S = TypeVar("S")
T = TypeVar("T")

THREADS = 16
STRETCH = 32
"""Runs that are sent to another process or machine together: neighbours, so they share a prefix."""

UNDER_WAY = 4
"""Pieces that wait for each worker, so that none is idle while the oldest is waited for."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of the work on one run: its value, or the error that it raised."""

    run: str
    value: T | None = None
    error: CloudckptError | None = None


class Executor(Protocol):
    """What work is given to: any `concurrent.futures.Executor`, or a Dask client."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any) -> Any:
        """Begin the work; return what has `result()`."""
        ...


def each(
    store: S,
    work: Callable[[S, str], T],
    runs: Iterable[str],
    *,
    executor: Executor | None = None,
    threads: int = THREADS,
) -> Iterator[Outcome[T]]:
    """Do the work on each run; yield the outcomes in the order of the runs.

    Args:
        store: Handed to the work.
        work: Called with the store and a run's id. For an executor of other processes it
            must be a function of a module, or a `functools.partial` of one.
        runs: Their ids.
        executor: Where it is done; by default in threads. The store is sent to other processes.
        threads: How many, by default; in other processes, how many in each.
    """
    own = None if executor is not None else ThreadPoolExecutor(threads, "cloudckpt")
    pool: Executor = executor or own  # type: ignore[assignment]
    left = iter(runs)
    waiting: deque[Any] = deque()
    stretch = STRETCH if own is None else 1
    try:
        while True:
            while len(waiting) < threads * UNDER_WAY and (ids := list(islice(left, stretch))):
                waiting.append(pool.submit(stretch_of, store, work, ids, threads))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        for future in waiting:
            with suppress(Exception):  # a Dask future that ended with its client
                future.cancel()
        if own is not None:
            own.shutdown(cancel_futures=True)


def stretch_of(
    store: S, work: Callable[[S, str], T], runs: Sequence[str], threads: int = THREADS
) -> list[Outcome[T]]:
    """Do the work on neighbouring runs, where it is to be done; side by side, as it mostly waits."""
    one = partial(_one, store, work)
    if len(runs) == 1:
        return [one(runs[0])]
    with ThreadPoolExecutor(min(threads, len(runs)), "cloudckpt") as pool:
        return list(pool.map(one, runs))


def _one(store: S, work: Callable[[S, str], T], run: str) -> Outcome[T]:
    try:
        return Outcome(run, work(store, run))
    except CloudckptError as error:
        return Outcome(run, error=error)
