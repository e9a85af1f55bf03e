"""A run as an operator has it: to look at, and to change what is said of it.

Owns: how a manifest is changed by somebody who is not its writer. Invariants: no
checkpoint is added or changed by it, so a writer that is at work fails its next
conditional write, finds that nothing was committed on top, and goes on by itself;
what a landed change dropped is deleted before it returns. It does not know what is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from cloudckpt.effects import Effects
from cloudckpt.errors import ConflictError, CorruptCheckpointError, RunDeletedError, RunNotFoundError
from cloudckpt.model import Entry, Manifest
from cloudckpt.pages import Pages
from cloudckpt.pointer import Base, Pointer
from cloudckpt.retention import placing_in
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.placed import Placer
from cloudckpt.storage.retry import Retries, RetryPolicy
from cloudckpt.sweep import Sweeper

T = TypeVar("T")

REREADS = 3
"""How often a reading starts again when somebody expires what is being read."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A manifest to be written, and the objects that nothing refers to after that, with their bytes."""

    manifest: Manifest
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """One run in its store.

    Attributes:
        storage: The store, with repeatable calls repeated.
        effects: Time, chance and concurrency.
        run: The run's id.
        policy: How long a doubtful write is followed up.
        sweeper: Deletes what is dropped.
    """

    storage: Storage
    effects: Effects
    run: str
    policy: RetryPolicy
    sweeper: Sweeper

    @cached_property
    def pages(self) -> Pages:
        """The run's history objects."""
        return Pages(self.storage, self.effects, self.run, self.placer)

    @cached_property
    def placer(self) -> Placer:
        """Puts the run's objects, as the rules of the manifest that is being amended say."""
        return Placer(self.storage)

    @cached_property
    def pointer(self) -> Pointer:
        """The run's manifest."""
        return Pointer(self.storage, self.effects, self.run, self.policy)

    async def base(self, *, deleted: bool = False) -> Base:
        """Read the manifest.

        Args:
            deleted: Whether a tombstone will do.

        Raises:
            RunNotFoundError: There is no such run.
            RunDeletedError: It has a tombstone.
            CorruptCheckpointError: The manifest is damaged.
        """
        base = await self.pointer.read()
        if base is None:
            raise RunNotFoundError("there is no such run in this store", run=self.run, url=self.storage.url)
        if base.manifest.status == "deleted" and not deleted:
            raise RunDeletedError("the run was deleted; nothing of it is left", run=self.run)
        return base

    async def reading(self, work: Callable[[Manifest], Awaitable[T]], *, deleted: bool = False) -> T:
        """Return what `work` makes of the manifest; again, when somebody expired what it was reading."""
        base = await self.base(deleted=deleted)
        for _ in range(REREADS):
            try:
                return await work(base.manifest)
            except CorruptCheckpointError:
                newer = await self.base(deleted=deleted)
                if newer.token == base.token:
                    raise
                base = newer
        return await work(base.manifest)

    async def amend(
        self, edit: Callable[[Manifest], Awaitable[Edit | None]], *, deleted: bool = False
    ) -> tuple[Base, bool]:
        """Write an edited manifest over the one that stands; return what stands then, and whether it was.

        Args:
            edit: Returns the change, or None when there is nothing to do. It is asked
                again whenever somebody else wrote meanwhile, also when its own answer got
                lost, so what it does must be the same when it is done already.
            deleted: Whether a tombstone will do.

        Raises:
            ConflictError: The run is written to so often that there was no room for it.
            OutcomeUnknownError: It may or may not have been written.
        """
        retries = Retries(self.policy, self.effects)
        while True:
            base = await self.base(deleted=deleted)
            self.placer.ask(placing_in, base.manifest.retention, self.effects.clock)
            try:
                wanted = await edit(base.manifest)
            except CorruptCheckpointError:
                if (await self.base(deleted=deleted)).token == base.token or not await retries.pause():
                    raise
                continue
            if wanted is None:
                return base, False
            new = replace(wanted.manifest, nonce=self.effects.new_id(), copied=None)
            seen, landed = await self.pointer.swap(base, new, _has(new.nonce))
            if landed:
                if wanted.dropped:  # now: what waits would go from under a copy that refers to it again
                    self.sweeper.doom(wanted.dropped)
                    await self.sweeper.settle()
                return seen, True
            if not await retries.pause():
                raise ConflictError("the run is being written to all the time; try again later", run=self.run)

    async def edited(self, manifest: Manifest, seq: int, change: Callable[[Entry], Entry]) -> Edit | None:
        """Return the manifest with one retained checkpoint changed; None when it is like that already.

        Raises:
            KeyError: `seq` is not retained.
        """
        for place, entry in enumerate(manifest.checkpoints):
            if entry.seq == seq:
                new = change(entry)
                if new == entry:
                    return None
                own = manifest.checkpoints
                return Edit(replace(manifest, checkpoints=(*own[:place], new, *own[place + 1 :])))
        edited = await self.pages.edit(manifest.history, seq, change)
        if edited is None:
            raise KeyError(seq)
        history, replaced = edited
        if history == manifest.history:
            return None
        return Edit(
            replace(manifest, history=history), {self.pages.key(page): page.size for page in replaced}
        )


def _has(nonce: str) -> Callable[[Manifest], bool]:
    return lambda manifest: manifest.nonce == nonce
