"""How many requests something takes, as the engine is asked for them.

Owns: a wrapper around an engine that counts. One call of the contract is one request,
and so is one page of a listing (`storage/contract.py`); a deletion is one for all its keys
on S3 and one for each key elsewhere, so its keys are counted too.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from cloudckpt.storage.contract import Data, Page, Storage, Stored, Token

T = TypeVar("T")

READING = ("read", "list", "versions")


class Counting:
    """An engine whose calls are counted. Safe for concurrent calls.

    Attributes:
        calls: How often each method was called.
        deleted: How many keys were named to be deleted or erased.
    """

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.url = inner.url
        self.blocking = inner.blocking
        self.calls: Counter[str] = Counter()
        self.deleted = 0
        self._lock = threading.Lock()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return await self.around("read", key, lambda: self.inner.read(key, offset=offset, length=length))

    async def create(self, key: str, data: Data) -> Token:
        return await self.around("create", key, lambda: self.inner.create(key, data))

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self.around("replace", key, lambda: self.inner.replace(key, data, token))

    async def put(self, key: str, data: Data) -> None:
        await self.around("put", key, lambda: self.inner.put(key, data))

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await self.around("list", prefix, lambda: self.inner.list(prefix, cursor=cursor))

    async def delete(self, keys: Sequence[str]) -> None:
        with self._lock:
            self.deleted += len(keys)
        await self.around("delete", "", lambda: self.inner.delete(keys))

    async def close(self) -> None:
        await self.inner.close()

    async def around(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, of the contract or beside it, and count it."""
        with self._lock:
            self.calls[op] += 1
        return await call()

    def taken(self) -> Counter[str]:
        """Return what was called since the last time, and begin again."""
        with self._lock:
            found, self.calls = self.calls, Counter()
        return found
