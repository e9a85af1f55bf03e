"""A store that stands still at one of its calls, for who cancels or interrupts who waits for it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from cloudckpt.errors import PreconditionFailedError
from cloudckpt.storage.contract import Data, Page, Stored, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ledger, check_laws

RUN, KEEP_LAST = "r", 2
WAIT = 60.0
_names = itertools.count()

Moment = Literal["before", "after", "late"]
"""When the caller goes: before the request is done, after, or before, and the network has it still."""


class Stalling:
    """Memory, one call of which stands still until it is let go, or strikes whoever waits for it.

    Attributes:
        calls: How many of a save's own there were since the last `arm`; of what is put or deleted
            aside there are none here.
        reached: Set when the call stands still.
    """

    def __init__(self, *, blocking: bool) -> None:
        self.inner = MemoryStorage(f"stalling-{next(_names)}")
        self.url = self.inner.url
        self.blocking = blocking
        self.calls: list[str] = []
        self.reached = threading.Event()
        self._let_go = threading.Event()
        self._late: list[Callable[[], Awaitable[Any]]] = []
        self._at: int | None = None
        self._moment: Moment = "before"
        self._strike: Callable[[], None] | None = None

    def arm(
        self, at: int | None, moment: Moment = "before", strike: Callable[[], None] | None = None
    ) -> None:
        """Let the call of this number, counted from here, stand still, or `strike`."""
        self.calls.clear()
        self.reached.clear()
        self._let_go.clear()
        self._at, self._moment, self._strike = at, moment, strike

    def let_go(self) -> None:
        self._at = None
        self._let_go.set()

    async def arrive(self) -> None:
        """Let what the network still has arrive, whatever the store makes of it."""
        for go in self._late:
            with suppress(PreconditionFailedError):
                await go()
        self._late.clear()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return await self._call("read", lambda: self.inner.read(key, offset=offset, length=length))

    async def create(self, key: str, data: Data) -> Token:
        return await self._call("create", lambda: self.inner.create(key, data))

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._call("replace", lambda: self.inner.replace(key, data, token))

    async def put(self, key: str, data: Data) -> None:
        await self._call("put", lambda: self.inner.put(key, data))

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await self.inner.list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        await self.inner.delete(keys)

    async def close(self) -> None:
        pass

    async def _call(self, op: str, go: Callable[[], Awaitable[Any]]) -> Any:
        number = len(self.calls)
        self.calls.append(op)
        if number != self._at:
            return await go()
        if self._moment == "after":
            answer = await go()
            await self._stand_still()
            return answer
        if self._moment == "late" and op != "read":
            self._late.append(go)
        await self._stand_still()
        return await go()

    async def _stand_still(self) -> None:
        self.reached.set()
        if self._strike is not None:
            self._strike()
        if self.blocking:
            assert self._let_go.wait(WAIT)
        else:
            while not self._let_go.is_set():  # noqa: ASYNC110 - it is set in another thread
                await asyncio.sleep(0.001)


class Life:
    """One run on such a store, and what its client was told."""

    def __init__(self, *, blocking: bool) -> None:
        self.storage = Stalling(blocking=blocking)
        self.store = Store(lambda: self.storage, keep_last=KEEP_LAST, probed=True)
        self.run = self.store.run(RUN)
        self.ledger = Ledger(keep_last=KEEP_LAST)

    def check(self) -> int:
        manifest = by_hand(check_laws(self.storage.inner, RUN, self.ledger))
        return manifest.seq if manifest else 0

    async def save(self, state: Any) -> None:
        with self.ledger.asking(state) as told:
            told(await self.run.asave(state))

    def save_now(self, state: Any) -> None:
        with self.ledger.asking(state) as told:
            told(self.run.save(state))

    def resumed(self, state: Any) -> None:
        """Another process loads what was saved last, and goes on."""
        self.check()
        inner = MemoryStorage(self.storage.url.removeprefix("memory://"))
        with Store(lambda: inner, keep_last=KEEP_LAST, probed=True) as store:
            assert store.run(RUN).load() == state
            with self.ledger.asking("by another process") as told:
                told(store.run(RUN).save("by another process"))
        self.check()
