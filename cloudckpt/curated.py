"""What can be done with a run besides saving and loading its state.

Owns: what people say of a run and its checkpoints, its rules and its rollback, as methods
of `Run`; each in two forms, sync and async with a leading ``a``. Invariant: none but
`rollback` and `repair` becomes the run's writer, so an operator never fences an agent by a tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudckpt.errors import InvalidInputError
from cloudckpt.history import Which
from cloudckpt.labels import check_metadata, check_tags, check_words
from cloudckpt.late import Late
from cloudckpt.looking import Looking
from cloudckpt.model import CheckpointInfo, Hold, Manifest, Origin, describe
from cloudckpt.pointer import Base
from cloudckpt.retention import Retention
from cloudckpt.twins import awaited, waits

if TYPE_CHECKING:
    import getpass
    import socket

    from cloudckpt import curate, drafts, examine
    from cloudckpt import repair as repairing
    from cloudckpt import restore as restoring
    from cloudckpt import verify as verifying
    from cloudckpt.commit import RunWriter
    from cloudckpt.curate import Thinned
    from cloudckpt.examine import Verified
    from cloudckpt.repair import Repaired
    from cloudckpt.restore import Restored
else:  # a load needs none of them
    curate = Late("cloudckpt.curate")
    drafts = Late("cloudckpt.drafts")
    examine = Late("cloudckpt.examine")
    getpass = Late("getpass")
    repairing = Late("cloudckpt.repair")
    restoring = Late("cloudckpt.restore")
    socket = Late("socket")
    verifying = Late("cloudckpt.verify")


class Curated(Looking):
    """The part of `Run` that is for operators."""

    _writer: RunWriter | None

    def _claimed(self) -> RunWriter:
        raise NotImplementedError

    async def _adopt(self, base: Base) -> None:
        if self._writer is not None:
            await self._writer.adopt(base)

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
        hold = Hold(who(by), check_words(why, "why"), self._core.effects.clock.now())
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

    async def _retain(
        self, retention: Retention | None = None, *, default: bool = False, dry_run: bool = False
    ) -> Thinned:
        """Apply rules to the whole history now, and keep them for this run from now on. Destructive.

        Args:
            retention: The rules; None applies those that the run has.
            default: They are the store's: a run that an operator or its code gave its own keeps those.
            dry_run: Only say what would be kept, and why, and what dropped.

        Raises:
            RunNotFoundError, RunDeletedError: There is no such run.
        """
        who = None if retention is None else "store" if default else "operator"
        if dry_run:

            async def plan(manifest: Manifest) -> Thinned:
                rules, _ = curate.rules_for(manifest, retention, who)
                now = self._core.effects.clock.now()
                return await curate.plan_retention(self.access, manifest, rules, now=now)

            return await self.access.reading(plan)
        base, told = await curate.apply_retention(self.access, retention, who)
        await self._adopt(base)
        return told

    retain = waits(_retain)
    aretain = awaited(_retain)

    # ---- cold tiers

    async def _restore(
        self,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        days: int = 7,
        tier: str = "standard",
        wait: bool = False,
    ) -> Restored:
        """Ask the store for a checkpoint in a cold tier, by default the newest. Safe to call again.

        Asks for nothing that can be read already.

        Args:
            seq: Which checkpoint.
            tag: Which checkpoint, by its tag.
            step: Which checkpoint, by its step.
            days: How long it can be read afterwards, where the store makes a copy for a time (S3).
            tier: How fast: ``"standard"``, ``"bulk"`` (slower and cheaper) or ``"expedited"``.
            wait: Return only when it can be read, which takes from a minute to two days.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            RunNotFoundError, RunDeletedError: Nor is the run.
            UnsupportedStoreError: The engine can't ask for it.
        """
        which = Which(seq=seq, tag=tag, step=step)
        return await restoring.restore(self.access, which, days=days, speed=tier, wait=wait)

    restore = waits(_restore)
    arestore = awaited(_restore)

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
        draft = drafts.Draft(
            commit=self._core.effects.new_id(),
            state=drafts.Again(entry.seq),
            origin=Origin(self.id, entry.seq),
            metadata=check_metadata(metadata),
        )
        manifest, new = await self._claimed().save(draft)
        return describe(manifest, new)

    rollback = waits(_rollback)
    arollback = awaited(_rollback)

    # ---- damage

    async def _verify(self, *, depth: int = 2, deep: bool = False) -> Verified:
        """Say what of this run is damaged or missing. Reads only, and safe while a writer is at work.

        Args:
            depth: 1: the manifest, the pages of history, the hash chain through both. 2: also that
                every object exists with the right length, by listing. 3: every byte is read and hashed.
            deep: The same as depth 3.

        Raises:
            RunNotFoundError: There is nothing of such a run in the store.
            InvalidInputError: There is no such depth.
        """
        return (await verifying.verify(self.access, examine.check_depth(depth, deep=deep)))[0]

    verify = waits(_verify)
    averify = awaited(_verify)

    async def _repair(self, *, depth: int = 2, drop_damaged: bool = False, dry_run: bool = False) -> Repaired:
        """Make a damaged run loadable again: its newest intact checkpoint becomes the newest once more.

        That is a new checkpoint, as by `rollback`; it becomes the run's writer only when there is
        something to repair. Safe to call again.

        Args:
            depth: How deep to look at older checkpoints, see `verify`.
            drop_damaged: Also take damaged older checkpoints, and pages of history that can't be
                read, out of the history, so that retention and collecting go on. Destructive.
            dry_run: Only say what would be done.

        Raises:
            CorruptCheckpointError: The manifest is damaged, or no checkpoint is intact.
            HeldError: What would be dropped is held.
            RunNotFoundError, RunDeletedError: There is no such run.
        """
        depth = examine.check_depth(depth, deep=False)
        done, edited = await repairing.repair(
            self.access, self._claimed, depth=depth, drop_damaged=drop_damaged, dry_run=dry_run
        )
        if edited is not None:
            await self._adopt(edited)
        return done

    repair = waits(_repair)
    arepair = awaited(_repair)


def who(by: str | None) -> str:
    """Return who says something, as a caller names them, or by default this user.

    Raises:
        InvalidInputError: It is no str.
    """
    return whoami() if by is None or by == "" else check_words(by, "by")


def whoami() -> str:
    """Return who a person is to others, for holds and tombstones: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in this container
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
