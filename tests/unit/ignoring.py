"""Stores that take no notice of a condition, as a gateway that drops headers."""

from __future__ import annotations

from cloudckpt.storage.contract import Data, Token
from cloudckpt.storage.memory import MemoryStorage


class IgnoresIfNoneMatch(MemoryStorage):
    async def create(self, key: str, data: Data) -> Token:
        with self._space.lock:
            return self._space.write(key, data)


class IgnoresIfMatch(MemoryStorage):
    async def replace(self, key: str, data: Data, token: Token) -> Token:
        with self._space.lock:
            return self._space.write(key, data)
