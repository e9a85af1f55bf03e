"""A wrapper around an engine that knows which keys were written through it and are still there."""

from __future__ import annotations

from collections.abc import Sequence

from cloudckpt.errors import AmbiguousError, PreconditionFailedError, ThrottledError
from cloudckpt.storage.contract import Data, Page, Storage, Stored, Token


class TracedStorage:
    """An engine whose writes are noted.

    Attributes:
        inner: The engine.
        left: Keys that were written, or may have been, and not deleted.
        touched: Keys that any write or delete was about.
    """

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.url = inner.url
        self.blocking = inner.blocking
        self.left: set[str] = set()
        self.touched: set[str] = set()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        """See the contract."""
        return await self.inner.read(key, offset=offset, length=length)

    async def create(self, key: str, data: Data) -> Token:
        """See the contract."""
        with _Noted(self, key):
            return await self.inner.create(key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        """See the contract."""
        with _Noted(self, key):
            return await self.inner.replace(key, data, token)

    async def put(self, key: str, data: Data) -> None:
        """See the contract."""
        with _Noted(self, key):
            await self.inner.put(key, data)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        """See the contract."""
        return await self.inner.list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        """See the contract."""
        self.touched.update(keys)
        await self.inner.delete(keys)
        self.left.difference_update(keys)

    async def close(self) -> None:
        """See the contract."""
        await self.inner.close()


class _Noted:
    """The time of one write: after it the key is there, unless the store surely refused."""

    def __init__(self, traced: TracedStorage, key: str) -> None:
        self._traced = traced
        self._key = key

    def __enter__(self) -> None:
        self._traced.touched.add(self._key)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A throttled answer, a lost one and an interrupt leave it open; so does a refused condition.
        open_ = (AmbiguousError, ThrottledError, PreconditionFailedError)
        if kind is None or issubclass(kind, open_) or not issubclass(kind, Exception):
            self._traced.left.add(self._key)
