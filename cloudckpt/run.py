"""A run: load at the top of the loop, save at the bottom of each step.

Owns: what a user holds of one run, in two forms of each call (sync, and async
with a leading ``a``) over one implementation; becoming its writer, loading, and
its end. Invariants: reading never becomes the writer; what was saved is durable,
or the end of the run says why not; a forked child is a writer of its own, not its
parent's, and what the parent has pending is not the child's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from cloudckpt import keys
from cloudckpt.asking import Asking
from cloudckpt.codec import decode
from cloudckpt.codec.intake import Intake
from cloudckpt.core import Core
from cloudckpt.curated import Curated
from cloudckpt.doing import Keys
from cloudckpt.errors import ClosedError, CorruptCheckpointError, DataError
from cloudckpt.fingerprints import OnChange, check_fingerprint, check_on_change, compare
from cloudckpt.history import Which
from cloudckpt.hooks import tell
from cloudckpt.late import Late
from cloudckpt.ledger import Past
from cloudckpt.load import Loaded, load
from cloudckpt.pace import STEP, Pace
from cloudckpt.pointer import Base
from cloudckpt.retention import Retention
from cloudckpt.saving import Saving
from cloudckpt.working import PLAIN, Work, Working, told

if TYPE_CHECKING:
    import logging

    from cloudckpt import background, commit, events
    from cloudckpt.progress import Meter
else:  # a load needs none of them
    background = Late("cloudckpt.background")
    commit = Late("cloudckpt.commit")
    events = Late("cloudckpt.events")
    logging = Late("logging")

T = TypeVar("T")


class Run(Working, Saving, Curated, Asking):
    """One agent's durable life. Made by `Store.run`; safe from any thread.

    As a context manager (``with`` and ``async with``) it becomes the run's writer on
    entry, which fences an older one, and on exit makes durable what is pending and waits for
    what was started aside. An exception inside the block saves nothing by itself.
    """

    def __init__(
        self,
        core: Core,
        run_id: str,
        *,
        rules: Retention | None = None,
        fingerprint: Mapping[str, str] | None = None,
        intake: Intake | None = None,
        pace: Pace = STEP,
        work: Work = PLAIN,
        meter: Meter | None = None,
    ) -> None:
        self.id = keys.check_run_id(run_id)
        self._root = core
        self._rules = rules
        self._intake = intake or Intake()
        self._fingerprint = check_fingerprint(fingerprint)
        self._work = work
        self._meter = meter
        self._closed = False
        self._forget_writer()
        self._set_pace(pace)
        _runs.add(self)

    def __repr__(self) -> str:
        return f"<Run {self.id!r} of {self._core.url}>"

    def __reduce__(self) -> NoReturn:
        """Stay here: a copy would be another writer, which fences this one."""
        raise TypeError(
            "a run can't be copied or sent to another process; send its store and its id, and take it there "
            f"by store.run({self.id!r})"
        )

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

    def _forget_writer(self) -> None:
        """Be nobody's writer: at first, and in the child after a fork."""
        self._guard = threading.Lock()
        self._acting = Keys()
        self._past: Past | None = None
        self._writer: commit.RunWriter | None = None
        self._forget_saver()
        self._forget_keeper()

    def _claimed(self) -> commit.RunWriter:
        with self._guard:  # two threads that save first must not fence each other
            if self._closed:
                raise ClosedError("the run was closed; take a new one from store.run()", run=self.id)
            if self._writer is None:
                self._writer = self._core.writer(
                    self.id,
                    rules=self._rules,
                    terms=self._work.terms,
                    saved=None if self._meter is None else self._meter.saved,
                )
            self._keep(self._writer)
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
        if base is not None and self._saver is not None:
            self._saver.forgive()
        monotonic = self._core.effects.clock.monotonic
        began = monotonic()
        loaded = await load(
            self._core.storage, self._core.effects, self.id, which=which, fallback=fallback, base=base
        )
        if loaded is not None:
            entry, took, lost = loaded.entry, monotonic() - began, len(loaded.damage)
            tell(lambda: events.Loaded(self.id, entry.seq, entry.step, entry.size, took, lost))
        return loaded

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

    # ---- the block

    def close(self) -> None:
        """Make durable what is pending, wait for what was started aside, and stop being the writer.

        Safe to call twice.

        Raises:
            CloudckptError: Why something that was saved is not durable, unless a call raised it before.
        """
        _tell(self._end(), None)

    async def aclose(self) -> None:
        """`close`, awaited."""
        _tell(await self._aend(), None)

    def _end(self) -> BaseException | None:
        if self._root.closed:  # the store has settled it, and an error in the block must be seen
            return None
        saver = self._saver
        try:
            return None if saver is None else background.end_all([saver], None)
        finally:
            self._root.call(self._settle())
            self._unwatch()  # on the caller's thread: only the main one may

    async def _aend(self) -> BaseException | None:
        if self._root.closed:
            return None
        saver = self._saver
        try:
            return None if saver is None else await background.aend_all([saver])
        finally:
            await self._root.asee_through(self._settle())
            self._unwatch()

    async def _settle(self) -> None:
        with self._guard:
            self._closed = True
            writer, self._writer = self._writer, None
            if self._saver is None or not self._saver.busy:  # else nobody waited to the end, and may yet
                self._forget_saver()
            keeper = self._unkept()
        if writer is not None:
            await writer.settle()
            await writer.release()
            self._fenced = writer.fenced
        told(keeper)

    def __enter__(self) -> Self:
        self._closed = False
        with self._entering():
            self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _tell(self._end(), error)

    async def __aenter__(self) -> Self:
        self._closed = False
        with self._entering():
            await self.aacquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _tell(await self._aend(), error)


def _tell(failure: BaseException | None, error: BaseException | None) -> None:
    """Raise why something is not durable; an error of the block's own must be seen, and gets a note."""
    if failure is not None and error is None:
        raise failure
    if failure is not None and error is not None:
        error.add_note(f"and not all that was saved is durable: {type(failure).__name__}: {failure}")


_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _after_fork() -> None:
    for run in list(_runs):
        run._forget_writer()


os.register_at_fork(after_in_child=_after_fork)


def _log() -> logging.Logger:
    return logging.getLogger("cloudckpt")
