"""The queue of saves behind their caller, in any order of calls, against a model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloudckpt import background
from cloudckpt.errors import StorageError
from cloudckpt.pending import Pending
from tests.unit.desk import Desk


class Queueing(RuleBasedStateMachine):
    """Any order of offers, ends and errors, against a model that shares nothing with the queue."""

    @initialize(room=st.integers(1, 4), overflow=st.sampled_from(["latest", "block"]))
    def begin(self, room: int, overflow: str) -> None:
        self.desk = Desk()
        self.room = room
        self.overflow = overflow
        self.count = 0
        self.waiting: list[tuple[int, bool]] = []
        self.flying: int | None = None
        self.order: list[int] = []
        self.untold: list[BaseException] = []
        self.places: dict[int, Pending] = {}

    def _next(self) -> None:
        if self.flying is None and self.waiting:
            self.flying = self.waiting.pop(0)[0]

    @rule(keep=st.booleans())
    def save(self, keep: bool) -> None:
        options = {"keep": keep, "room": self.room, "overflow": self.overflow}
        if self.untold:
            with pytest.raises(StorageError) as caught:
                self.desk.offer(0, **options)
            assert caught.value is self.untold[0]
            self.untold.clear()
            return
        full = len(self.waiting) >= self.room
        droppable = [at for at, (_, kept) in enumerate(self.waiting) if not kept]
        pending = self.desk.offer(self.count + 1, **options)
        if full and (self.overflow == "block" or not droppable):
            assert pending is None
            return
        assert pending is not None
        if full:
            del self.waiting[droppable[0]]
        self.count += 1
        self.places[self.count] = pending
        self.waiting.append((self.count, keep))
        self._next()

    @precondition(lambda self: self.flying is not None)
    @rule()
    def land(self) -> None:
        assert self.desk.end() == self.flying
        self.order.append(self.flying)
        self.flying = None
        self._next()

    @precondition(lambda self: self.flying is not None)
    @rule()
    def fail(self) -> None:
        error = StorageError(f"of {self.flying}")
        assert self.desk.end(error) == self.flying
        self.untold.append(error)
        self.flying = None
        self._next()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "desk"):
            return
        assert self.desk.committed == self.order == sorted(self.order)
        assert (self.desk.gate.work if self.desk.gate else None) == self.flying
        unsettled = sum(not one.done for one in self.places.values())
        assert self.desk.saver.pending == unsettled, "each save that was taken is pending or has ended"
        assert self.desk.saver.busy == (self.flying is not None or bool(self.waiting or self.untold))

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            self.desk.end_all()
            background._unfinished.discard(self.desk.saver)


TestQueueing = Queueing.TestCase
TestQueueing.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
