"""A delay before each request, as a wrapper: a far store on a near machine.

A delay per call hides what a call really costs on the wire (a library may need
two round trips for one PUT), so benchmarks of the wire use a proxy instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from cloudckpt.effects import Effects
from cloudckpt.storage.contract import Data, Page, Storage, Stored, Token

T = TypeVar("T")


class LatencyStorage:
    """An engine whose every call takes `seconds` longer."""

    def __init__(self, inner: Storage, seconds: float, effects: Effects) -> None:
        self.inner = inner
        self._seconds = seconds
        self._effects = effects
        self.url = inner.url
        self.blocking = inner.blocking

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        await self._effects.sleep(self._seconds)
        return await self.inner.read(key, offset=offset, length=length)

    async def create(self, key: str, data: Data) -> Token:
        await self._effects.sleep(self._seconds)
        return await self.inner.create(key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        await self._effects.sleep(self._seconds)
        return await self.inner.replace(key, data, token)

    async def put(self, key: str, data: Data) -> None:
        await self._effects.sleep(self._seconds)
        await self.inner.put(key, data)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        await self._effects.sleep(self._seconds)
        return await self.inner.list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._effects.sleep(self._seconds)
        await self.inner.delete(keys)

    async def close(self) -> None:
        await self.inner.close()

    async def around(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - `Wrapper`'s
        """Make a call that is none of the contract's, later."""
        await self._effects.sleep(self._seconds)
        return await call()
