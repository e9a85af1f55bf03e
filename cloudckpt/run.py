"""A run: load at the top of the loop, save at the bottom of each step.

Owns: what a user holds of one run, in two forms of each call (sync, and async
with a leading ``a``) over one implementation. Invariants: the state is encoded
when `save` is called, so later changes to it are not saved; reading never
becomes the writer; a forked child is a writer of its own, not its parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from cloudckpt import keys
from cloudckpt.asking import Asking
from cloudckpt.codec import decode
from cloudckpt.codec.intake import Intake
from cloudckpt.core import Core
from cloudckpt.curated import Curated
from cloudckpt.errors import ClosedError, CorruptCheckpointError, DataError, InvalidInputError
from cloudckpt.fingerprints import OnChange, check_fingerprint, check_on_change, compare
from cloudckpt.history import Which
from cloudckpt.labels import MAX_INT, check_metadata, check_tags
from cloudckpt.late import Late
from cloudckpt.ledger import Past
from cloudckpt.load import Loaded, load
from cloudckpt.model import CheckpointInfo, Size, describe
from cloudckpt.pointer import Base
from cloudckpt.retention import Retention

if TYPE_CHECKING:
    import logging

    from cloudckpt import commit, drafts
else:  # a load needs none of them
    commit = Late("cloudckpt.commit")
    drafts = Late("cloudckpt.drafts")
    logging = Late("logging")

T = TypeVar("T")


class Run(Curated, Asking):
    """One agent's durable life. Made by `Store.run`; safe from any thread.

    As a context manager (``with`` and ``async with``) it becomes the run's writer on
    entry, which fences an older one, and on exit waits for what was started aside. An
    exception inside the block saves nothing by itself.
    """

    def __init__(
        self,
        core: Core,
        run_id: str,
        *,
        rules: Retention | None = None,
        fingerprint: Mapping[str, str] | None = None,
        intake: Intake | None = None,
    ) -> None:
        self.id = keys.check_run_id(run_id)
        self._core = core
        self._rules = rules
        self._intake = intake or Intake()
        self._fingerprint = check_fingerprint(fingerprint)
        self._closed = False
        self._forget_writer()
        _runs.add(self)

    def __repr__(self) -> str:
        return f"<Run {self.id!r} of {self._core.url}>"

    @property
    def head(self) -> int | None:
        """Newest seq, 0 before the first save; None unless this is known to be the writer."""
        base = self._known()
        return None if base is None else base.manifest.seq

    @property
    def epoch(self) -> int | None:
        """Number of this writer among the run's, from 1; None unless it is known to be the writer."""
        base = self._known()
        return None if base is None else base.manifest.epoch

    def _known(self) -> Base | None:
        writer = self._writer
        return None if writer is None else writer.base

    # ---- becoming the writer

    def acquire(self) -> None:
        """Become the run's writer now; an older one's next save raises `FencedError`.

        Safe to call again: it does nothing while this run is open.

        Raises:
            RunDeletedError: The run has a tombstone.
            UnsupportedStoreError: A first run on a store that does not keep conditions.
        """
        self._core.call(self._acquire())

    async def aacquire(self) -> None:
        """`acquire`, awaited."""
        await self._core.acall(self._acquire())

    async def _acquire(self) -> None:
        await self._claimed().become()

    def _forget_writer(self) -> None:
        """Be nobody's writer: at first, and in the child after a fork."""
        self._guard = threading.Lock()
        self._acting: set[str] = set()
        self._past: Past | None = None
        self._writer: commit.RunWriter | None = None

    def _claimed(self) -> commit.RunWriter:
        with self._guard:  # two threads that save first must not fence each other
            if self._closed:
                raise ClosedError("the run was closed; take a new one from store.run()", run=self.id)
            if self._writer is None:
                self._writer = self._core.writer(self.id, rules=self._rules)
            return self._writer

    # ---- loading

    @overload
    def load(
        self,
        type: None = None,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        fallback: bool = False,
        fingerprint: OnChange = "report",
    ) -> Any: ...
    @overload
    def load(
        self,
        type: type[T],
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        fallback: bool = False,
        fingerprint: OnChange = "report",
    ) -> T | None: ...
    def load(
        self,
        type: type[Any] | None = None,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        fallback: bool = False,
        fingerprint: OnChange = "report",
    ) -> Any:
        """Return the newest saved state, verified; None when there is none yet.

        Args:
            type: The state's class; None gives plain values and readable records.
            seq: Which checkpoint, by its number; by default the newest.
            tag: Or the newest with this tag.
            step: Or the newest with this step.
            fallback: When that one is damaged, go back to the newest intact one, and
                say so in the log.
            fingerprint: What to do when the checkpoint was saved under another fingerprint
                than this run was given: "report" it in the log, refuse ("strict"), or "ignore".

        Raises:
            CorruptCheckpointError: It is damaged; names run, seq, key and the newest intact one.
            CheckpointNotFoundError: There is none; says when it expired and by which rule, if it did.
            UnsupportedFormatError: A newer release wrote it.
            SchemaError: It does not fit `type`, or (`kind` "fingerprint") not this code.
            RunDeletedError: The run has a tombstone.
        """
        loaded = self._core.call(self._load(Which(seq=seq, tag=tag, step=step), fallback=fallback))
        self._compare(loaded, fingerprint)
        return self._decoded(loaded, type)

    @overload
    async def aload(
        self,
        type: None = None,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        fallback: bool = False,
        fingerprint: OnChange = "report",
    ) -> Any: ...
    @overload
    async def aload(
        self,
        type: type[T],
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        fallback: bool = False,
        fingerprint: OnChange = "report",
    ) -> T | None: ...
    async def aload(
        self,
        type: type[Any] | None = None,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        fallback: bool = False,
        fingerprint: OnChange = "report",
    ) -> Any:
        """`load`, awaited."""
        loaded = await self._core.acall(self._load(Which(seq=seq, tag=tag, step=step), fallback=fallback))
        self._compare(loaded, fingerprint)
        return self._decoded(loaded, type)

    async def _load(self, which: Which, *, fallback: bool) -> Loaded | None:
        writer = self._writer
        base = await writer.newest() if writer is not None and writer.is_writer else None
        return await load(
            self._core.storage, self._core.effects, self.id, which=which, fallback=fallback, base=base
        )

    def _compare(self, loaded: Loaded | None, on_change: OnChange) -> None:
        check_on_change(on_change)
        if loaded is not None:
            entry = loaded.entry
            said = compare(entry.fingerprint, self._fingerprint, on_change, run=self.id, seq=entry.seq)
            if said is not None:
                _log().warning("%s", said)

    def _decoded(self, loaded: Loaded | None, type: type[Any] | None) -> Any:
        if loaded is None:
            return None
        seq = loaded.entry.seq
        for error in loaded.damage:
            _log().warning("went back to seq=%d of run=%r, newer is damaged: %s", seq, self.id, error)
        try:
            return decode(loaded.data, type)
        except CorruptCheckpointError as error:
            key = loaded.entry.extents[0].key
            raise CorruptCheckpointError(error.message, run=self.id, seq=seq, key=key) from error
        except DataError as error:
            error.facts.update(run=self.id, seq=seq)
            raise

    # ---- saving

    def save(
        self,
        state: object,
        *,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        expect: int | None = None,
        explain: bool = False,
    ) -> CheckpointInfo:
        """Save the state; durable when it returns. The first save becomes the run's writer.

        Args:
            state: A dataclass, pydantic model, msgspec struct, dict, list, bytes or other
                value that can be carried; encoded before the call goes on.
            step: The caller's own count; by default `state.step` or `state["step"]`
                where that is a whole number.
            tags: Names on this checkpoint, which also keep it from expiring.
            metadata: Plain JSON values under str keys.
            expect: Refuse unless the run's newest checkpoint is this seq (0: none yet).
            explain: Also measure the state as it is saved, into the answer's `measured`.

        Raises:
            SerializationError: The state can't be carried; names every path. Nothing was written.
            InvalidInputError: An argument is not usable, or (`kind` "too-large") the state is
                over the limit. Nothing was written.
            FencedError: Another process became the run's writer: stop.
            ConflictError: Somebody committed on top of what this writer knew: load, then decide.
            StaleStateError: `expect` is not the newest checkpoint. Nothing was written.
            OutcomeUnknownError: It may or may not have been saved; has the commit id.
            StorageError: The store failed; the run is as it was.
        """
        draft, measured = self._draft(state, step, tags, metadata, expect, explain=explain)
        return self._core.call(self._save(draft, measured))

    def asave(
        self,
        state: object,
        *,
        step: int | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        expect: int | None = None,
        explain: bool = False,
    ) -> Awaitable[CheckpointInfo]:
        """`save`, to be awaited. The state is encoded at the call, not at the await."""
        draft, measured = self._draft(state, step, tags, metadata, expect, explain=explain)
        return self._asave(draft, measured)

    async def _asave(self, draft: drafts.Draft, measured: Size | None) -> CheckpointInfo:
        # One whose caller is cancelled before it began never makes what nobody would await.
        return await self._core.acall(self._save(draft, measured))

    def _draft(
        self,
        state: object,
        step: int | None,
        tags: Iterable[str],
        metadata: Mapping[str, Any] | None,
        expect: int | None,
        *,
        explain: bool,
    ) -> tuple[drafts.Draft, Size | None]:
        self._claimed()
        tags, metadata = self._intake.labels(check_tags(tags), check_metadata(metadata))
        taken = self._intake.take(state, explain=explain)
        if taken.warning is not None:
            _log().warning("the state of run=%r %s", self.id, taken.warning)
        draft = drafts.Draft(
            commit=self._core.effects.new_id(),
            step=_step_of(state) if step is None else _whole("step", step),
            tags=tags,
            metadata=metadata,
            fingerprint=self._fingerprint,
            expect=None if expect is None else _whole("expect", expect),
            state=taken.encoded,
        )
        return draft, taken.measured

    def _draft_of(self, state: object) -> drafts.Draft:
        return self._draft(state, None, (), None, None, explain=False)[0]

    async def _save(self, draft: drafts.Draft, measured: Size | None) -> CheckpointInfo:
        manifest, entry = await self._claimed().save(draft)
        info = describe(manifest, entry)
        return info if measured is None else replace(info, measured=measured)

    def finish(self, state: object) -> CheckpointInfo:
        """Save the last state, and say that the run is done: who waits for it goes on. Durable, as `save`."""
        draft, measured = self._draft(state, None, (), None, None, explain=False)
        return self._core.call(self._save(replace(draft, status="done"), measured))

    async def afinish(self, state: object) -> CheckpointInfo:
        """`finish`, awaited."""
        draft, measured = self._draft(state, None, (), None, None, explain=False)
        return await self._asave(replace(draft, status="done"), measured)

    # ---- the block

    def close(self) -> None:
        """Wait for what was started aside, and stop being the writer. Safe to call twice."""
        if not self._core.closed:  # else the store has settled it, and an error in the block must be seen
            self._core.call(self._settle())

    async def aclose(self) -> None:
        """`close`, awaited."""
        if not self._core.closed:
            await self._core.acall(self._settle())

    async def _settle(self) -> None:
        with self._guard:
            self._closed = True
            writer, self._writer = self._writer, None
        if writer is not None:
            await writer.settle()

    def __enter__(self) -> Self:
        self._closed = False
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._closed = False
        await self.aacquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _after_fork() -> None:
    for run in list(_runs):
        run._forget_writer()


os.register_at_fork(after_in_child=_after_fork)


def _log() -> logging.Logger:
    return logging.getLogger("cloudckpt")


def _step_of(state: object) -> int | None:
    step = state.get("step") if isinstance(state, dict) else getattr(state, "step", None)
    return step if type(step) is int and 0 <= step <= MAX_INT else None


def _whole(name: str, value: int) -> int:
    if type(value) is not int or not 0 <= value <= MAX_INT:
        raise InvalidInputError(
            f"{name} must be a whole number from 0 to {MAX_INT}", got=type(value).__name__
        )
    return value
