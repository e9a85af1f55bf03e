"""Memory whose writes wait at a gate, so that a test decides when a save goes on, and how it ends."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from typing import Any

from cloudckpt import keys
from cloudckpt.storage.contract import Data, Page, Stored, Token
from cloudckpt.storage.memory import MemoryStorage

WAIT = 60.0
_names = itertools.count()


class Gated:
    """A store whose manifests are written only while the gate is open. It is open at first.

    Attributes:
        arrived: Set when a write stands at the gate.
        calls: Every call: its name and its key.
        errors: What the next writes of manifests raise, once they are through the gate.
    """

    def __init__(self, *, blocking: bool) -> None:
        self.inner = MemoryStorage(f"gated-{next(_names)}")
        self.url = self.inner.url
        self.blocking = blocking
        self.arrived = threading.Event()
        self.calls: list[tuple[str, str]] = []
        self.errors: list[Exception] = []
        self._open = threading.Event()
        self._open.set()

    def shut(self) -> None:
        self.arrived.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        self.calls.append(("read", key))
        return await self.inner.read(key, offset=offset, length=length)

    async def create(self, key: str, data: Data) -> Token:
        return await self._write("create", key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._write("replace", key, data, token)

    async def _write(self, op: str, key: str, *rest: Any) -> Token:
        self.calls.append((op, key))
        if key.startswith(keys.MANIFESTS):
            self.arrived.set()
            while not self._open.is_set():
                if self.blocking:
                    assert self._open.wait(WAIT)
                else:
                    await asyncio.sleep(0.001)
            if self.errors:
                raise self.errors.pop(0)
        token: Token = await getattr(self.inner, op)(key, *rest)
        return token

    async def put(self, key: str, data: Data) -> None:
        self.calls.append(("put", key))
        await self.inner.put(key, data)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await self.inner.list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        self.calls += [("delete", key) for key in keys]
        await self.inner.delete(keys)

    async def close(self) -> None:
        self.calls.append(("close", ""))
