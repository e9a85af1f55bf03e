"""Saves that are made behind their caller: in order, bounded, and none of them lost in silence.

Owns: the queue of one run's saves, and what is told of them. Invariants:

* Saves are committed in the order in which they were offered. One takes the place of
  an older one only, so the newest that was offered is the last that is committed.
* What is not durable is counted, and keeps its run alive until it is.
* An error is raised by a call, never only logged: by the next save, by whoever waits,
  or by the end of the run. After a lost race nothing more is committed.

It reaches the world through two functions, so a simulation can own it: `commit`, which
makes one save, and `begin`, which lets a coroutine run aside. It waits by futures, from
any thread and on any loop, and knows neither a state nor a store.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cloudckpt.errors import (
    ClosedError,
    CloudckptError,
    ConflictError,
    FencedError,
    RunDeletedError,
    StorageError,
    ThrottledError,
)
from cloudckpt.late import Late
from cloudckpt.model import CheckpointInfo
from cloudckpt.pace import Overflow
from cloudckpt.pending import Outcome, Pending, until

if TYPE_CHECKING:
    import asyncio
else:  # a caller without a loop needs none
    asyncio = Late("asyncio")

P = TypeVar("P")


@dataclass(slots=True, eq=False)
class _Job(Generic[P]):
    """A save in the queue, for itself and for those whose place it took.

    Attributes:
        number: Its own.
        work: What is committed.
        keep: Whether it is committed whatever comes after it.
        count: How many saves it stands for.
        outcome: Shared by all of them.
        begun: Whether somebody was asked to commit it.
        taken: Whether somebody does.
    """

    number: int
    work: P
    keep: bool
    count: int
    outcome: Outcome
    begun: bool = False
    taken: bool = False


class Saver(Generic[P]):
    """One run's saves behind its caller. Safe from any thread.

    Args:
        commit: Makes one save; durable when it returns.
        begin: Lets a coroutine run aside.
        of: Names what is saved, for errors.
    """

    def __init__(
        self,
        commit: Callable[[P], Awaitable[CheckpointInfo]],
        begin: Callable[[Coroutine[Any, Any, None]], object],
        *,
        of: str,
    ) -> None:
        self._commit = commit
        self._begin = begin
        self._of = of
        self._process = os.getpid()
        self._guard = threading.RLock()  # a signal's handler may ask in the middle of an offer
        self._queue: tuple[_Job[P], ...] = ()
        self._flying: _Job[P] | None = None
        self._number = 0
        self._wanted = 0  # saves up to this number are committed, later ones wait to be wanted
        self._error: BaseException | None = None  # that nobody was told of
        self._stopped: CloudckptError | None = None  # after which there are no more commits
        self._ended = False

    @property
    def pending(self) -> int:
        """How many saves a crash would lose now, those among them whose place a newer one took."""
        with self._guard:
            return sum(job.count for job in self._unsettled())

    @property
    def busy(self) -> bool:
        """Whether something is pending, or an error is to be told."""
        return self._flying is not None or bool(self._queue) or self._error is not None

    def offer(
        self, work: P, *, keep: bool, start: bool, room: int, overflow: Overflow = "latest"
    ) -> Pending | None:
        """Take a save behind those that wait; None when there is no room for it now.

        Args:
            work: What is saved.
            keep: It is committed whatever comes after it.
            start: It is committed now, with those before it; not only once it is wanted.
            room: How many may wait.
            overflow: What becomes of one more.

        Raises:
            ThrottledError: There is no room, and `overflow` is "error".
            ClosedError: The run was closed.
            CloudckptError: The first error of an earlier save, which was not told yet, or the lost
                race after which nothing is committed any more. This save was not taken.
        """
        with self._guard:
            self._check()
            while True:
                queue, number = self._queue, self._number
                old, count, outcome = None, 1, Outcome()
                if len(queue) >= room:
                    old = next((one for one in queue if not one.keep), None)
                    if overflow == "error":
                        raise ThrottledError(
                            "saves are made faster than the store takes them; save less often, or let newer "
                            "ones take the place of older ones (overflow='latest')",
                            kind="queue-full",
                            run=self._of,
                            waiting=len(queue),
                        )
                    if overflow == "block" or old is None:
                        return None
                    count, outcome = old.count + 1, old.outcome
                job = _Job(number + 1, work, keep, count, outcome)
                pending = Pending(self, job.number, outcome)
                _unfinished.add(self)
                kept = tuple(one for one in queue if one is not old)
                if self._queue is queue and self._number == number:  # else a signal's handler has offered
                    # At once: an interrupt that takes the older one and leaves none would lose a save.
                    self._queue, self._number = (*kept, job), job.number
                    break
        if start:
            self.want(pending.number)
        return pending

    def _check(self) -> None:
        if self._ended:
            raise ClosedError("the run was closed; take a new one from store.run()", run=self._of)
        self.tell()
        if self._stopped is not None:
            raise self._stopped

    def want(self, number: int) -> None:
        """Let all saves up to this number be committed."""
        if os.getpid() != self._process:
            raise ClosedError("this save is the parent process's, before the fork", run=self._of)
        with self._guard:
            self._wanted = max(self._wanted, number)
            if self._flying is None:
                self._next()
            job = self._flying
            if job is None or job.begun:
                return
            work = self._work(job)
            try:
                job.begun = True
                self._begin(work)
            except BaseException:  # as of a process that may start no more threads: again when it is wanted
                job.begun = False
                with suppress(ValueError):  # it was begun, and then an interrupt struck
                    work.close()
                raise

    # ---- aside

    def _next(self) -> _Job[P] | None:
        """Take the next that is wanted, in the place of the one that has ended."""
        with self._guard:
            if self._queue and self._queue[0].number <= self._wanted:
                self._flying, self._queue = self._queue[0], self._queue[1:]
            else:
                self._flying = None
            self._rest()
            return self._flying

    def _is_taken(self, job: _Job[P]) -> bool:
        """Take a job, unless somebody else has: one that an interrupt struck at may be begun twice."""
        with self._guard:
            before, job.begun, job.taken = job.taken, True, True
            return before

    async def _work(self, job: _Job[P] | None) -> None:
        while job is not None and not self._is_taken(job):
            try:
                info = await self._commit(job.work)
            except Exception as error:  # noqa: BLE001 - it is kept, and raised by the next call
                job = self._failed(job, error)
            except BaseException as error:  # its thread or its loop ends under it
                self._failed(job, error)
                raise
            else:
                ended, job = job, self._next()
                ended.outcome.set_result(info)

    def _failed(self, job: _Job[P], error: BaseException) -> _Job[P] | None:
        lost = [job]
        with self._guard:
            if self._error is None:
                self._error = error
            if isinstance(error, ConflictError | RunDeletedError):
                self._stopped = error
            if self._stopped is not None or not isinstance(error, Exception):
                lost += self._queue
                self._queue = ()
            following = self._next()
        for one in lost:
            one.outcome.set_exception(error)
        return following

    def _rest(self) -> None:
        if not self.busy:
            _unfinished.discard(self)

    # ---- waiting

    def _unsettled(self) -> list[_Job[P]]:
        return [*([] if self._flying is None else [self._flying]), *self._queue]

    def outcomes(self) -> list[Outcome]:
        """Let all that was offered be committed; return what to wait for."""
        self.want(self._number)
        with self._guard:
            return [job.outcome for job in self._unsettled()]

    def wait_for_room(self) -> None:
        """Return when the first of those that are not durable has ended."""
        futures.wait(self.outcomes()[:1])

    async def await_room(self) -> None:
        """`wait_for_room`, awaited."""
        await until(self.outcomes()[:1])

    def tell(self) -> None:
        """Raise the first error that nobody was told of."""
        with self._guard:
            error, self._error = self._error, None
            self._rest()
        if error is not None:
            raise error

    def told(self, error: BaseException) -> None:
        """Note that somebody was told of an error."""
        with self._guard:
            if self._error is error:
                self._error = None
                self._rest()

    def forgive(self) -> None:
        """Go on after a conflict, since the run was loaded again."""
        with self._guard:
            if not isinstance(self._stopped, FencedError | RunDeletedError):
                self._stopped = None

    def flush(self) -> None:
        """Return when all that was offered before is durable.

        Raises:
            CloudckptError: The first error that was not told yet: something is not.
        """
        futures.wait(self.outcomes())
        self.tell()

    async def aflush(self) -> None:
        """`flush`, awaited."""
        await until(self.outcomes())
        self.tell()

    def drain(self, deadline: float) -> int:
        """Wait so long at most for what `flush` waits for; return how many are left."""
        futures.wait(self.outcomes(), deadline)
        self.tell()
        return self.pending

    async def adrain(self, deadline: float) -> int:
        """`drain`, awaited."""
        with suppress(TimeoutError):
            await asyncio.wait_for(until(self.outcomes()), deadline)
        self.tell()
        return self.pending

    def end(self) -> None:
        """Take no more saves; those that were taken are committed. Safe to call again."""
        with self._guard:
            self._ended = True

    def failure(self, waited: Iterable[Outcome]) -> BaseException | None:
        """Return why not all is durable: the first error that nobody was told of, or that it takes longer.

        Args:
            waited: What was waited for; saves that were offered since are no failure.
        """
        missing = {outcome for outcome in waited if not outcome.done()}
        with self._guard:
            if self._error is not None:
                return self._error
            left = sum(job.count for job in self._unsettled() if job.outcome in missing)
        if not left:
            return None
        return StorageError(
            "there was no time for the last saves", kind="not-drained", run=self._of, pending=left
        )


_unfinished: set[Saver[Any]] = set()
"""What is not durable, or not told, keeps its run and its store alive, whoever drops them."""

os.register_at_fork(after_in_child=_unfinished.clear)  # the parent's are for the parent to save


def end_all(savers: Iterable[Saver[Any]], timeout: float | None) -> BaseException | None:
    """Let the saves of several runs end; return the first reason why something is not durable."""
    ending = list(savers)
    waiting = _ending(ending)
    futures.wait(waiting, timeout)
    return _failure(ending, waiting)


async def aend_all(savers: Iterable[Saver[Any]]) -> BaseException | None:
    """`end_all`, awaited."""
    ending = list(savers)
    waiting = _ending(ending)
    await until(waiting)
    return _failure(ending, waiting)


def _ending(savers: list[Saver[Any]]) -> list[Outcome]:
    for saver in savers:
        saver.end()
    return [outcome for saver in savers for outcome in saver.outcomes()]


def _failure(savers: list[Saver[Any]], waited: list[Outcome]) -> BaseException | None:
    found = []
    for saver in savers:
        failure = saver.failure(waited)
        if failure is not None:
            saver.told(failure)
            found.append(failure)
    return found[0] if found else None
