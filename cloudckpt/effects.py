"""All that the protocol does besides storage calls, as parameters.

Owns: the one value through which the core reaches time, chance and concurrency.
Invariant: the core uses nothing else, so whoever builds an `Effects` (the
runners in `runner.py`, a simulation in a test) owns every interleaving.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cloudckpt.clock import Clock

T = TypeVar("T")

ASIDE_SECONDS = 0.002
"""Work aside begins this much later, so that the caller who just saved goes on first."""


class Background(Protocol):
    """Work that was started aside."""

    def done(self) -> bool:
        """Return whether it has ended, well or not."""
        ...

    async def wait(self) -> Any:
        """Return its result or raise its error, after it has ended. Safe to call again."""
        ...


@dataclass(frozen=True, slots=True)
class Effects:
    """What the core may do.

    Attributes:
        clock: Wall and monotonic time.
        new_id: Returns a fresh random id: 16 hex digits.
        uniform: Returns a random float between its two arguments.
        sleep: Waits that many seconds.
        spawn: Starts a coroutine aside.
        lock: Makes a mutual exclusion for coroutines of this store.
        offload: Runs a function of bytes that may take long, off the IO loop if there is one.
    """

    clock: Clock
    new_id: Callable[[], str]
    uniform: Callable[[float, float], float]
    sleep: Callable[[float], Awaitable[None]]
    spawn: Callable[[Coroutine[Any, Any, Any]], Background]
    lock: Callable[[], AbstractAsyncContextManager[None]]
    offload: Callable[[Callable[[], Any]], Awaitable[Any]]


async def gather(
    effects: Effects, work: Sequence[Callable[[], Coroutine[Any, Any, T]]], *, width: int
) -> list[T]:
    """Run coroutines side by side, at most `width` at once; return their results in order.

    Raises:
        BaseException: The first error, after all that were started have ended.
    """
    results: list[T] = []
    for start in range(0, len(work), width):
        group = work[start : start + width]
        if len(group) == 1:
            results.append(await group[0]())
            continue
        started = [effects.spawn(make()) for make in group]
        errors: list[BaseException] = []
        for one in started:
            try:
                results.append(await one.wait())
            except Exception as error:  # noqa: BLE001 - kept, and raised when nothing runs any more
                errors.append(error)
        if errors:
            raise errors[0]
    return results


OFFLOAD_BYTES = 1 << 20
"""Hashing more bytes than this leaves the loop for a worker thread."""


async def sha256(effects: Effects, data: bytes | memoryview) -> str:
    """Return the sha256 of `data` in hex; a large one leaves the loop free."""
    if len(data) <= OFFLOAD_BYTES:
        return hashlib.sha256(data).hexdigest()
    digest: str = await effects.offload(lambda: hashlib.sha256(data).hexdigest())
    return digest
