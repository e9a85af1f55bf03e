"""Becoming a run's writer, and committing to it.

Owns: rules 1 and 4 of the protocol (docs/ARCHITECTURE.md). Invariants:

* A manifest is only ever written over the base that it was derived from, and the
  base is read before an upload begins; after a lost race a payload is put again
  under a new key.
* A payload is an object, or rides inline in every manifest until a commit whose
  writer knows that its object exists.
* Only what a landed commit dropped is deleted, after that commit, and by this
  writer only what was written for the very checkpoint that expired.

It does not encode states, choose what expires, move what is old into history, or
resolve doubtful answers.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

from cloudckpt.codec import Encoded
from cloudckpt.drafts import Again, Draft, Next
from cloudckpt.effects import Effects
from cloudckpt.entries import entry_digest
from cloudckpt.errors import (
    CheckpointNotFoundError,
    ConflictError,
    FencedError,
    RunDeletedError,
    StaleStateError,
)
from cloudckpt.folding import Folding, merged, owned, ranges, tail
from cloudckpt.model import RECENT_COMMITS, Entry, Manifest, Writer
from cloudckpt.objects import Objects
from cloudckpt.pages import Pages, find
from cloudckpt.pointer import Base, Pointer
from cloudckpt.retention import Retention, plan_expiry, rules_of, settled
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.retry import RetryPolicy
from cloudckpt.sweep import Sweeper

INLINE_BYTES = 32 * 1024
"""A payload of at most this many bytes rides in the manifest."""


class RunWriter:
    """One process's claim to write one run. Safe for concurrent calls.

    Args:
        storage: The store, with repeatable calls repeated.
        effects: Time, chance and concurrency.
        run: The run's id.
        rules: Which checkpoints are kept; None for what the run, the store or the default says.
        policy: How long a doubtful commit is followed up.
        prepare: Awaited before the run's first manifest is created; returns the store's own rules.
        sweeper: Deletes what commits dropped; one of its own by default.
    """

    def __init__(
        self,
        storage: Storage,
        effects: Effects,
        run: str,
        *,
        rules: Retention | None = None,
        policy: RetryPolicy,
        prepare: Callable[[], Awaitable[Retention | None]],
        sweeper: Sweeper | None = None,
    ) -> None:
        self._effects = effects
        self._run = run
        self._rules = rules
        self._prepare = prepare
        self._writer = Writer(effects.new_id(), socket.gethostname(), os.getpid(), effects.clock.now())
        self._lock = effects.lock()
        self._epoch: int | None = None
        self._base: Base | None = None  # None: not known, read it before the next commit
        self._conflict: ConflictError | None = None
        self._unknown: set[str] = set()  # commits of ours that may still land
        self._pointer = Pointer(storage, effects, run, policy)
        self._sweeper = sweeper or Sweeper(storage, effects)
        self.objects = Objects(storage, effects, run, self._sweeper)
        self.pages = Pages(storage, effects, run)
        self._folding = Folding(self.pages, self.objects, effects)

    @property
    def base(self) -> Base | None:
        """The manifest this writer last read or wrote; None when it must be read or is not ours."""
        base = self._base
        return base if base is not None and base.manifest.epoch == self._epoch else None

    @property
    def is_writer(self) -> bool:
        """Whether it became the run's writer, and may have been fenced since."""
        return self._epoch is not None

    async def become(self) -> Manifest:
        """Become the run's writer, once: later calls return what is known."""
        async with self._lock:
            if self._epoch is None:
                await self._become(None)
            return (await self._known()).manifest

    async def newest(self) -> Base:
        """Read the manifest, as whoever loads must: another process may be the writer since.

        After a conflict this allows saving on top of what was read.
        """
        async with self._lock:
            self._base = None
            base = await self._known()
            self._conflict = None
            return base

    async def save(self, draft: Draft) -> tuple[Manifest, Entry]:
        """Commit a checkpoint; durable when it returns.

        Raises:
            FencedError: Another process became the writer.
            ConflictError: Another commit was made on top of the base.
            StaleStateError: `draft.expect` is not the run's newest checkpoint.
            RunDeletedError: The run has a tombstone.
            OutcomeUnknownError: It may or may not have been committed.
        """
        async with self._lock:
            if self._conflict is not None:
                raise self._conflict
            if self._epoch is None:
                await self._become(draft.expect)
            base = await self._known()
            while True:
                self._check(base)
                self._check_expected(base, draft.expect)
                next_ = await self._next(base.manifest, draft)
                new, entry = next_.manifest, next_.entry
                self._base = None  # until the answer is known
                self._unknown.add(draft.commit)
                seen, landed = await self._pointer.swap(base, new, self._landing(entry), draft.commit)
                self._unknown.discard(draft.commit)  # a base that moved can't take a late request
                if landed:
                    break
                self._check_lost(base, seen)
                self._folding.forget()
                base = seen
            if seen.manifest.nonce != new.nonce:
                self._folding.forget()  # somebody wrote on top, such as a collector's fence
            self._base = seen
            crowded = {x.key for one in tail(new) for x in one.extents}
            self.objects.landed(new, next_.rides, crowded)
            self.objects.drop(next_.dropped, new.inline)
            self._folding.landed(seen.manifest, rules_of(new.retention))
            return seen.manifest, entry

    async def adopt(self, base: Base) -> None:
        """Go on from a manifest that this process changed without saving, such as by a tag."""
        async with self._lock:
            if base.manifest.epoch == self._epoch:
                self._base = base
                self._folding.forget()

    async def settle(self) -> None:
        """Wait for what was started aside, and delete what waits for it."""
        await self._folding.settle()
        await self.objects.settle()
        await self._sweeper.settle()

    # ---- the base

    async def _known(self) -> Base:
        if self._base is None:
            self._base = await self._pointer.read_existing()
            self._folding.forget()
        return self._base

    def _check(self, base: Base) -> None:
        manifest = base.manifest
        if manifest.status == "deleted":
            raise RunDeletedError("the run was deleted; save under another run id", run=self._run)
        if manifest.epoch != self._epoch:
            raise self._fenced(manifest)

    def _fenced(self, manifest: Manifest) -> FencedError:
        writer = manifest.writer
        self._base = None
        self._conflict = FencedError(
            "another process became the run's writer; stop, it goes on from the last checkpoint",
            run=self._run,
            host=writer.host,
            pid=writer.pid,
            since=writer.since.isoformat(timespec="seconds"),
            epoch=manifest.epoch,
            own_epoch=self._epoch,
        )
        return self._conflict

    def _check_expected(self, base: Base, expect: int | None) -> None:
        """Refuse a state that does not continue the newest checkpoint.

        A commit of ours whose outcome was unknown and that landed after all is no
        stranger: the caller tries the same state again.
        """
        manifest = base.manifest
        if expect is None or manifest.seq == expect:
            return
        if expect < manifest.seq and self._only_ours(manifest, expect):
            return
        raise StaleStateError(
            "the state does not continue the run's newest checkpoint; load the run and go on from there, "
            "fork it, or use another run id",
            run=self._run,
            newest=manifest.seq,
            state_is_of=expect or None,
        )

    def _only_ours(self, manifest: Manifest, after: int) -> bool:
        """Whether every checkpoint after `after` is a commit of ours that had an unknown outcome."""
        return all(manifest.commit_of(seq) in self._unknown for seq in range(after + 1, manifest.seq + 1))

    def _check_lost(self, base: Base, seen: Base) -> None:
        self._check(seen)
        if not self._only_ours(seen.manifest, base.manifest.seq):
            self._conflict = ConflictError(
                "another commit was made on top of the one this writer knew; load the run, then decide",
                run=self._run,
                known=base.manifest.seq,
                newest=seen.manifest.seq,
            )
            raise self._conflict  # `_base` stays unknown, so that it is read again

    # ---- becoming the writer

    async def _become(self, expect: int | None) -> None:
        while True:
            base = await self._pointer.read()
            if base is None:
                rules = settled(None, self._rules, await self._prepare())
                new = Manifest(self._run, 0, self._effects.new_id(), 1, self._writer, retention=rules)
                self._check_expected(Base(new, ""), expect)
            elif base.manifest.status == "deleted":
                raise RunDeletedError("the run was deleted; use another run id", run=self._run)
            else:
                self._check_expected(base, expect)  # before anybody is fenced
                new = replace(
                    base.manifest,
                    nonce=self._effects.new_id(),
                    epoch=base.manifest.epoch + 1,
                    writer=self._writer,
                    retention=settled(base.manifest.retention, self._rules, None),
                    copied=None,
                )
            seen, landed = await self._pointer.swap(base, new, self._taken(new.epoch))
            if landed:
                self._epoch, self._base = new.epoch, seen
                self.objects.landed(seen.manifest)  # what an earlier writer left riding
                return

    def _taken(self, epoch: int) -> Callable[[Manifest], bool]:
        return lambda m: m.epoch == epoch and m.writer.id == self._writer.id

    # ---- one commit

    async def _next(self, manifest: Manifest, draft: Draft) -> Next:
        """Put the payload, unless it rides or is there; return what to commit over `manifest`."""
        riding: dict[str, bytes] = {}
        if isinstance(draft.state, Again):
            entry = await self._again(manifest, draft, draft.state.seq)
        else:
            entry = await self._new(manifest, draft, draft.state)
            if len(draft.state.data) <= INLINE_BYTES:
                riding[entry.extents[0].key] = draft.state.data
        rules, now = rules_of(manifest.retention), entry.time
        plan = plan_expiry(
            (entry, *manifest.checkpoints), rules=rules, epoch=manifest.epoch, now=now, hold=manifest.hold
        )
        new = replace(
            manifest,
            seq=entry.seq,
            nonce=self._effects.new_id(),
            checkpoints=plan.kept,
            recent=(draft.commit, *manifest.recent)[:RECENT_COMMITS],
            expired=merged((*ranges(plan.dropped, now, rules), *manifest.expired)),
        )
        new, fold = await self._folding.fold(new)
        wanted = new.keys()
        dropped = {k: n for gone in plan.dropped for k, n in owned(gone).items() if k not in wanted}
        if fold is not None:
            dropped |= {k: n for k, n in fold.dropped.items() if k not in wanted}
        inline = {k: v for k, v in manifest.inline.items() if k in wanted and not self.objects.exists(k)}
        return Next(replace(new, inline=inline | riding), entry, next(iter(riding), None), dropped)

    async def _new(self, manifest: Manifest, draft: Draft, encoded: Encoded) -> Entry:
        """Put a new state, or make room for it to ride; return its entry."""
        seq = manifest.seq + 1
        extents = await self.objects.extents(seq, encoded.data)
        if len(encoded.data) <= INLINE_BYTES:
            await self.objects.make_room(manifest, len(encoded.data))
        else:
            await self.objects.put(extents, encoded.data)
        parent = manifest.head
        whole = await self.objects.digest(memoryview(encoded.data)) if len(extents) > 1 else extents[0].digest
        return Entry(
            seq=seq,
            step=draft.step,
            commit=draft.commit,
            epoch=manifest.epoch,
            parent=parent.seq if parent else None,
            parent_digest=entry_digest(parent) if parent else None,
            digest=whole,
            size=len(encoded.data),
            encoded_digest=encoded.encoded_digest,
            encoded_size=encoded.encoded_size,
            codec=encoded.codec,
            schema=encoded.schema,
            schema_version=encoded.schema_version,
            fingerprint=draft.fingerprint,
            time=self._effects.clock.now(),
            tags=draft.tags,
            metadata=draft.metadata,
            extents=extents,
            origin=draft.origin,
        )

    async def _again(self, manifest: Manifest, draft: Draft, seq: int) -> Entry:
        """Return the entry of a state that the run has already."""
        old = await find(
            self.pages, manifest, lambda one: one.seq == seq, lambda page: page.oldest <= seq <= page.newest
        )
        parent = manifest.head
        if old is None or parent is None:
            raise CheckpointNotFoundError(
                "the checkpoint has expired meanwhile; choose one that is retained", run=self._run, seq=seq
            )
        return replace(
            old,
            seq=manifest.seq + 1,
            commit=draft.commit,
            epoch=manifest.epoch,
            parent=parent.seq,
            parent_digest=entry_digest(parent),
            time=self._effects.clock.now(),
            tags=draft.tags,
            metadata=draft.metadata,
            origin=draft.origin,
            hold=None,
            notes={},
        )

    def _landing(self, entry: Entry) -> Callable[[Manifest], bool]:
        def landed(manifest: Manifest) -> bool:
            if manifest.seq < entry.seq:
                return False
            commit = manifest.commit_of(entry.seq)
            if commit is None:  # so much was committed since that the manifest has forgotten it
                raise self._pointer.outcome_unknown(entry.commit)
            return commit == entry.commit

        return landed
