"""Whether a key has changed, beside the contract: a read that brings nothing while it has not.

Owns: `Watchable`, which an engine may be, and `Changes`, which the core asks. Such a
request costs a round trip and a few hundred bytes, keeps the connection warm, and is as
consistent as a read. Where an engine has none, a plain read does, which is cheap where
the values are near (a folder, memory).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cloudckpt.storage.answers import AbsentError
from cloudckpt.storage.beside import Reach
from cloudckpt.storage.contract import Storage, Stored, Token


@runtime_checkable
class Watchable(Protocol):
    """An engine that can ask for a value only if it is another one. Failures are those of the contract."""

    async def changed(self, key: str, token: Token) -> Stored | None:
        """Return the newest value when it is another version than `token`'s, None while it is that.

        Raises:
            AbsentError: The key does not exist.
        """
        ...


class Changes:
    """The changes of a storage's keys, through its wrappers."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._reach: Reach | None = None

    async def since(self, key: str, token: Token) -> Stored | None:
        """As `Watchable.changed`, of any engine."""
        reach = self._reach = self._reach or Reach(self._storage)
        engine = reach.engine
        if isinstance(engine, Watchable):
            found = await reach.call("changed", key, lambda: engine.changed(key, token))
        else:
            found = await self._storage.read(key)
            if found is None:
                raise AbsentError("the key does not exist", key=key)
        return None if found is None or found.token == token else found
