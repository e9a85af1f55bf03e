"""A ready-made state in its run: loading, saving, and tools that are called once.

Owns: which run handle of this process a state is saved through, and that a tool is called
only for a reply that is saved. Invariants: a state is saved only onto the checkpoint that
it was loaded from or last saved as, so two copies of it never mix; of two loads of a run,
in one process or in two, the later one can save; a call's intent is never in the ledger
before the call is in a checkpoint, so a resumed state finds every call that was begun.

It adds nothing to the protocol: all goes through `Store` and `Run`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast

from cloudckpt.acting import Happened, InFlight, Policy
from cloudckpt.errors import DataError, FencedError, InvalidInputError, OutcomeUnknownError, StaleStateError
from cloudckpt.held import Held, default_store, process
from cloudckpt.model import CheckpointInfo
from cloudckpt.replies import CallId
from cloudckpt.store import Store

T = TypeVar("T")

INCONSISTENT = "inconsistent-state"
"""`kind` of the error about a state that is not consistent."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """What is wrong with a state. True when nothing is; `str` lists the problems."""

    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return "; ".join(self.problems) or "consistent"


@dataclass(frozen=True, slots=True)
class Origin:
    """Which checkpoint a state was loaded from or last saved as.

    Attributes:
        store: The store's URL.
        run: The run's id.
        seq: The run's newest checkpoint then, 0 for none.
        epoch: The writer's number then: the higher one was loaded later.
        step: The state's step then.
        open: The calls that had no result then.
    """

    store: str
    run: str
    seq: int
    epoch: int
    step: int
    open: frozenset[CallId] = frozenset()


class Saved:
    """The part of `Checkpoint` that knows of stores."""

    step: int
    completed: dict[CallId, Any]
    _origin: Origin | None

    @classmethod
    def new(cls, task: Any, **fields: Any) -> Self:
        """See `Checkpoint.new`."""
        raise NotImplementedError

    def record(self, call_id: CallId, result: Any) -> None:
        """See `Checkpoint.record`."""
        raise NotImplementedError

    def is_consistent(self) -> Consistency:
        """See `Checkpoint.is_consistent`."""
        raise NotImplementedError

    def _check_made(self, call_id: CallId) -> None:
        raise NotImplementedError

    def _open(self) -> frozenset[CallId]:
        """Return the calls that have no result."""
        raise NotImplementedError

    # ---- load

    @classmethod
    def load(cls, run_id: str, *, store: Store | None = None, fallback: bool = False) -> Self | None:
        """Return the run's newest state and become its writer; None when it has none yet.

        An older process of the run, and an older load in this one, can no longer save.

        Args:
            run_id: The run.
            store: Where; by default `default_store()`.
            fallback: Go back to the newest intact checkpoint when the newest is damaged.

        Raises:
            DataError: What is stored is damaged, or not a consistent state of this class.
        """
        held = Held.new(store or default_store(), run_id)
        held.run.acquire()
        return cls._loaded(held, held.run.load(cls, fallback=fallback))

    @classmethod
    async def aload(cls, run_id: str, *, store: Store | None = None, fallback: bool = False) -> Self | None:
        """`load`, awaited."""
        held = Held.new(store or default_store(), run_id)
        await held.run.aacquire()
        return cls._loaded(held, await held.run.aload(cls, fallback=fallback))

    @classmethod
    def load_or_new(
        cls, run_id: str, task: Any, *, store: Store | None = None, fallback: bool = False, **fields: Any
    ) -> Self:
        """Return ``load(run_id) or new(task)``, of which the new one too knows its run, as `once` needs it.

        Args:
            run_id: The run.
            task: What to do, when it has no state yet.
            store: Where; by default `default_store()`.
            fallback: As in `load`.
            **fields: As in `new`, when it has no state yet.

        Raises:
            DataError: As `load`.
        """
        store = store or default_store()
        return cls.load(run_id, store=store, fallback=fallback) or cls._begun(run_id, store, task, fields)

    @classmethod
    async def aload_or_new(
        cls, run_id: str, task: Any, *, store: Store | None = None, fallback: bool = False, **fields: Any
    ) -> Self:
        """`load_or_new`, awaited."""
        store = store or default_store()
        found = await cls.aload(run_id, store=store, fallback=fallback)
        return found or cls._begun(run_id, store, task, fields)

    @classmethod
    def _begun(cls, run_id: str, store: Store, task: Any, fields: dict[str, Any]) -> Self:
        state = cls.new(task, **fields)
        held = process.held(store, run_id)
        state._origin = Origin(store.url, run_id, 0, held.epoch if held else 0, 0)
        return state

    @classmethod
    def _loaded(cls, held: Held, state: Self | None) -> Self | None:
        run = held.run
        held = process.hold(replace(held, epoch=run.epoch or 0))
        if state is None:
            return None
        consistency = state.is_consistent()
        if not consistency:
            message = f"the saved state is not consistent: {consistency}"
            raise DataError(message, kind=INCONSISTENT, run=run.id, seq=run.head)
        state._origin = Origin(held.store.url, run.id, run.head or 0, held.epoch, state.step, state._open())
        return state

    # ---- save

    def save(self, run_id: str, *, store: Store | None = None) -> CheckpointInfo:
        """Save the state as the run's next checkpoint; durable when it returns.

        After an `OutcomeUnknownError`, saving again is safe.

        Raises:
            InvalidInputError: The state is not consistent.
            StaleStateError: The run has checkpoints that this state does not continue.
            FencedError: The run was loaded again since, here or elsewhere.
            SerializationError: The state holds values that can't be carried.
        """
        held, seq = self._base(run_id, store or default_store())
        open_ = self._open()
        with _explained(held):
            info = held.run.save(self, step=self.step, expect=seq)
        return self._saved(held, info, open_)

    def asave(self, run_id: str, *, store: Store | None = None) -> Coroutine[Any, Any, CheckpointInfo]:
        """`save`, to be awaited. The state is encoded at the call, not at the await."""
        held, seq = self._base(run_id, store or default_store())
        saving = cast("Coroutine[Any, Any, CheckpointInfo]", held.run.asave(self, step=self.step, expect=seq))
        work = self._asaved(held, saving, self._open())
        # One whose caller is cancelled before it began would leave a coroutine that nobody awaits.
        weakref.finalize(work, saving.close).atexit = False
        return work

    async def _asaved(
        self, held: Held, saving: Awaitable[CheckpointInfo], open_: frozenset[CallId]
    ) -> CheckpointInfo:
        with _explained(held):
            info = await saving
        return self._saved(held, info, open_)

    def _base(self, run_id: str, store: Store) -> tuple[Held, int]:
        """Return what to save through, and the seq that must be the run's newest."""
        consistency = self.is_consistent()
        if not consistency:
            raise InvalidInputError(
                f"the state is not consistent: {consistency}", kind=INCONSISTENT, run=run_id
            )
        held, origin = process.held(store, run_id), self._origin
        if origin is None or (origin.store, origin.run) != (store.url, run_id):
            return held or Held.new(store, run_id), 0
        if held is None or held.epoch < origin.epoch:  # the state was handed over by another process
            held = Held.new(store, run_id, origin.epoch)
        elif held.epoch > origin.epoch:
            raise FencedError("the run was loaded again since: go on with the state of that load", run=run_id)
        return held, origin.seq

    def _saved(self, held: Held, info: CheckpointInfo, open_: frozenset[CallId]) -> CheckpointInfo:
        process.hold(replace(held, epoch=info.epoch))
        self._origin = Origin(held.store.url, info.run, info.seq, info.epoch, info.step or 0, open_)
        return info

    # ---- tools, once

    def once(
        self,
        call_id: CallId,
        fn: Callable[..., T],
        /,
        *args: Any,
        policy: Policy = "fail",
        verify: Callable[[InFlight], Happened | None] | None = None,
        **kwargs: Any,
    ) -> T:
        """Run a tool for a call once in the life of the run, and `record` its result, which is returned.

        The reply that made the call is saved first, if it is not yet. So a process that dies in the
        middle is resumed with the call in `pending`: call this for each of them before you ask the
        model again. One that has a result gives it, and `fn` is not called.

        Args:
            call_id: The call's id.
            fn: What to do.
            *args: Its arguments, which must be carriable and the same after a resume.
            policy: What to do with one that was in flight when its process died: as in `Run.once`.
            verify: As in `Run.once`.
            **kwargs: Its arguments by name.

        Raises:
            InvalidInputError: No reply made the call; or the state does not know its run: make it by
                `load_or_new`, or save it first.
            InFlightError: It may have happened.
            FencedError: The run was loaded again since, here or elsewhere: nothing was done.
        """
        if call_id in self.completed:
            return cast("T", self.completed[call_id])
        self._check_made(call_id)
        while call_id not in self._bound().open:
            other = process.turn(self)
            if other is not None:
                other.result()
                continue
            try:
                if call_id not in self._bound().open:
                    self.save(self._bound().run, store=self._store())
            finally:
                process.end_turn(self)
        run = process.hold(self._base(self._bound().run, self._store())[0]).run
        result = run.once(_key(call_id), fn, *args, policy=policy, verify=verify, **kwargs)
        self.record(call_id, result)
        return result

    async def aonce(
        self,
        call_id: CallId,
        fn: Callable[..., Awaitable[T]] | Callable[..., T],
        /,
        *args: Any,
        policy: Policy = "fail",
        verify: Callable[[InFlight], Any] | None = None,
        **kwargs: Any,
    ) -> T:
        """`once`, awaited; `fn` and `verify` may be coroutine functions. For several calls at a time."""
        if call_id in self.completed:
            return cast("T", self.completed[call_id])
        self._check_made(call_id)
        while call_id not in self._bound().open:
            other = process.turn(self)
            if other is not None:
                await asyncio.shield(asyncio.wrap_future(other))
                continue
            try:
                if call_id not in self._bound().open:
                    await self.asave(self._bound().run, store=self._store())
            finally:
                process.end_turn(self)
        run = process.hold(self._base(self._bound().run, self._store())[0]).run
        result = await run.aonce(_key(call_id), fn, *args, policy=policy, verify=verify, **kwargs)
        self.record(call_id, result)
        return result

    def _bound(self) -> Origin:
        if self._origin is None:
            raise InvalidInputError(
                "the state does not know its run: make it by load_or_new(run_id, task), or save it first"
            )
        return self._origin

    def _store(self) -> Store:
        origin = self._bound()
        store = process.store_of(origin.store, origin.run)
        if store is None:
            raise InvalidInputError(
                "this process has no store for the state, which came from another: save it with store= first",
                url=origin.store,
                run=origin.run,
            )
        return store


def _key(call_id: CallId) -> str:
    """Return the name of a call in the ledger; a number and its digits are two."""
    return f"call:{call_id}" if isinstance(call_id, str) else f"call#{call_id}"


@contextmanager
def _explained(held: Held) -> Iterator[None]:
    """Say what to do about a state that may not be saved, and keep what a second try needs."""
    try:
        yield
    except OutcomeUnknownError:
        process.hold(held)  # its run knows its own commit again, should that have happened
        raise
    except StaleStateError as error:
        message = (
            "the run has checkpoints that this state does not continue: go on from "
            "`Checkpoint.load(run_id)`, fork by saving under another run id, or delete the run first"
        )
        raise StaleStateError(message, **error.facts) from error
