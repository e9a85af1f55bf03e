"""Putting objects as the rules of their run say: under a lock, in a storage class.

Owns: `Places`, which an engine may be, and `Placer`, by which every object of a run is put.
Invariant: what the rules ask for and the engine can't do is refused before the object is
written, never dropped; where the rules ask for nothing, any engine will do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, Protocol, runtime_checkable

from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.storage.beside import Reach
from cloudckpt.storage.contract import Data, Storage
from cloudckpt.storage.placing import NOWHERE, Placing, placed_by

P = ParamSpec("P")


@runtime_checkable
class Places(Protocol):
    """An engine whose `put` asks `placing.effective` how an object is placed."""

    def check_placing(self, placing: Placing) -> None:
        """Refuse what this engine can't do.

        Raises:
            UnsupportedStoreError, InvalidInputError: The placing asks for that.
        """
        ...


class Placer:
    """Puts the objects of one run.

    Args:
        storage: The store, whose wrappers are gone through.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._asks: Callable[[], Placing] = lambda: NOWHERE

    def ask(self, asks: Callable[P, Placing], *args: P.args, **more: P.kwargs) -> None:
        """Place each object from now on as this says; it is asked when there is one."""
        self._asks = partial(asks, *args, **more)

    def obey(self, asks: Callable[P, Placing], *args: P.args, **more: P.kwargs) -> None:
        """`ask`, and see to it that the engine can do what is said now.

        Raises:
            UnsupportedStoreError: It can't; the message says what to do.
        """
        self.ask(asks, *args, **more)
        self._check(self._asks())

    async def put(self, key: str, data: Data) -> None:
        """`Storage.put`, of an object.

        Raises:
            UnsupportedStoreError: The engine can't place it as the rules say.
        """
        placing = self._asks()
        if not placing:
            await self._storage.put(key, data)
            return
        self._check(placing)
        with placed_by(placing):
            await self._storage.put(key, data)

    def _check(self, placing: Placing) -> None:
        if not placing:
            return
        engine = Reach(self._storage).engine
        if not isinstance(engine, Places):
            raise _cant(engine, placing, "it knows no locks and no storage classes")
        try:
            engine.check_placing(placing)
        except (InvalidInputError, UnsupportedStoreError) as error:
            raise _cant(engine, placing, error.message) from error


def _cant(engine: Storage, placing: Placing, why: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(
        f"the rules of retention ask for what this engine can't do: {why}; open the store with one that can "
        "(s3fs, boto3, gcsfs, adlfs), or let an operator take it out of the rules: `cloudckpt retain RUN "
        "--lock none --storage-class none`, or with --default for the store's",
        url=engine.url,
        lock=placing.lock and str(placing.lock),
        storage_class=placing.storage_class,
    )
