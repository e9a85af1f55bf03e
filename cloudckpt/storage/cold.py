"""Values in a cold tier, beside the contract: is one there, and asking for it.

Owns: `Restorable`, which an engine may be, and `Cold`, which the core asks. A store whose
cold tiers are read at once needs nothing of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, runtime_checkable

from cloudckpt.errors import ArchivedError, InvalidInputError, UnsupportedStoreError
from cloudckpt.storage.beside import Reach
from cloudckpt.storage.contract import Storage

SPEEDS = ("standard", "bulk", "expedited")
"""How fast a value is wanted; a faster one costs more. Not every tier has all of them."""


class Warmth(StrEnum):
    """Whether a value can be read."""

    WARM = "warm"
    COMING = "coming"
    """It was asked for."""
    COLD = "cold"


@runtime_checkable
class Restorable(Protocol):
    """An engine whose store has tiers that must be asked. Failures are those of the contract."""

    async def warmth(self, key: str) -> Warmth:
        """Say whether a value can be read. A key that does not exist is warm: reading tells."""
        ...

    async def rewarm(self, key: str, *, days: int, speed: str) -> None:
        """Ask for a cold value; that it was asked for already is no error.

        Args:
            key: The key.
            days: How long it can be read afterwards, where the store makes a copy.
            speed: One of `SPEEDS`.
        """
        ...


def check_speed(speed: str) -> str:
    """Return it.

    Raises:
        InvalidInputError: It is none of `SPEEDS`.
    """
    if speed not in SPEEDS:
        raise InvalidInputError(f"the tier of a restore is one of {', '.join(SPEEDS)}", got=speed)
    return speed


class Cold:
    """The cold values of a storage, through its wrappers."""

    def __init__(self, storage: Storage) -> None:
        self._reach = Reach(storage)
        self._storage = storage

    async def warmth(self, key: str) -> Warmth:
        """As `Restorable.warmth`; by reading a byte where the engine can't tell."""
        engine = self._reach.engine
        if isinstance(engine, Restorable):
            return await self._reach.call("warmth", key, lambda: engine.warmth(key))
        try:
            await self._storage.read(key, length=1)
        except ArchivedError:
            return Warmth.COLD
        return Warmth.WARM

    async def rewarm(self, key: str, *, days: int, speed: str) -> None:
        """As `Restorable.rewarm`.

        Raises:
            UnsupportedStoreError: The engine can't ask; the message says which can.
        """
        engine = self._reach.engine
        if not isinstance(engine, Restorable):
            raise UnsupportedStoreError(
                "this engine can't ask for an object in a cold tier; open the store with the engine s3fs or "
                "boto3 (s3://) or adlfs (az://)",
                url=engine.url,
                key=key,
            )
        await self._reach.call("rewarm", key, lambda: engine.rewarm(key, days=days, speed=speed))
