"""Deleting what landed commits dropped, aside and together.

Owns: the keys of one store's objects that no manifest refers to any more, as far
as its writers here know. Invariants: nothing is deleted that a commit could
still refer to, since a key comes here only after the commit that dropped it has
landed; what fails is left, is referred to by nothing, and collecting finds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from cloudckpt.effects import ASIDE_SECONDS, Background, Effects
from cloudckpt.errors import PermissionDeniedError, StorageError
from cloudckpt.storage.contract import Storage

SWEEP_KEYS = 16
SWEEP_BYTES = 1 << 20
"""Dropped objects are deleted together, once there are this many or they are this large."""


class Sweeper:
    """One store's deletions, shared by its runs. Safe for concurrent calls."""

    def __init__(self, storage: Storage, effects: Effects) -> None:
        self._storage = storage
        self._effects = effects
        self._doomed: deque[str] = deque()
        self._bytes = 0
        self._sweeps: list[Background] = []  # two, when two threads start one at the same moment
        self._may_delete = True

    def doom(self, dropped: Mapping[str, int]) -> None:
        """Delete, in time, objects that a landed commit dropped.

        Args:
            dropped: Their keys, and bytes of each that nothing refers to any more.
        """
        self._doomed.extend(dropped)
        self._bytes += sum(dropped.values())
        if len(self._doomed) >= SWEEP_KEYS or self._bytes >= SWEEP_BYTES:
            self._start()

    def _start(self) -> None:
        if self._doomed and self._may_delete and all(one.done() for one in self._sweeps):
            self._bytes = 0
            self._sweeps.append(self._effects.spawn(self._delete_doomed()))

    async def _delete_doomed(self) -> None:
        await self._effects.sleep(ASIDE_SECONDS)
        batch = []
        with suppress(IndexError):  # not asked before: another sweep may take the last one
            while True:
                batch.append(self._doomed.popleft())
        if not batch:
            return
        try:
            await self._storage.delete(batch)
        except PermissionDeniedError as error:
            # A writer's role may lack the right: collecting is another's. Credentials come back.
            self._may_delete = str(error.kind).startswith("credentials")
        except StorageError:
            return  # they stay, and collecting finds them

    async def settle(self) -> None:
        """Delete what waits, now."""
        for _ in range(2):  # the sweeps under way, and one for what was doomed since
            await self._ended()
            self._start()
        await self._ended()

    async def _ended(self) -> None:
        for sweep in tuple(self._sweeps):
            with suppress(StorageError):  # an interrupt of who waited before: collecting finds what is left
                await sweep.wait()
            with suppress(ValueError):  # whoever waited for it, too
                self._sweeps.remove(sweep)
