"""What can be done with a run besides saving and loading its state.

Owns: the history of a run, and what people say of it, as methods of `Run`; each in
two forms, sync and async with a leading ``a``. Invariant: none but `rollback`
becomes the run's writer, so an operator never fences an agent by looking or by a tag.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from cloudckpt import curate
from cloudckpt.access import Access
from cloudckpt.commit import RunWriter
from cloudckpt.core import Core
from cloudckpt.curate import Thinned
from cloudckpt.drafts import Again, Draft
from cloudckpt.errors import CheckpointNotFoundError, InvalidInputError, RunNotFoundError
from cloudckpt.history import Filter, Which, choose, listed
from cloudckpt.labels import check_metadata, check_tags
from cloudckpt.model import CheckpointInfo, Entry, Hold, Manifest, Origin, describe
from cloudckpt.pointer import Base
from cloudckpt.retention import Retention, rules_of
from cloudckpt.twins import awaited, waits


class Curated:
    """The part of `Run` that is for operators."""

    id: str
    _core: Core
    _writer: RunWriter | None

    def _claimed(self) -> RunWriter:
        raise NotImplementedError

    @property
    def access(self) -> Access:
        """The run as the operations of this package have it."""
        return self._core.access(self.id)

    async def _adopt(self, base: Base) -> None:
        if self._writer is not None:
            await self._writer.adopt(base)

    # ---- looking

    async def _history(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> list[CheckpointInfo]:
        """Return the retained checkpoints, newest first; none for a run that does not exist.

        Reads the manifest and only those pages of older checkpoints that may hold what is asked for.

        Args:
            since: Only those saved at or after this time, by their writers' clocks.
            until: Only those saved before this time.
            step: Only those with this step.
            tag: Only those with this tag.
            limit: At most so many of the newest, from 1.

        Raises:
            InvalidInputError: An argument is not usable.
            CorruptCheckpointError: The manifest or a page is damaged.
        """
        wanted = Filter(since=since, until=until, step=step, tag=tag, limit=limit)

        async def look(manifest: Manifest) -> list[CheckpointInfo]:
            entries = await listed(self.access.pages, manifest, wanted)
            return [describe(manifest, entry) for entry in entries]

        try:
            return await self.access.reading(look, deleted=True)
        except RunNotFoundError:
            return []

    history = waits(_history)
    ahistory = awaited(_history)

    async def _find(
        self, *, seq: int | None = None, tag: str | None = None, step: int | None = None
    ) -> CheckpointInfo:
        """Return what is known of one checkpoint, without its state: by default the newest.

        Raises:
            CheckpointNotFoundError: It is not there; says when it expired and by which rule, if it did.
            RunNotFoundError, RunDeletedError: Nor is the run.
        """
        manifest, entry = await self._look(Which(seq=seq, tag=tag, step=step))
        return describe(manifest, entry)

    find = waits(_find)
    afind = awaited(_find)

    async def _look(self, which: Which) -> tuple[Manifest, Entry]:
        async def look(manifest: Manifest) -> tuple[Manifest, Entry]:
            entry = await choose(self.access.pages, manifest, which)
            if entry is None:
                raise CheckpointNotFoundError("the run has no checkpoint yet", run=self.id)
            return manifest, entry

        return await self.access.reading(look)

    # ---- saying something

    async def _tag(self, tag: str, *, seq: int | None = None, step: int | None = None) -> CheckpointInfo:
        """Give a checkpoint, by default the newest, a name; it no longer expires. Safe to call again.

        Raises:
            InvalidInputError: The tag is not usable.
            CheckpointNotFoundError: There is no such checkpoint.
        """
        check_tags([tag])
        return await self._edit(Which(seq=seq, step=step), curate.tagged(tag))

    tag = waits(_tag)
    atag = awaited(_tag)

    async def _untag(self, tag: str, *, seq: int | None = None) -> CheckpointInfo:
        """Take a tag from a checkpoint, by default the newest that has it.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
        """
        which = Which(tag=tag) if seq is None else Which(seq=seq)
        return await self._edit(which, curate.untagged(tag))

    untag = waits(_untag)
    auntag = awaited(_untag)

    async def _annotate(
        self, notes: Mapping[str, Any], *, seq: int | None = None, tag: str | None = None
    ) -> CheckpointInfo:
        """Add notes to a checkpoint, by default the newest: JSON values by name. None takes one away.

        Raises:
            InvalidInputError: A value is not plain JSON.
            CheckpointNotFoundError: There is no such checkpoint.
        """
        return await self._edit(Which(seq=seq, tag=tag), curate.annotated(check_metadata(notes)))

    annotate = waits(_annotate)
    aannotate = awaited(_annotate)

    async def _edit(self, which: Which, change: Any) -> CheckpointInfo:
        base, entry = await curate.edit_checkpoint(self.access, which, change)
        await self._adopt(base)
        return describe(base.manifest, entry)

    async def _hold(
        self,
        why: str,
        *,
        by: str | None = None,
        seq: int | None = None,
        tag: str | None = None,
        whole: bool = False,
    ) -> None:
        """Keep a checkpoint, or the whole run, from expiry and deletion until it is released.

        A hold that is there already stays as it is.

        Args:
            why: For those who will want to delete it.
            by: Who sets it; by default this user on this host.
            seq: Which checkpoint; by default the newest.
            tag: Which checkpoint, by its tag.
            whole: The whole run instead.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
        """
        if not isinstance(why, str) or not why.strip():
            raise InvalidInputError("say why it is held: those who find the hold will ask", got=why)
        hold = Hold(by or whoami(), why, self._core.effects.clock.now())
        await self._set_hold(hold, Which(seq=seq, tag=tag), whole=whole)

    hold = waits(_hold)
    ahold = awaited(_hold)

    async def _release(self, *, seq: int | None = None, tag: str | None = None, whole: bool = False) -> None:
        """Take a hold off a checkpoint, by default the newest, or off the whole run. Safe to call again."""
        await self._set_hold(None, Which(seq=seq, tag=tag), whole=whole)

    release = waits(_release)
    arelease = awaited(_release)

    async def _set_hold(self, hold: Hold | None, which: Which, *, whole: bool) -> None:
        if not whole:
            await self._edit(which, curate.held(hold))
            return
        if which != Which():
            raise InvalidInputError("name a checkpoint, or the whole run, not both")
        base = await curate.edit_run(self.access, lambda m: m if hold and m.hold else replace(m, hold=hold))
        await self._adopt(base)

    # ---- rules

    async def _retain(self, retention: Retention | None = None, *, dry_run: bool = False) -> Thinned:
        """Apply rules to the whole history now, and keep them for this run from now on. Destructive.

        Args:
            retention: The rules; None applies those that the run has.
            dry_run: Only say what would be kept, and why, and what dropped.

        Raises:
            RunNotFoundError, RunDeletedError: There is no such run.
        """
        if dry_run:

            async def plan(manifest: Manifest) -> Thinned:
                rules = retention or rules_of(manifest.retention)
                return await curate.plan_retention(self.access, manifest, rules)

            return await self.access.reading(plan)
        who = None if retention is None else "operator"
        base, told = await curate.apply_retention(self.access, retention, who)
        await self._adopt(base)
        return told

    retain = waits(_retain)
    aretain = awaited(_retain)

    # ---- going back

    async def _rollback(
        self,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointInfo:
        """Make an older checkpoint's state the newest, as a new checkpoint: history only grows.

        Becomes the run's writer, so an agent that is still at work is fenced.

        Args:
            seq: Which checkpoint.
            tag: Which checkpoint, by its tag.
            step: Which checkpoint, by its step.
            metadata: Of the new checkpoint.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            InvalidInputError: None was named.
        """
        which = Which(seq=seq, tag=tag, step=step)
        if which == Which():
            raise InvalidInputError("name the checkpoint to go back to by one of seq, tag and step")
        _, entry = await self._look(which)
        draft = Draft(
            commit=self._core.effects.new_id(),
            state=Again(entry.seq),
            origin=Origin(self.id, entry.seq),
            metadata=check_metadata(metadata),
        )
        manifest, new = await self._claimed().save(draft)
        return describe(manifest, new)

    rollback = waits(_rollback)
    arollback = awaited(_rollback)


def whoami() -> str:
    """Return who a person is to others, for holds and tombstones: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in this container
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
