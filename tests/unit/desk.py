"""A queue of saves behind their caller whose commits end when the test says, and how it says."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from cloudckpt.background import Saver
from cloudckpt.pending import Pending


class Gate:
    """One save under way: goes on when the test says how it ends."""

    def __init__(self, work: Any) -> None:
        self.work = work
        self.error: BaseException | None = None

    def __await__(self) -> Any:
        yield self
        if self.error is not None:
            raise self.error
        return f"info of {self.work}"


class Desk:
    """A saver whose commits end when the test lets them.

    Attributes:
        committed: Works whose commit ended well, in order.
    """

    def __init__(self) -> None:
        self.workers: list[Coroutine[Any, Any, None]] = []
        self.gate: Gate | None = None
        self.committed: list[Any] = []
        self.saver: Saver[Any] = Saver(self._commit, self._begin, of="r")

    async def _commit(self, work: Any) -> Any:
        self.gate = gate = Gate(work)
        info = await gate
        self.committed.append(work)
        return info

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        assert self.gate is None, "two at once"
        self.workers.append(work)
        self._step()

    def _step(self) -> None:
        with suppress(StopIteration):
            self.workers[-1].send(None)

    def end(self, error: BaseException | None = None) -> Any:
        """Let the commit under way end; return its work."""
        gate, self.gate = self.gate, None
        assert gate is not None
        gate.error = error
        self._step()
        return gate.work

    def end_all(self) -> None:
        while self.gate is not None:
            self.end()

    def offer(self, work: Any, **options: Any) -> Pending | None:
        return self.saver.offer(work, **{"keep": False, "start": True, "room": 1, **options})

    def save(self, work: Any, **options: Any) -> Pending:
        pending = self.offer(work, **options)
        assert pending is not None
        return pending
