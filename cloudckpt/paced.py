"""When a run's saves become durable: at once, when they are due, or behind their caller.

Owns: the cadence of a run (`pace.py`), and what can be asked of saves that are not
durable yet. Invariant: a call of the run that is no save comes after all saves before
it, so what it reads or commits is never older than they. How a state becomes a commit
is in `saving.py`, the queue in `background.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cloudckpt.core import Core
from cloudckpt.errors import InvalidInputError
from cloudckpt.late import Late
from cloudckpt.model import CheckpointInfo
from cloudckpt.pace import STEP, Cadence, Overflow, Pace
from cloudckpt.twins import awaited, waits

if TYPE_CHECKING:
    from concurrent import futures

    from cloudckpt import drafts, stopping
    from cloudckpt import pending as behind
    from cloudckpt.background import Saver
    from cloudckpt.codec import Encoded
    from cloudckpt.codec.intake import Taken
    from cloudckpt.commit import RunWriter
    from cloudckpt.pending import Pending
else:  # who saves step by step needs none of them
    futures = Late("concurrent.futures")
    behind = Late("cloudckpt.pending")
    stopping = Late("cloudckpt.stopping")

T = TypeVar("T")

DRAIN_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A save that was asked for, before its state is encoded.

    Attributes:
        writer: The claim to make it with.
        take: Returns its state as bytes, on any thread.
        draft: Makes the draft of them.
        keep: Whether it is committed whatever comes after it.
        final: Whether it is the run's last.
    """

    writer: RunWriter
    take: Callable[[], Taken]
    draft: Callable[[Encoded], drafts.Draft]
    keep: bool
    final: bool


def _seconds(value: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e11:
        raise InvalidInputError("a deadline must be a number of seconds from 0", got=value)
    return float(value)


class _After:
    """A core whose calls come after what was saved before them."""

    def __init__(self, core: Core, saver: Saver[Asked]) -> None:
        self._core = core
        self._saver = saver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._saver.busy:
            try:
                self._saver.flush()
            except BaseException:
                work.close()
                raise
        return self._core.call(work)

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        if self._saver.busy:
            try:
                await self._saver.aflush()
            except BaseException:
                work.close()
                raise
        return await self._core.acall(work)

    def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Come after them also when they fail; that is told by another call."""
        try:
            if self._saver.busy:
                futures.wait(self._saver.outcomes())
        finally:
            result = self._core.see_through(work)
        return result

    async def asee_through(self, work: Coroutine[Any, Any, T]) -> T:
        """`see_through`, awaited."""
        try:
            if self._saver.busy:
                await behind.until(self._saver.outcomes())
        except BaseException:
            self._core.leave(self._core.aside(work))
            raise
        return await self._core.asee_through(work)


class Paced:
    """The part of `Run` that keeps a pace."""

    id: str
    _root: Core  # `_core` is the same, or has its calls come after what is pending
    _core: Core
    _guard: threading.Lock
    _pace: Pace
    _since: tuple[int, float]  # saves since the last commit, and when that was
    _writer: RunWriter | None
    _watched = False

    async def _save_asked(self, asked: Asked) -> CheckpointInfo:
        raise NotImplementedError

    # ---- the cadence

    @property
    def cadence(self) -> Cadence:
        """How saves become durable; may be set, see `pace`."""
        return self._pace.cadence

    @cadence.setter
    def cadence(self, cadence: Cadence) -> None:
        self.pace(cadence)

    def pace(
        self,
        cadence: Cadence,
        *,
        every: int | None = None,
        every_seconds: float | None = None,
        queue: int = 1,
        overflow: Overflow = "latest",
    ) -> None:
        """Save in this cadence from now on. What is pending stays so, and is committed before newer saves.

        Args:
            cadence: "step": a save is durable when it returns; a crash costs the step under way.
                "selective": it is committed when it is due; a crash costs what was saved since the last
                commit. "background": it returns at once; a crash costs what `pending` counts: the save
                under way, and the newest (at most `queue` of them) behind it.
            every: Selective: each save so many after the last commit is due.
            every_seconds: Selective: the first save so many seconds after the last commit is due.
            queue: Background: how many saves may wait behind the one under way.
            overflow: Background: what becomes of one more. "latest": it takes the place of the oldest
                that waits and has neither tags nor `milestone`. "block": it waits until there is room.
                "error": it raises `ThrottledError` (`kind` "queue-full").

        Raises:
            InvalidInputError: An argument is not usable.
        """
        self._set_pace(
            Pace(cadence=cadence, every=every, every_seconds=every_seconds, queue=queue, overflow=overflow)
        )

    def _set_pace(self, pace: Pace) -> None:
        self._pace = STEP if pace.cadence == "step" else pace
        self._since = 0, self._root.effects.clock.monotonic()

    def _forget_saver(self) -> None:
        """Have nothing pending: at first, after the end, and in the child after a fork."""
        self._saver: Saver[Asked] | None = None
        self._core = self._root

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            stopping.unwatch(self)

    def _behind(self) -> Saver[Asked]:
        saver = self._saver
        if saver is None:
            with self._guard:
                saver = self._saver or self._root.saver(self._save_asked, of=self.id)
                self._saver, self._core = saver, cast("Core", _After(self._root, saver))
        return saver

    # ---- what is pending

    @property
    def pending(self) -> int:
        """How many saves a crash would lose now: those that are not durable, in this process."""
        return 0 if self._saver is None else self._saver.pending

    def flush(self) -> None:
        """Return when all that was saved until now is durable.

        Raises:
            CloudckptError: Why something is not; the first such error that was not raised yet.
        """
        if self._saver is not None:
            self._saver.flush()

    async def aflush(self) -> None:
        """`flush`, awaited."""
        if self._saver is not None:
            await self._saver.aflush()

    def drain(self, deadline: float) -> int:
        """Make durable what can be in so many seconds; return how many saves are left, which go on.

        Raises:
            CloudckptError: As `flush`.
        """
        return 0 if self._saver is None else self._saver.drain(_seconds(deadline))

    async def adrain(self, deadline: float) -> int:
        """`drain`, awaited."""
        return 0 if self._saver is None else await self._saver.adrain(_seconds(deadline))

    async def _sync_before_return(self) -> None:
        """Return when nothing is under way: all is durable, and what saves started aside has ended.

        For a process that may be frozen as soon as it has answered, as in AWS Lambda: what is in
        flight then stands still for minutes, or for ever. Leaving the run's block does the same.

        Raises:
            CloudckptError: As `flush`.
        """
        writer = self._writer
        if writer is not None:
            await writer.settle()

    sync_before_return = waits(_sync_before_return)
    async_before_return = awaited(_sync_before_return)

    def on_sigterm(self, deadline: float = DRAIN_SECONDS) -> None:
        """When the process is told to end, first make durable what is pending; then end it as before.

        On SIGTERM, a thread drains this run and all others that asked for it, while the program goes
        on. After that, or `deadline` seconds, the handler that was there is called, or the process ends
        where there was none. A second SIGTERM does not wait. Until the run is closed.

        Args:
            deadline: Seconds; less than what the platform gives (30 in Kubernetes and ECS by default).

        Raises:
            InvalidInputError: This is not the main thread, which alone may set handlers of signals; or a
                handler is there that Python can't call.
        """
        stopping.watch(self, _seconds(deadline))
        self._watched = True

    def drained(self, deadline: float) -> BaseException | None:
        """Wait so long at most for all saves, also for one under way in cadence "step".

        Returns:
            Why not all is durable, which the next call still raises; or None. Never raises.
        """
        if self._root.closed:
            return None
        writer, saver = self._writer, self._saver
        saves = [] if saver is None else saver.outcomes()
        waiting: list[futures.Future[Any]] = [*saves]
        if writer is not None and writer.is_writer:
            waiting.append(self._root.aside(writer.become()))  # which comes after a save under way
        futures.wait(waiting, deadline)
        return None if saver is None else saver.failure(saves)

    # ---- the queue

    @property
    def _is_selective(self) -> bool:
        return self._pace.cadence == "selective"

    def _counted(self, asked: Asked) -> bool:
        """Return whether a save is committed now."""
        saves, since = self._since
        self._since = saves + 1, since
        seconds = self._root.effects.clock.monotonic() - since
        return asked.keep or self._pace.is_due(saves + 1, seconds)

    def _committed(self, info: CheckpointInfo) -> CheckpointInfo:
        self._since = 0, self._root.effects.clock.monotonic()
        return info

    def _offer(self, asked: Asked, *, start: bool) -> Pending | None:
        pace = self._pace
        if self._is_selective:  # what was skipped before gives way
            return self._behind().offer(asked, keep=asked.keep, start=start, room=1)
        overflow: Overflow = "block" if asked.final and pace.overflow == "error" else pace.overflow
        return self._behind().offer(asked, keep=asked.keep, start=start, room=pace.queue, overflow=overflow)

    def _offered(self, asked: Asked, *, start: bool) -> Pending:
        while (pending := self._offer(asked, start=start)) is None:
            self._behind().wait_for_room()
        return pending

    async def _aoffered(self, asked: Asked, *, start: bool) -> Pending:
        while (pending := self._offer(asked, start=start)) is None:
            await self._behind().await_room()
        return pending
