"""Becoming a run's writer, and committing to it.

Owns: rules 1 and 4 of the protocol (docs/ARCHITECTURE.md). Invariants:

* A manifest is only ever written over the base that it was derived from, and the
  base is read before an upload begins; after a lost race a payload is put again
  under a new key.
* A payload is an object, or rides inline in every manifest until a commit whose
  writer knows that its object exists.
* Only what a landed commit dropped is deleted, after that commit, and by this
  writer only what was written for the very checkpoint that expired.

It does not encode states, make manifests (`making.py`), or resolve doubtful answers.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from cloudckpt.drafts import Draft, Made, Noted, Renewed
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    ConflictError,
    CorruptCheckpointError,
    FencedError,
    RunBusyError,
    RunDeletedError,
    StaleStateError,
)
from cloudckpt.folding import Folding, tail
from cloudckpt.holding import Holding
from cloudckpt.hooks import INFO, tell
from cloudckpt.late import Late
from cloudckpt.leases import NO_LEASE, Sightings, Terms
from cloudckpt.ledger import Begin, Note, has
from cloudckpt.making import Maker
from cloudckpt.model import Entry, Manifest, Writer
from cloudckpt.objects import Objects
from cloudckpt.pages import Pages
from cloudckpt.pointer import Base, Pointer
from cloudckpt.retention import Retention, placing_in, rules_of, settled
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.placed import Placer
from cloudckpt.storage.retry import RetryPolicy
from cloudckpt.sweep import Sweeper

if TYPE_CHECKING:
    from cloudckpt import events
else:  # made for those who listen only
    events = Late("cloudckpt.events")

M = TypeVar("M", bound="Made")


class RunWriter(Holding):
    """One process's claim to write one run. Safe for concurrent calls.

    Args:
        storage: The store, with repeatable calls repeated.
        effects: Time, chance and concurrency.
        run: The run's id.
        rules: Which checkpoints are kept; None for what the run, the store or the default says.
        policy: How long a doubtful commit is followed up.
        prepare: Awaited before the run's first manifest is created; returns the store's own rules.
        sweeper: Deletes what commits dropped; one of its own by default.
        rides: Whether small payloads ride in the manifest. Not where each object must be locked:
            a payload that rides may expire before it ever becomes an object.
        terms: Whether it holds a lease, and respects another's.
        sightings: Of this process.
        saved: Called with the manifest and the entry of each checkpoint once it is durable.
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
        rides: bool = True,
        terms: Terms = NO_LEASE,
        sightings: Sightings | None = None,
        saved: Callable[[Manifest, Entry], object] | None = None,
    ) -> None:
        self._effects = effects
        self._run = run
        self._rules = rules
        self._prepare = prepare
        self._writer = Writer(effects.new_id(), socket.gethostname(), os.getpid(), effects.clock.now())
        self._lock = effects.lock()
        self._epoch: int | None = None
        self._conflict: ConflictError | None = None
        self._unknown: set[str] = set()  # commits of ours that may still land
        self._untold: set[str] = set()  # that may have landed without their caller
        self._terms = terms
        self._gives_back = False
        self._saved = saved
        self._sightings = sightings or Sightings(effects.clock)
        self.id = self._writer.id
        self.fenced: FencedError | RunDeletedError | None = None
        self.written = effects.clock.monotonic()
        self._pointer = Pointer(storage, effects, run, policy)
        self._sweeper = sweeper or Sweeper(storage, effects)
        self.objects = Objects(Placer(storage), effects, run, self._sweeper)
        self.pages = Pages(storage, effects, run, self.objects.placer)
        self._folding = Folding(self.pages, self.objects, effects)
        self._maker = Maker(
            effects, run, objects=self.objects, pages=self.pages, folding=self._folding, rides=rides
        )
        self._notes: list[Note] = []  # that wait to be committed

    @property
    def is_writer(self) -> bool:
        """Whether it became the run's writer, and may have been fenced since."""
        return self._epoch is not None

    async def become(self, *, expect: int | None = None) -> Manifest:
        """Become the run's writer, once: later calls return what is known.

        Args:
            expect: The seq that must be the newest.
        """
        async with self._lock:
            if self._epoch is None:
                await self._become(expect)
            return (await self._known()).manifest

    async def claim(self, base: Base) -> Manifest:
        """Become the writer of a run that was found free in this very version of its manifest.

        Raises:
            RunBusyError: Somebody else wrote to it since, such as another one that claims it.
        """
        async with self._lock:
            await self._become(None, base)
            return (await self._known()).manifest

    async def newest(self) -> Base:
        """Read the manifest, as whoever loads must: another process may be the writer since.

        After a conflict this allows saving on top of what was read. Who reads is told of
        what landed without its caller: an older state no longer continues it.
        """
        async with self._lock:
            with self._asking():
                base = await self._known()
            self._conflict = None
            self._untold.clear()
            return base

    async def save(self, draft: Draft) -> tuple[Manifest, Entry]:
        """Commit a checkpoint, with notes in the ledger if it has some; durable when it returns.

        Raises:
            FencedError: Another process became the writer.
            ConflictError: Another commit was made on top of the base.
            StaleStateError: `draft.expect` is not the run's newest checkpoint.
            RunDeletedError: The run has a tombstone.
            OutcomeUnknownError: It may or may not have been committed.
        """
        began = self._effects.clock.monotonic()
        async with self._lock:
            next_ = await self._commit(
                lambda manifest: self._maker.next(manifest, draft), draft.commit, draft.expect
            )
            new = next_.manifest
            crowded = {x.key for one in tail(new) for x in one.extents}
            self.objects.landed(new, next_.rides, crowded)
            self.objects.drop(next_.dropped, new.inline)
            base = await self._known()
            self._folding.landed(base.manifest, rules_of(new.retention))
        entry, took = next_.entry, self._effects.clock.monotonic() - began
        tell(lambda: events.Saved(self._run, entry.seq, entry.step, entry.size, took))
        if self._saved is not None:
            self._saved(base.manifest, entry)
        return base.manifest, entry

    async def record(self, note: Note) -> Manifest:
        """Commit a note of the ledger; durable when it returns. Notes that wait go along together.

        Raises:
            FencedError, ConflictError, RunDeletedError, OutcomeUnknownError: As `save`.
        """
        self._notes.append(note)
        try:
            async with self._lock:
                if note in self._notes:
                    notes = list(self._notes)
                    await self._commit(lambda manifest: self._with(manifest, notes), self._effects.new_id())
                    self._notes = [one for one in self._notes if one not in notes]
                base = await self._known()
                if isinstance(note, Begin):  # who took the run over since it landed has seen it in flight
                    self._check(base)
                return base.manifest
        except BaseException:
            self._notes = [one for one in self._notes if one is not note]
            raise

    async def _with(self, manifest: Manifest, notes: list[Note]) -> Noted:
        return Noted(await self._maker.noted(replace(manifest, nonce=self._effects.new_id()), notes), notes)

    async def _commit(
        self, make: Callable[[Manifest], Awaitable[M]], commit: str, expect: int | None = None
    ) -> M:
        """Write what is made over the newest manifest, again when somebody was faster without a commit."""
        if self._conflict is not None:
            raise self._conflict
        if self._epoch is None:
            await self._become(expect)
        base = await self._known()
        while True:
            self._check(base)
            self._check_expected(base, expect)
            try:
                made = self._leased(await make(base.manifest))
            except CorruptCheckpointError:
                seen = await self._pointer.read_existing()
                if seen.token == base.token:
                    raise
                base = self._lost(base, seen)  # somebody made its pages anew, as by a tag
                continue
            self._unknown.add(commit)
            with self._asking():
                seen, landed = await self._pointer.swap(base, made.manifest, self._landing(made), commit)
            self._unknown.discard(commit)  # a base that moved can't take a late request
            if landed:
                break
            base = self._lost(base, seen)
        if seen.manifest.nonce != made.manifest.nonce:
            self._folding.forget()  # somebody wrote on top, such as a collector's fence
        self._base = seen
        self.written = self._effects.clock.monotonic()
        return made

    def _lost(self, base: Base, seen: Base) -> Base:
        """Return what to go on from when it was not the base that stood there, if one may."""
        self._check(seen)
        known = base.manifest.seq
        is_on_top = seen.manifest.commit_of(known) == base.manifest.commit_of(known)  # else it was set back
        if not (is_on_top and self._only_ours(seen.manifest, known)):
            writer = seen.manifest.writer
            tell(lambda: events.Conflicted(self._run, writer.host, writer.pid, fenced=False))
            self._conflict = ConflictError(
                "another commit was made on top of the one this writer knew; load the run, then decide"
                if is_on_top
                else "the run was set back, as by an earlier manifest; load the run, then decide",
                run=self._run,
                known=known,
                newest=seen.manifest.seq,
            )
            self._shown = None  # and `_base` stays unknown, so that it is read again
            raise self._conflict
        self._folding.forget()
        return seen

    def untold(self, commit: str) -> None:
        """Note that a save's caller is gone: it was cancelled, or interrupted, and will try again."""
        self._untold.add(commit)

    async def settle(self) -> None:
        """Wait for what was started aside, and delete what waits for it."""
        async with self._lock:  # a save that its caller gave up may still be under way
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
            self._base = self._shown = None
            self.fenced = RunDeletedError("the run was deleted; save under another run id", run=self._run)
            raise self.fenced
        if manifest.epoch != self._epoch:
            raise self._fenced(manifest)

    def _fenced(self, manifest: Manifest) -> FencedError:
        writer = manifest.writer
        self._base = self._shown = None
        tell(lambda: events.Conflicted(self._run, writer.host, writer.pid, fenced=True))
        self._conflict = self.fenced = FencedError(
            "another process became the run's writer; stop, it goes on from the last checkpoint",
            run=self._run,
            host=writer.host,
            pid=writer.pid,
            since=writer.since.isoformat(timespec="seconds"),
            epoch=manifest.epoch,
            own_epoch=self._epoch,
        )
        return self.fenced

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
        ours = self._unknown | self._untold
        return all(manifest.commit_of(seq) in ours for seq in range(after + 1, manifest.seq + 1))

    # ---- becoming the writer

    async def _become(self, expect: int | None, claimed: Base | None = None) -> None:
        while True:
            base = claimed or await self._pointer.read()
            if base is None:
                rules = settled(None, self._rules, await self._prepare())
                nonce, lease = self._effects.new_id(), self._terms.first()
                new = Manifest(self._run, 0, nonce, 1, self._writer, retention=rules, lease=lease)
                self._check_expected(Base(new, ""), expect)
            elif base.manifest.status == "deleted":
                raise RunDeletedError("the run was deleted; use another run id", run=self._run)
            else:
                self._check_expected(base, expect)  # before anybody is fenced
                untold = base.manifest.writer.id == self.id  # its own, of which it was not told
                if claimed is None and not untold:
                    self._sightings.check(base.manifest, self._terms)
                new = replace(
                    base.manifest,
                    nonce=self._effects.new_id(),
                    epoch=base.manifest.epoch + 1,
                    writer=self._writer,
                    retention=settled(base.manifest.retention, self._rules, None),
                    copied=None,
                    lease=self._terms.first(),
                )
            self.objects.placer.obey(placing_in, new.retention, self._effects.clock)
            seen, landed = await self._pointer.swap(base, new, self._taken(new.epoch))
            if landed:
                self._epoch, self._base = new.epoch, seen
                self.written = self._effects.clock.monotonic()
                self.objects.landed(seen.manifest)  # what an earlier writer left riding
                if base is not None:
                    self._gives_back = base.manifest.lease is not None
                    self._tell_resumed(base.manifest)
                return
            if claimed is not None:
                raise RunBusyError("somebody else was faster to claim the run", run=self._run)

    def _tell_resumed(self, before: Manifest) -> None:
        head, writer, epoch = before.head, before.writer, before.epoch + 1
        if head is not None:
            age = self._effects.clock.now() - head.time
            tell(
                lambda: events.Resumed(self._run, head.seq, head.step, age, writer.host, writer.pid, epoch),
                INFO,
            )

    def _taken(self, epoch: int) -> Callable[[Manifest], bool]:
        return lambda m: m.epoch == epoch and m.writer.id == self._writer.id

    # ---- knowing one's own commit again

    def _landing(self, made: Made) -> Callable[[Manifest], bool]:
        if isinstance(made, Noted):
            return lambda manifest: has(manifest, made.notes)
        if isinstance(made, Renewed):
            lease, epoch = made.manifest.lease, made.manifest.epoch
            return lambda m: m.epoch == epoch and lease is not None and m.lease == lease
        entry = made.entry

        def landed(manifest: Manifest) -> bool:
            if manifest.seq < entry.seq:
                return False
            commit = manifest.commit_of(entry.seq)
            if commit is None:  # so much was committed since that the manifest has forgotten it
                raise self._pointer.outcome_unknown(entry.commit)
            return commit == entry.commit

        return landed
