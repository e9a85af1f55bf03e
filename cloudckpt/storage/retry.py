"""Trying again, as a wrapper around an engine.

Owns: when and how long to wait. Invariant: only what is safe to send twice is
sent twice: reads, listings, deletes, and puts of write-once keys. A conditional
write with a doubtful answer is the protocol's to resolve (`commit.py`), since
only it can tell its own success from another's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cloudckpt.effects import Effects
from cloudckpt.errors import AmbiguousError, ThrottledError
from cloudckpt.storage.contract import Data, Page, Storage, Stored, Token

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to go on, and how fast.

    Attributes:
        deadline: Seconds after which no further try is begun.
        first: Upper bound of the first wait, in seconds; it doubles each time.
        most: Upper bound of any wait, in seconds.
    """

    deadline: float = 60.0
    first: float = 0.05
    most: float = 5.0

    def delay(self, attempt: int, effects: Effects) -> float:
        """Return the wait before try number `attempt` (from 1): anywhere from 0 to its bound.

        Full jitter, so that clients that failed together don't come back together
        (AWS Architecture Blog, "Exponential Backoff And Jitter").
        """
        return effects.uniform(0.0, min(self.most, self.first * 2.0 ** min(attempt - 1, 30)))


class Retries:
    """Counts the tries of one operation against its policy."""

    def __init__(self, policy: RetryPolicy, effects: Effects) -> None:
        self._policy = policy
        self._effects = effects
        self._attempt = 0
        self._end = effects.clock.monotonic() + policy.deadline

    async def pause(self) -> bool:
        """Wait before the next try; return False, at once, when there is no time for one."""
        self._attempt += 1
        delay = self._policy.delay(self._attempt, self._effects)
        if self._effects.clock.monotonic() + delay > self._end:
            return False
        await self._effects.sleep(delay)
        return True


class RetryingStorage:
    """An engine whose repeatable calls are repeated on passing failures."""

    def __init__(self, inner: Storage, policy: RetryPolicy, effects: Effects) -> None:
        self._inner = inner
        self._policy = policy
        self._effects = effects
        self.url = inner.url
        self.blocking = inner.blocking

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return await self._again(lambda: self._inner.read(key, offset=offset, length=length))

    async def create(self, key: str, data: Data) -> Token:
        return await self._inner.create(key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._inner.replace(key, data, token)

    async def put(self, key: str, data: Data) -> None:
        await self._again(lambda: self._inner.put(key, data))

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await self._again(lambda: self._inner.list(prefix, cursor=cursor))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._again(lambda: self._inner.delete(keys))

    async def close(self) -> None:
        await self._inner.close()

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        tries: Retries | None = None
        while True:
            try:
                return await call()
            except (AmbiguousError, ThrottledError):
                tries = tries or Retries(self._policy, self._effects)
                if not await tries.pause():
                    raise
