"""A wrapper around an engine that fails on purpose, at a call chosen by number.

Owns: the four ways in which one storage call can go wrong for its caller, and
the log of calls. Invariant: the numbering is that of the clean run, so to try
every crash point, count the calls of a run without faults and then, for each
fault of `every_fault`, run again from the start. It injects no delay and picks
no interleaving.

After a crash the wrapper is dead, like the process it stands for: a later call
raises `SimulatedCrash` again and reaches nothing, so a `finally` block can't do
what a killed process could not have done. Reopen with a wrapper of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from cloudckpt.errors import AmbiguousError
from cloudckpt.storage.contract import Data, Page, Storage, Stored, Token

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process ended here. A BaseException, so that no handler of errors survives it."""


class Effect(Enum):
    """What happens to one call."""

    CRASH_BEFORE = "crash before"
    """The process dies, and the call never happened."""

    CRASH_AFTER = "crash after"
    """The call happened, and the process dies before it is told."""

    LOST_REQUEST = "lost request"
    """`AmbiguousError`, and the call never happened."""

    LOST_ANSWER = "lost answer"
    """`AmbiguousError`, and the call happened."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Let `effect` happen to the call of number `call`, counted from 0."""

    call: int
    effect: Effect


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of one run; at most one a call. Empty: only count."""

    faults: tuple[Fault, ...] = ()

    def at(self, call: int) -> Effect | None:
        """Return what happens to this call, or None when it goes well."""
        return next((fault.effect for fault in self.faults if fault.call == call), None)


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was made: the method's name, and its key (or prefix, or the first of its keys)."""

    op: str
    key: str


def every_fault(calls: int, effects: Sequence[Effect] = tuple(Effect)) -> Iterator[Plan]:
    """Yield one plan for each of the first `calls` calls and each effect."""
    for call in range(calls):
        for effect in effects:
            yield Plan((Fault(call, effect),))


class FaultyStorage:
    """The storage contract over `inner`, with the faults of `plan`. Safe for concurrent calls.

    Attributes:
        calls: Every call so far, in the order in which they began; `close` is not one.
        crashed: Whether a simulated crash has ended it.
    """

    def __init__(self, inner: Storage, plan: Plan | None = None) -> None:
        self.url = inner.url
        self.blocking = inner.blocking
        self.calls: list[Call] = []
        self.crashed = False
        self.inner = inner
        self._plan = plan or Plan()
        self._lock = threading.Lock()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return await self._call("read", key, lambda: self.inner.read(key, offset=offset, length=length))

    async def create(self, key: str, data: Data) -> Token:
        return await self._call("create", key, lambda: self.inner.create(key, data))

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._call("replace", key, lambda: self.inner.replace(key, data, token))

    async def put(self, key: str, data: Data) -> None:
        await self._call("put", key, lambda: self.inner.put(key, data))

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await self._call("list", prefix, lambda: self.inner.list(prefix, cursor=cursor))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._call("delete", keys[0] if keys else "", lambda: self.inner.delete(keys))

    async def close(self) -> None:
        await self.inner.close()

    async def around(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that is none of the contract's, numbered among the others."""
        return await self._call(op, key, call)

    async def _call(self, op: str, key: str, go: Callable[[], Awaitable[T]]) -> T:
        with self._lock:
            if self.crashed:
                raise SimulatedCrash
            effect = self._plan.at(len(self.calls))
            self.calls.append(Call(op, key))
        if effect is Effect.CRASH_BEFORE:
            self._crash()
        if effect is Effect.LOST_REQUEST:
            raise AmbiguousError("the request was lost on purpose", op=op, key=key)
        try:
            result = await go()
        finally:  # a refusal is an answer too, and can be lost like any other
            self._after(effect, op, key)
        return result

    def _after(self, effect: Effect | None, op: str, key: str) -> None:
        if effect is Effect.CRASH_AFTER:
            self._crash()
        if effect is Effect.LOST_ANSWER:
            raise AmbiguousError("the answer was lost on purpose", op=op, key=key)
        if self.crashed:  # while this call was under way
            raise SimulatedCrash

    def _crash(self) -> None:
        self.crashed = True
        raise SimulatedCrash
