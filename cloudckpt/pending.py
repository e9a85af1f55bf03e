"""A save that need not be durable yet, as its caller holds it.

Owns: waiting for the outcome of a save, from any thread and on any loop. Invariant:
who waits and gives up, or whose loop ends, changes nothing of the save. The queue
that it is in is `background.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent import futures
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from cloudckpt.late import Late
from cloudckpt.model import CheckpointInfo

if TYPE_CHECKING:
    import asyncio
else:  # a caller without a loop needs none
    asyncio = Late("asyncio")

Outcome = futures.Future[CheckpointInfo]


class Queue(Protocol):
    """What commits it."""

    def want(self, number: int) -> None:
        """Let all saves up to this number be committed."""
        ...

    def told(self, error: BaseException) -> None:
        """Note that somebody was told of an error."""
        ...


class Pending:
    """A save that need not be durable yet. To be waited for by `wait`, or awaited on any loop.

    Once it is durable, it has the attributes of its `CheckpointInfo` too.

    Attributes:
        number: Counts the saves of one writer, from 1. Not a seq, which a save has when it is durable.
    """

    def __init__(self, queue: Queue, number: int, outcome: Outcome) -> None:
        self.number = number
        self._queue = queue
        self._outcome = outcome

    @property
    def done(self) -> bool:
        """Whether it is durable, or has failed."""
        return self._outcome.done()

    def wait(self, timeout: float | None = None) -> CheckpointInfo:
        """Return the checkpoint once it is durable: this one, or a newer one that took its place.

        Raises:
            TimeoutError: It is not, after so many seconds; it goes on.
            CloudckptError: Why it is not saved, as `Run.save` says.
        """
        self._queue.want(self.number)
        futures.wait([self._outcome], timeout)
        if not self._outcome.done():
            raise TimeoutError("the save is not durable yet; it goes on")
        return self._result()

    def __await__(self) -> Generator[Any, None, CheckpointInfo]:
        self._queue.want(self.number)
        yield from until([self._outcome]).__await__()
        return self._result()

    def _result(self) -> CheckpointInfo:
        error = self._outcome.exception()
        if error is not None:
            self._queue.told(error)
            raise error
        return self._outcome.result()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in CheckpointInfo.__dataclass_fields__:
            raise AttributeError(f"a pending save has no attribute {name!r}")
        if not self.done:
            raise AttributeError(f"the save is not durable yet, so it has no {name}; wait for it first")
        return getattr(self._result(), name)

    def __reduce__(self) -> NoReturn:
        """Stay here, where it is made durable."""
        raise TypeError(
            "a pending save can't be copied or sent to another process; wait for it, and send the answer"
        )

    def __repr__(self) -> str:
        return f"<Pending {self.number}: {'done' if self.done else 'not durable yet'}>"


async def until(outcomes: Iterable[futures.Future[Any]]) -> None:
    """Return when all are done, on any loop. A caller that is cancelled leaves them as they are."""
    loop = asyncio.get_running_loop()
    for outcome in outcomes:
        waiter: asyncio.Future[None] = loop.create_future()
        outcome.add_done_callback(lambda _, waiter=waiter: _wake(loop, waiter))  # type: ignore[misc]
        await waiter


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # its loop is closed, so nobody waits any more
        loop.call_soon_threadsafe(_set, waiter)


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # else its caller was cancelled meanwhile
        waiter.set_result(None)
