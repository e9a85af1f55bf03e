"""Which run to work on next: a store as a queue of runs for any number of workers.

Owns: how a run is put for them, found by them, and got by exactly one. Invariants: a claim is one
conditional write over the very manifest that was judged, so of all who saw it free one gets it;
a run that was never under a lease and never offered is left alone, since nobody can tell
whether it is at work. A round costs a listing and a read of each run that may have something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudckpt.access import Edit
from cloudckpt.asking import ENDED
from cloudckpt.core import Core
from cloudckpt.effects import gather
from cloudckpt.errors import (
    ConflictError,
    DataError,
    InvalidInputError,
    RunBusyError,
    RunDeletedError,
    StaleStateError,
)
from cloudckpt.leases import NO_LEASE, Terms
from cloudckpt.leases import seconds as check_seconds
from cloudckpt.ledger import status_of
from cloudckpt.load import list_runs
from cloudckpt.model import Action, CheckpointInfo, Lease, Manifest, RunInfo
from cloudckpt.pointer import Base, read_base
from cloudckpt.questions import due, store_time
from cloudckpt.twins import awaited, waits
from cloudckpt.working import Work

if TYPE_CHECKING:
    from cloudckpt.drafts import Draft
    from cloudckpt.run import Run

LEASE_SECONDS = 60.0
POLL_SECONDS = 2.0
READS_AT_ONCE = 8

SETTLED_SECONDS = 2.0
"""A store's times may have whole seconds only, so a row may hide a change of its own second: it is
believed when the run was read again so long after it was first listed."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A run's row in the listing, when it was first seen so, and whether there is nothing to do for sure."""

    row: tuple[datetime, int]
    since: float
    idle: bool = False


class Rounds:
    """What one process knows of a store's runs from going round them.

    Args:
        core: The store.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[str, _Known] = {}
        self._time: tuple[datetime, float] | None = None

    async def page(self, prefix: str, cursor: str | None) -> tuple[list[Base], str | None]:
        """Return those runs of one page of the listing that are free, in random order."""
        rows, cursor = await list_runs(self._core.storage, prefix, cursor)
        rows = [row for row in rows if not self._is_idle(row)]
        # So that workers who begin together don't all try the same one.
        rows.sort(key=lambda _: self._core.effects.uniform(0.0, 1.0))
        reads = [partial(self._judged, row) for row in rows]
        judged = await gather(self._core.effects, reads, width=READS_AT_ONCE)
        return [base for base in judged if base is not None], cursor

    def _is_idle(self, row: RunInfo) -> bool:
        what = (row.modified, row.manifest_size)
        known = self._known.get(row.id)
        if known is None or known.row != what:
            self._known[row.id] = known = _Known(what, self._core.effects.clock.monotonic())
        return known.idle

    async def _judged(self, row: RunInfo) -> Base | None:
        known, now = self._known[row.id], self._core.effects.clock.monotonic()
        try:
            base = await read_base(self._core.storage, row.id)
            if base is None:
                return None
            if _rests(base.manifest):
                self._known[row.id] = replace(known, idle=now - known.since >= SETTLED_SECONDS)
                return None
            return base if await self._is_free(base.manifest) else None
        except DataError:  # it, or the run that it waits for, is damaged or of a newer release: nobody's
            return None  # to work on, and `verify` tells of it

    async def _is_free(self, manifest: Manifest) -> bool:
        if self._core.sightings.left(manifest):
            return False
        return all([await self._has_come(manifest.run, one) for one in _waits_for(manifest)])

    async def _has_come(self, run: str, asked: Action) -> bool:
        """Whether what a run waits for is there, although nobody has written so into the run."""
        question = asked.question or {}
        if "child" in question:
            base = await read_base(self._core.storage, question["child"])
            return base is not None and base.manifest.status in ENDED
        when = due(question)
        return when is not None and await self._now(run) >= when

    async def _now(self, run: str) -> datetime:
        """Return the store's time, which is asked for once in a process."""
        monotonic = self._core.effects.clock.monotonic
        if self._time is None:
            self._time = await store_time(self._core.access(run)), monotonic()
        return self._time[0] + timedelta(seconds=monotonic() - self._time[1])


def _rests(manifest: Manifest) -> bool:
    """Whether a run stays as it is until somebody writes to it."""
    if manifest.lease is None or manifest.status not in ("running", "waiting"):
        return True
    questions = [one.question or {} for one in _waits_for(manifest)]
    return any("child" not in one and one.get("expires") is None for one in questions)


def _waits_for(manifest: Manifest) -> list[Action]:
    return [one for one in manifest.actions if one.question is not None and one.ended is None]


class Claiming:
    """The part of `Store` that is for workers."""

    _core: Core
    _rounds: Rounds | None = None

    run: Callable[..., Run]

    def claim(
        self,
        prefix: str = "",
        *,
        lease: float = LEASE_SECONDS,
        wait: float = 0.0,
        poll: float = POLL_SECONDS,
        skip: Container[str] = (),
        **options: Any,
    ) -> Run | None:
        """Return a run to work on, of which this process has become the writer; None when there is none.

        That is one that was offered (`submit`, `offer`), or left unfinished by a worker under a lease; whose
        lease this process has seen expire; or that waited, and what it waited for has come: an answer,
        the end of another run, or its question's expiry. Each is got by one worker::

            while (run := store.claim("jobs/", lease=60)) is not None:
                with run:
                    work_on(run)

        Args:
            prefix: Only runs whose id starts with it.
            lease: Seconds of the lease under which it is worked on.
            wait: Go on looking for so many seconds. An abandoned run is only found by one who looks
                for longer than its lease.
            skip: Ids of runs to leave alone.
            poll: Seconds between two rounds; each is a listing, and a read of each run that may be free.
            **options: Of `Store.run`, for the run.

        Raises:
            InvalidInputError: An argument is not usable.
        """
        rounds, end = self._prepared(lease, wait, poll)
        while True:
            run = self._core.call(self._round(rounds, prefix, skip, {**options, "lease": lease}))
            left = end - self._core.effects.clock.monotonic()
            if run is not None or left <= 0:
                return run
            self._core.pause(min(poll, left))

    async def aclaim(
        self,
        prefix: str = "",
        *,
        lease: float = LEASE_SECONDS,
        wait: float = 0.0,
        poll: float = POLL_SECONDS,
        skip: Container[str] = (),
        **options: Any,
    ) -> Run | None:
        """`claim`, awaited."""
        rounds, end = self._prepared(lease, wait, poll)
        while True:
            run = await self._core.acall(self._round(rounds, prefix, skip, {**options, "lease": lease}))
            left = end - self._core.effects.clock.monotonic()
            if run is not None or left <= 0:
                return run
            await self._core.apause(min(poll, left))

    def _prepared(self, lease: float, wait: float, poll: float) -> tuple[Rounds, float]:
        check_seconds("lease", lease)
        check_seconds("poll", poll)
        if not isinstance(wait, int | float) or isinstance(wait, bool) or not wait >= 0:
            raise InvalidInputError("wait must be a number of seconds from 0", got=wait)
        if self._rounds is None:
            self._rounds = Rounds(self._core)
        return self._rounds, self._core.effects.clock.monotonic() + wait

    async def _round(
        self, rounds: Rounds, prefix: str, skip: Container[str], options: Mapping[str, Any]
    ) -> Run | None:
        cursor: str | None = None
        while True:
            found, cursor = await rounds.page(prefix, cursor)
            for base in found:
                if base.manifest.run in skip:
                    continue
                run = self.run(base.manifest.run, **options)
                try:
                    await run._claim(base)
                except (RunBusyError, RunDeletedError):
                    run._unkept()
                else:
                    return run
            if cursor is None:
                return None

    # ---- putting runs there

    def submit(self, run_id: str, state: object = None, **options: Any) -> CheckpointInfo | None:
        """Begin a run for a worker to claim; return its first checkpoint. Durable when it returns.

        State and offer are one commit, so a worker never sees the one without the other.

        Args:
            run_id: The run, which must not have a checkpoint yet.
            state: What the worker will load; None for a run without a checkpoint.
            **options: Of `Store.run`.

        Raises:
            ConflictError: The run exists already (`kind` "exists").
            RunBusyError: It exists, and a worker is at work on it.
        """
        run, draft = self._drafted(run_id, state, options)
        return self._core.call(_submitted(run, draft))

    async def asubmit(self, run_id: str, state: object = None, **options: Any) -> CheckpointInfo | None:
        """`submit`, awaited."""
        run, draft = self._drafted(run_id, state, options)
        return await self._core.acall(_submitted(run, draft))

    def _drafted(self, run_id: str, state: object, options: dict[str, Any]) -> tuple[Run, Draft | None]:
        run = self.run(run_id, **options)
        run._work = Work(Terms(offers=True))
        return run, None if state is None else replace(run._draft_of(state), expect=0)

    async def _offer(self, run_id: str) -> None:
        """Let workers claim a run that is there, such as one that worked without a lease, or has ended.

        Safe to call again.

        Nobody can see whether somebody is at work on it without a lease; whoever is will be fenced.

        Raises:
            RunBusyError: A worker holds its lease.
            RunNotFoundError, RunDeletedError: There is no such run.
        """

        async def edit(manifest: Manifest) -> Edit | None:
            status = status_of("running", manifest.actions)
            lease = manifest.lease
            if lease is not None and lease.seconds is None and manifest.status == status:
                return None
            self._core.sightings.check(manifest, NO_LEASE)
            return Edit(replace(manifest, status=status, lease=Lease(None, lease.beat + 1 if lease else 1)))

        await self._core.access(run_id).amend(edit)

    offer = waits(_offer)
    aoffer = awaited(_offer)


async def _submitted(run: Run, draft: Draft | None) -> CheckpointInfo | None:
    try:
        if draft is not None:
            return await run._save(draft, None)
        writer = run._claimed()
        await writer.become(expect=0)
        await writer.renew()
    except StaleStateError as error:
        raise ConflictError(
            "the run exists already; choose another id, or offer it as it is", kind="exists", run=run.id
        ) from error
    finally:
        await run._settle()
    return None
