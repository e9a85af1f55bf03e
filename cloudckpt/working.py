"""Being a run's worker: becoming its writer, under a lease if that is asked for, and learning of a fence.

Owns: the part of `Run` that has to do with other workers. Invariant: it waits for another's lease
outside of the core's calls, so that a caller can be cancelled meanwhile, and no thread of ours
is held up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudckpt.core import Core
from cloudckpt.errors import FencedError, InvalidInputError, RunBusyError, RunDeletedError
from cloudckpt.late import Late
from cloudckpt.leases import NO_LEASE, Terms, claim_of
from cloudckpt.leases import seconds as check_seconds

if TYPE_CHECKING:
    from cloudckpt import watching
    from cloudckpt.commit import RunWriter
    from cloudckpt.pointer import Base
    from cloudckpt.watching import OnFenced
else:  # a run without a lease needs none
    watching = Late("cloudckpt.watching")

WAIT_SECONDS = 1.0
"""Another's lease is looked at so often; each time costs a request."""


@dataclass(frozen=True, slots=True)
class Work:
    """How a run is worked on.

    Attributes:
        terms: Whether under a lease, and what another's lease means.
        watch: Seconds without a request after which it is looked whether somebody took over; None: never.
        on_fenced: Called when somebody did.
    """

    terms: Terms = NO_LEASE
    watch: float | None = None
    on_fenced: OnFenced | None = None


PLAIN = Work()


def work_of(terms: Terms, watch: float | None, on_fenced: OnFenced | None) -> Work:
    """Return how a run is worked on, from what a caller asks for.

    Raises:
        InvalidInputError: An argument is not usable.
    """
    watch = check_seconds("watch", watch)
    if on_fenced is not None and watch is None and terms.lease is None:
        raise InvalidInputError("on_fenced needs lease= or watch=: else nobody looks before the next save")
    return Work(terms, watch, on_fenced)


class Working:
    """The part of `Run` that is about other workers."""

    id: str
    _core: Core
    _root: Core
    _guard: threading.Lock
    _writer: RunWriter | None
    _work: Work
    _keeper: watching.Keeper | None
    _fenced: FencedError | RunDeletedError | None

    def _claimed(self) -> RunWriter:
        raise NotImplementedError

    @property
    def fenced(self) -> FencedError | RunDeletedError | None:
        """Why this process can't save to the run any more, once it has learned so; else None.

        It learns it by a save; with ``lease=`` or ``watch=`` also in between, before the next
        model call is paid for: ``if run.fenced: raise run.fenced``.
        """
        return self._fenced if self._writer is None else self._writer.fenced

    # ---- becoming the writer

    def acquire(self) -> None:
        """Become the run's writer now; an older one's next save raises `FencedError`.

        Safe to call again: it does nothing while this run is open.

        Raises:
            RunBusyError: Another worker holds the run's lease; it was left alone.
            RunDeletedError: The run has a tombstone.
            UnsupportedStoreError: A first run on a store that does not keep conditions.
        """
        while (left := self._core.call(self._tried())) is not None:
            self._core.pause(min(left, WAIT_SECONDS))

    async def aacquire(self) -> None:
        """`acquire`, awaited."""
        while (left := await self._core.acall(self._tried())) is not None:
            await self._core.apause(min(left, WAIT_SECONDS))

    async def _tried(self) -> float | None:
        """Become the writer; return None, or how long to wait before it is tried again."""
        try:
            await self._claimed().become()
        except RunBusyError as error:
            if self._work.terms.busy != "wait":
                raise
            return error.left
        return None

    async def _claim(self, base: Base) -> None:
        """Become the writer of a run that was found free in this version, see `RunWriter.claim`."""
        await self._claimed().claim(base)

    # ---- beside the run

    def _keep(self, writer: RunWriter) -> None:
        """Let the lease be renewed and others be looked for from now on, if that is asked for."""
        work = self._work
        if self._keeper is None and (work.terms.lease is not None or work.watch is not None):
            self._keeper = watching.Keeper(
                self._root,
                writer,
                self,
                lease=work.terms.lease,
                watch=work.watch,
                on_fenced=work.on_fenced,
            )

    @contextmanager
    def _entering(self) -> Iterator[None]:
        """A block that is not entered has no end, so nobody would ever let its lease expire."""
        try:
            yield
        except BaseException:
            self._unkept()
            raise

    def _unkept(self) -> watching.Keeper | None:
        """End that; return what may have an error to tell."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.end()
        return keeper

    def _forget_keeper(self) -> None:
        self._keeper = None
        self._fenced = None

    def handover(self) -> dict[str, str]:
        """Return the environment by which another process takes this run over, with its lease.

        There `store.run(id)` is not refused by this one's lease, and holds one of the same seconds. Until
        then this one goes on renewing its own; after that it is fenced. `cloudckpt work` does so.

        Raises:
            InvalidInputError: This is not the run's writer, or has no lease.
        """
        lease, writer = self._work.terms.lease, self._writer
        if writer is None or not writer.is_writer or lease is None:
            raise InvalidInputError("only a run that is held by a lease can be handed over", run=self.id)
        return claim_of(self.id, writer.id, lease)


def told(keeper: Any) -> None:
    """Raise what `on_fenced` raised, where the run ends."""
    if keeper is not None and keeper.error is not None:
        raise keeper.error
