"""What a writer does between its saves: it renews its lease, looks for others, lets the run go.

Owns: those three, as a part of `RunWriter`, and what its own process says of the run
meanwhile. Invariants: a renewal is a commit like any other, over the base that the writer
knows, and changes nothing but nonce and lease; so a writer that was fenced learns it here
as well, before its caller pays for the next step; what is known never becomes older. It
has no clock of its own: `watching.py` says when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from cloudckpt.drafts import Made, Renewed
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    ConflictError,
    CorruptCheckpointError,
    DataError,
    FencedError,
    RunDeletedError,
    StorageError,
)
from cloudckpt.folding import Folding
from cloudckpt.leases import Terms
from cloudckpt.model import Manifest
from cloudckpt.pointer import Base, Pointer

M = TypeVar("M", bound="Made")
T = TypeVar("T")


class Holding:
    """The part of `RunWriter` that holds its run.

    Attributes:
        id: Its name in manifests.
        fenced: Why it can't commit any more, once it has learned so.
        written: When it last wrote, by its monotonic clock.
    """

    id: str
    fenced: FencedError | RunDeletedError | None
    written: float
    _effects: Effects
    _terms: Terms
    _gives_back: bool  # whether it took a run of workers' without a lease of its own
    _lock: AbstractAsyncContextManager[None]
    _conflict: ConflictError | None
    _epoch: int | None
    _pointer: Pointer
    _folding: Folding

    _standing: Base | None = None
    _shown: Base | None = None

    @property
    def base(self) -> Base | None:
        """The manifest this writer last read or wrote; None when it must be read or is not ours.

        While a request is under way, such as one that renews the lease, it is the one from before.
        """
        base = self._shown
        return base if base is not None and base.manifest.epoch == self._epoch else None

    @property
    def _base(self) -> Base | None:
        """What the next commit is made on; None: not known, read it before."""
        return self._standing

    @_base.setter
    def _base(self, base: Base | None) -> None:
        self._standing = base
        if base is not None:
            self._shown = base

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Not know what stands until the answer has come; what stood before is told meanwhile."""
        self._base = None
        try:
            yield
        except BaseException:
            self._shown = None
            raise

    async def reread(self) -> Base:
        """Read the manifest for what others have said in it, such as an answer; a conflict stays one."""
        async with self._lock:
            with self._asking():
                return await self._known()

    async def renew(self, *, after: float = 0.0) -> None:
        """Renew the lease, unless something was written in the last `after` seconds.

        Raises:
            FencedError, ConflictError, RunDeletedError, OutcomeUnknownError: As `RunWriter.save`.
        """
        async with self._lock:
            if self._epoch is not None and self._effects.clock.monotonic() - self.written >= after:
                await self._commit(self._renewed, self._effects.new_id())

    async def _renewed(self, manifest: Manifest) -> Renewed:
        return Renewed(replace(manifest, nonce=self._effects.new_id()))

    async def release(self) -> None:
        """Leave the run free for the next one, if this one had a lease or took a run that had one.

        Safe to call again.
        """
        base = self.base
        if base is None:
            return
        lease, free = base.manifest.lease, replace(self._terms, offers=True)
        held = self._gives_back if lease is None else lease.seconds is not None
        if not held or free.next(base.manifest) is None:
            return
        self._terms = free
        # What fails here costs the next one the lease's time and nothing else.
        with suppress(ConflictError, RunDeletedError, StorageError):
            await self.renew()

    async def look(self) -> None:
        """Learn what others wrote, by a request that costs next to nothing while nobody did.

        Raises:
            FencedError: Another process became the writer.
            RunDeletedError: The run has a tombstone.
        """
        base = self.base if self._base is not None else None  # else a request is under way, which will tell
        newer = None if base is None else await self._pointer.newer(base)
        if base is None or newer is None:
            return
        async with self._lock:
            if self._base is base:  # else it was written meanwhile, and that told all there is
                self._check(newer)
                if newer.manifest.seq == base.manifest.seq:
                    self._base = newer  # a tag, or a collector's fence
                    self._folding.forget()

    async def adopt(self, base: Base) -> None:
        """Go on from what stands now that this process changed the manifest without saving, such as by a tag.

        That is read, unless it is known: a commit of this writer may have landed on top since, and
        who forgets it takes its checkpoint for a stranger's, and does an action that it noted again.
        """
        async with self._lock:
            if base.manifest.epoch != self._epoch or (self._base and self._base.token == base.token):
                return
            self._folding.forget()
            with suppress(DataError, StorageError), self._asking():  # then the next commit reads it
                self._base = await self._pointer.read_existing()

    async def reading(self, read: Callable[[Manifest], Awaitable[T]]) -> T:
        """Return what `read` makes of the run as its writer knows it, which it becomes for that.

        What the manifest refers to may be gone when somebody else has deleted the run or taken it
        over: that is said then, and not that something is missing.
        """
        known = await self.become()
        try:
            return await read(known)
        except CorruptCheckpointError:
            if self._conflict is not None:  # what it knows is another writer's since
                raise self._conflict from None
            seen = await self._pointer.read_existing()
            async with self._lock:
                self._check(seen)
            if seen.manifest.nonce == known.nonce:
                raise
            return await read(seen.manifest)

    def _leased(self, made: M) -> M:
        """Return what is committed, with the lease that goes with it; a copy is one no more."""
        lease = self._terms.next(made.manifest)
        if lease == made.manifest.lease and made.manifest.copied is None:
            return made
        return replace(made, manifest=replace(made.manifest, lease=lease, copied=None))

    async def _commit(
        self, make: Callable[[Manifest], Awaitable[M]], commit: str, expect: int | None = None
    ) -> M:
        raise NotImplementedError

    async def _known(self) -> Base:
        raise NotImplementedError

    def _check(self, base: Base) -> None:
        raise NotImplementedError

    async def become(self, *, expect: int | None = None) -> Manifest:
        """Become the run's writer, see `RunWriter`."""
        raise NotImplementedError
