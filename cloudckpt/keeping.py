"""What an operator does with the runs of a store as a whole.

Owns: deleting, forgetting, collecting and forking runs, and a store's own rules, as methods of
`Store`; each in two forms, sync and async with a leading ``a``. What they do is in
modules of their own. Invariant: each can be called again after a failure half way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from cloudckpt.core import Core
from cloudckpt.curated import who
from cloudckpt.errors import CheckpointNotFoundError, InvalidInputError, StaleStateError
from cloudckpt.history import Which
from cloudckpt.labels import check_words
from cloudckpt.late import Late
from cloudckpt.load import load
from cloudckpt.model import CheckpointInfo, Origin, RunInfo, describe
from cloudckpt.retention import DEFAULT, Retention, chosen, inherits
from cloudckpt.storage.placed import Placer
from cloudckpt.twins import awaited, waits

if TYPE_CHECKING:
    import asyncio

    from cloudckpt import codec, collect, copying, drafts, fleet, settings
    from cloudckpt import forget as forgetting
    from cloudckpt.forget import Receipt
else:  # a load needs none of them
    codec = Late("cloudckpt.codec")
    asyncio = Late("asyncio")
    collect = Late("cloudckpt.collect")
    copying = Late("cloudckpt.copying")
    drafts = Late("cloudckpt.drafts")
    fleet = Late("cloudckpt.fleet")
    forgetting = Late("cloudckpt.forget")
    settings = Late("cloudckpt.settings")


T = TypeVar("T")


class Keeping:
    """The part of `Store` that is for operators."""

    url: str
    _core: Core
    _rules: Retention | None

    # ---- runs as a whole

    async def _delete(
        self, run_id: str, *, why: str = "", by: str | None = None, dry_run: bool = False
    ) -> collect.Collected:
        """Delete a run: its objects go, and a tombstone refuses every later save. Destructive.

        Safe to call again, which removes what a late writer or a failure left.

        Args:
            run_id: The run.
            why: Kept in the tombstone.
            by: Who deletes it; by default this user on this host.
            dry_run: Only say what would be removed.

        Raises:
            HeldError: A hold forbids it; names who set it, when, and why.
            RunNotFoundError: There is nothing of such a run.
        """
        access = self._core.access(run_id)
        why = check_words(why, "why")
        _, removed = await collect.delete_run(access, by=who(by), why=why, dry_run=dry_run)
        return removed

    delete = waits(_delete)
    adelete = awaited(_delete)

    async def _forget(
        self, run_id: str, *, why: str, by: str | None = None, dry_run: bool = False
    ) -> Receipt:
        """Erase a run for good: objects, history, and every version of them in the bucket. Destructive.

        Its tombstone stays, which holds no state and refuses every later save. Call it again after a
        failure half way, or when what a lock kept may go.

        Args:
            run_id: The run.
            why: For the receipt; must not be empty.
            by: Who asks for it; by default this user on this host.
            dry_run: Only count, and say whether it may be done.

        Returns:
            The receipt: what was erased, what could not be and why, and whether it is complete.

        Raises:
            HeldError: A hold forbids it; names who set it, when, and why.
            RunNotFoundError: There is nothing of such a run.
        """
        if not isinstance(why, str) or not why.strip():
            raise InvalidInputError("say why it is erased: the receipt tells those who ask", got=why)
        access = self._core.access(run_id)
        return await forgetting.forget(access, by=who(by), why=check_words(why, "why"), dry_run=dry_run)

    forget = waits(_forget)
    aforget = awaited(_forget)

    async def _collect(self, run_id: str, *, dry_run: bool = False) -> collect.Collected:
        """Remove a run's objects that nothing refers to, such as those a crash left behind. Destructive.

        Safe while writers are at work, and to call again after a failure half way.

        Args:
            run_id: The run.
            dry_run: Only say what would be removed.

        Raises:
            RunNotFoundError: There is no such run.
            CorruptCheckpointError: Its manifest or history can't be read; nothing was removed.
        """
        return await collect.collect(self._core.access(run_id), dry_run=dry_run)

    collect = waits(_collect)
    acollect = awaited(_collect)

    def fork(
        self,
        run_id: str,
        new_id: str,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        to: Self | None = None,
    ) -> CheckpointInfo:
        """Begin a new run from a checkpoint of another; by default from its newest.

        The two share nothing afterwards. The new run's first checkpoint tells where it came from.

        Args:
            run_id: The run to start from.
            new_id: The new run; it must not have a checkpoint yet.
            seq: Which checkpoint.
            tag: Which checkpoint, by its tag.
            step: Which checkpoint, by its step.
            to: The store of the new run; by default this one.

        Raises:
            StaleStateError: The new run exists and has a checkpoint.
            CheckpointNotFoundError, RunNotFoundError: There is nothing to start from.
            CorruptCheckpointError: The checkpoint is damaged.
        """
        draft = self._core.call(
            self._fork_of(run_id, Which(seq=seq, tag=tag, step=step), away=to is not None)
        )
        other = to or self
        return other._core.call(other._begin(new_id, draft))

    async def afork(
        self,
        run_id: str,
        new_id: str,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        to: Self | None = None,
    ) -> CheckpointInfo:
        """`fork`, awaited."""
        which = Which(seq=seq, tag=tag, step=step)
        draft = await self._core.acall(self._fork_of(run_id, which, away=to is not None))
        other = to or self
        return await other._core.acall(other._begin(new_id, draft))

    async def _fork_of(self, run_id: str, which: Which, *, away: bool) -> drafts.Draft:
        core = self._core
        loaded = await load(core.storage, core.effects, run_id, which=which)
        if loaded is None:
            await core.access(run_id).base()  # says so where it is the run that is missing
            raise CheckpointNotFoundError("the run has no checkpoint yet to start from", run=run_id)
        old = loaded.entry
        return drafts.Draft(
            commit=core.effects.new_id(),
            state=codec.Encoded(
                loaded.data, old.encoded_size, old.encoded_digest, old.codec, old.schema, old.schema_version
            ),
            origin=Origin(run_id, old.seq, self.url if away else None),
            step=old.step,
            metadata=old.metadata,
            fingerprint=old.fingerprint,
            expect=0,
        )

    async def _begin(self, run_id: str, draft: drafts.Draft) -> CheckpointInfo:
        writer = self._core.writer(run_id, rules=self._rules)
        try:
            manifest, entry = await writer.save(draft)
        except StaleStateError as error:
            raise StaleStateError(
                "the new run has a checkpoint already; choose another id", **error.facts
            ) from error
        await writer.settle()
        return describe(manifest, entry)

    # ---- many runs

    def copy(
        self,
        run_id: str,
        to: Self,
        *,
        check: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> copying.Copied:
        """Copy a run with all its history, tags and holds into another store; or what is new of it.

        The run may be at work meanwhile: one consistent point of it is copied. Safe to call
        again after a failure half way, which sends only what is not there yet.

        Args:
            run_id: The run, which keeps its id.
            to: The other store, of whatever kind.
            check: Look also when the other store is up to date, and send what it has lost: one LIST more.
            dry_run: Only say what would be sent; nothing is written.
            progress: Is told the bytes of each object that was sent, from several threads. What it
                raises ends the copy.

        Raises:
            ConflictError: The other store has a run of that id which is no copy of this one, or an action
                or an answer that this one does not know.
            HeldError: The other store has a hold that this one has not; names who set it, when, and why.
            CorruptCheckpointError: This run is damaged; names the key.
            RunNotFoundError, RunDeletedError: There is nothing to copy; or, with `kind` "there", the
                other store has a tombstone of the run.
        """
        return copying.copy_run(self._core, run_id, to._core, check=check, dry_run=dry_run, progress=progress)

    async def acopy(
        self,
        run_id: str,
        to: Self,
        *,
        check: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> copying.Copied:
        """`copy`, awaited."""
        return await asyncio.to_thread(self.copy, run_id, to, check=check, dry_run=dry_run, progress=progress)

    def each(
        self,
        work: Callable[[Self, str], T],
        *,
        prefix: str = "",
        executor: fleet.Executor | None = None,
        threads: int = 16,
    ) -> Iterator[fleet.Outcome[T]]:
        """Do some work on each run: ``store.each(partial(Store.collect, dry_run=True))``.

        A run that fails is told by its outcome, and hides no other. Memory stays flat however
        many runs there are.

        Args:
            work: Called with a store and a run's id. For an executor of other processes it must
                be a function of a module, or a `functools.partial` of one.
            prefix: Only the runs whose id starts with it: shards for several machines.
            executor: Any `concurrent.futures.Executor`, or a Dask client; by default threads. In
                other processes the store is opened again from its URL and options.
            threads: How many, by default; in other processes, how many in each.
        """
        runs = (info.id for info in self.runs(prefix))
        return fleet.each(self, work, runs, executor=executor, threads=threads)

    def runs(self, prefix: str = "") -> Iterator[RunInfo]:
        """See `Store.runs`."""
        raise NotImplementedError

    async def _get_retention(self) -> Retention | None:
        """Return the rules that an operator set for the store's runs; None when nobody did."""
        return (await settings.read_settings(self._core.storage)).retention

    get_retention = waits(_get_retention)
    aget_retention = awaited(_get_retention)

    async def _set_retention(self, retention: Retention | None) -> None:
        """Set the rules of the store's runs that begin from now on; None takes them away.

        A run keeps the rules that it began with, until `Run.retain` changes them. A lock or a
        storage class that the new rules say nothing of stays; "none" takes it off. What is damaged
        may have held a lock, so only None is written over it.

        Raises:
            CorruptCheckpointError: The settings are damaged; says what to do.
            UnsupportedStoreError: The engine can't place objects as the rules say.
            ConflictError: The store's rules are being changed all the time.
        """
        chosen(None, retention)
        storage, effects = self._core.storage, self._core.effects

        def change(found: settings.Settings) -> settings.Settings:
            new = None if retention is None else inherits(retention, found.retention or DEFAULT)
            if new is not None:
                Placer(storage).obey(new.placing, effects.clock)
            return replace(found, retention=new)

        await settings.change_settings(storage, effects, change, damaged=retention is None)

    set_retention = waits(_set_retention)
    aset_retention = awaited(_set_retention)
