"""`memory://name`: a locked dict, the reference engine.

Owns: values of this process by store name, gone when it ends. Invariant: each
method is one step under one lock, so it is what every other engine is measured
against. A forked child has a copy of its own from the fork on.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from cloudckpt.errors import PreconditionFailedError
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.versions import OneVersion

PAGE_ROWS = 1000


class _Space:
    """The values of one store name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: dict[str, tuple[Stored, datetime]] = {}
        self.versions = itertools.count(1)

    def write(self, key: str, data: Data) -> Token:
        token = f"v{next(self.versions)}"
        self.values[key] = (Stored(bytes(data), token), datetime.now(UTC))
        return token


_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()


def _after_fork() -> None:
    global _spaces_lock  # noqa: PLW0603 - another thread may have held the old ones, and the child has none
    _spaces_lock = threading.Lock()
    for space in _spaces.values():
        space.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class MemoryStorage(OneVersion):
    """A store in this process's memory; two objects of the same name share it."""

    blocking = True

    def __init__(self, name: str = "") -> None:
        self.url = f"memory://{name}"
        with _spaces_lock:
            self._space = _spaces.setdefault(name, _Space())

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        with self._space.lock:
            found = self._space.values.get(key)
        if found is None or (offset == 0 and length is None):
            return found[0] if found else None
        end = None if length is None else offset + length
        return Stored(found[0].data[offset:end], found[0].token)

    async def create(self, key: str, data: Data) -> Token:
        with self._space.lock:
            if key in self._space.values:
                raise PreconditionFailedError("the key exists", key=key)
            return self._space.write(key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        with self._space.lock:
            found = self._space.values.get(key)
            if found is None or found[0].token != token:
                raise PreconditionFailedError("the key has another version or is missing", key=key)
            return self._space.write(key, data)

    async def put(self, key: str, data: Data) -> None:
        with self._space.lock:
            if key not in self._space.values:
                self._space.write(key, data)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        with self._space.lock:
            keys = sorted(k for k in self._space.values if k.startswith(prefix) and k > (cursor or ""))
            rows = tuple(self._row(key) for key in keys[:PAGE_ROWS])
        return Page(rows, rows[-1].key if len(keys) > PAGE_ROWS else None)

    def _row(self, key: str) -> Listed:
        stored, modified = self._space.values[key]
        return Listed(key, len(stored.data), modified)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._space.lock:
            for key in keys:
                self._space.values.pop(key, None)

    async def close(self) -> None:
        pass  # the values belong to the process, not to this object
