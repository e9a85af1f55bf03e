"""Trying again, as a wrapper around an engine.

Owns: when and how long to wait. Invariant: only what is safe to send twice is
sent twice: reads, listings, deletes, puts of write-once keys, and what was not sent
at all, as credentials could not be renewed. A conditional write with a doubtful
answer is the protocol's to resolve (`pointer.py`), since only it can tell its own
success from another's.

All requests of one call (`save`, `load`) share one deadline, see `within`. It ends
the trying again, not a request: each is sent at least once, and it is the engine
that gives up one without an answer, after `RetryPolicy.patience`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from cloudckpt.effects import Effects
from cloudckpt.errors import AmbiguousError, PermissionDeniedError, StorageError, ThrottledError
from cloudckpt.storage.answers import UNSENT
from cloudckpt.storage.contract import Data, Page, Storage, Stored, Token

T = TypeVar("T")

DEADLINE = 60.0
LEAST_PATIENCE, MOST_PATIENCE = 1.0, 60.0

_end: ContextVar[float | None] = ContextVar("end of the call under way", default=None)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to go on, and how fast.

    Attributes:
        deadline: Seconds from the beginning of a call after which no further try is begun.
        first: Upper bound of the first wait, in seconds; it doubles each time.
        most: Upper bound of any wait, in seconds.
    """

    deadline: float = DEADLINE
    first: float = 0.05
    most: float = 5.0

    @property
    def patience(self) -> float:
        """Seconds without a sign of life after which an engine gives one request up.

        A third of the deadline: the connection may be dead and the store well, so there must be
        time to ask what happened, and to try again, on a fresh one.
        """
        return min(MOST_PATIENCE, max(LEAST_PATIENCE, self.deadline / 3))

    def delay(self, attempt: int, effects: Effects) -> float:
        """Return the wait before try number `attempt` (from 1): anywhere from 0 to its bound.

        Full jitter, so that clients that failed together don't come back together
        (AWS Architecture Blog, "Exponential Backoff And Jitter").
        """
        return effects.uniform(0.0, min(self.most, self.first * 2.0 ** min(attempt - 1, 30)))


PATIENCE = RetryPolicy().patience


@contextmanager
def within(policy: RetryPolicy, effects: Effects) -> Iterator[None]:
    """Let everything in the block, and what it starts aside, share one deadline that begins now."""
    before = _end.get()
    _end.set(effects.clock.monotonic() + policy.deadline)
    try:
        yield
    finally:
        _end.set(before)  # by a token it would fail where a coroutine that was dropped is closed elsewhere


@contextmanager
def each_its_own() -> Iterator[None]:
    """Let each request in the block have a deadline of its own: for work that may take hours."""
    before = _end.get()
    _end.set(None)
    try:
        yield
    finally:
        _end.set(before)


def is_over(effects: Effects) -> bool:
    """Whether the deadline of the call under way, if it has one, is over."""
    end = _end.get()
    return end is not None and effects.clock.monotonic() >= end


class Retries:
    """Counts the tries of one request against the deadline of its call, or one that begins now."""

    def __init__(self, policy: RetryPolicy, effects: Effects) -> None:
        self._policy = policy
        self._effects = effects
        self._attempt = 0
        end = _end.get()
        self._end = effects.clock.monotonic() + policy.deadline if end is None else end

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
        self.inner = inner
        self._policy = policy
        self._effects = effects
        self.url = inner.url
        self.blocking = inner.blocking

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return await self._again(lambda: self.inner.read(key, offset=offset, length=length))

    async def create(self, key: str, data: Data) -> Token:
        return await self._again(lambda: self.inner.create(key, data), _was_unsent)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._again(lambda: self.inner.replace(key, data, token), _was_unsent)

    async def put(self, key: str, data: Data) -> None:
        doubtful = False

        async def put() -> None:
            nonlocal doubtful
            try:
                await self.inner.put(key, data)
            except AmbiguousError:
                doubtful = True
                raise
            except PermissionDeniedError:
                # Who may write and not overwrite may be denied what an earlier try has written.
                if not doubtful or await self.inner.read(key, length=1) is None:
                    raise

        await self._again(put)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await self._again(lambda: self.inner.list(prefix, cursor=cursor))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._again(lambda: self.inner.delete(keys))

    async def close(self) -> None:
        await self.inner.close()

    async def around(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - `Wrapper`'s
        """Make a call that is none of the contract's, and again on passing failures."""
        return await self._again(call)

    async def _again(
        self, call: Callable[[], Awaitable[T]], may: Callable[[StorageError], bool] | None = None
    ) -> T:
        tries: Retries | None = None
        while True:
            try:
                return await call()
            except StorageError as error:
                if not (may or _passes)(error):
                    raise
                tries = tries or Retries(self._policy, self._effects)
                if not await tries.pause():
                    raise


def _passes(error: StorageError) -> bool:
    return isinstance(error, AmbiguousError | ThrottledError) or _was_unsent(error)


def _was_unsent(error: StorageError) -> bool:
    return error.kind == UNSENT
