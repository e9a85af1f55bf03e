"""The queue of saves behind their caller, step by step: who waits, who gives way, what is told to whom."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloudckpt import background
from cloudckpt.background import Saver, end_all
from cloudckpt.errors import (
    ClosedError,
    ConflictError,
    FencedError,
    RunDeletedError,
    StorageError,
    ThrottledError,
)
from cloudckpt.pending import Pending, until


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


@pytest.fixture
def desk() -> Any:
    background._unfinished.clear()
    yield Desk()
    background._unfinished.clear()


def test_five_fast_saves_and_an_end_leave_the_fifth(desk: Desk) -> None:
    pendings = [desk.save(n) for n in range(1, 6)]
    assert desk.saver.pending == 5
    desk.end_all()
    assert desk.committed == [1, 5]
    assert [one.wait(0) for one in pendings] == ["info of 1", *["info of 5"] * 4]
    assert end_all([desk.saver], 0) is None


def test_a_larger_queue_gives_way_from_its_oldest(desk: Desk) -> None:
    for n in range(1, 7):
        desk.save(n, room=3)
    desk.end_all()
    assert desk.committed == [1, 4, 5, 6]


def test_one_that_is_kept_never_gives_way(desk: Desk) -> None:
    """A save with a tag names that state, and no other."""
    for n in range(1, 8):
        desk.save(n, keep=n == 3, room=2)
    desk.end_all()
    assert desk.committed == [1, 3, 7]


def test_when_all_that_wait_are_kept_there_is_no_room(desk: Desk) -> None:
    """Else tags in a tight loop would pile up without bound."""
    desk.save(1)
    desk.save(2, keep=True)
    assert desk.offer(3) is None
    assert desk.saver.pending == 2
    desk.end()
    assert desk.offer(3) is not None
    desk.end_all()
    assert desk.committed == [1, 2, 3]


def test_block_has_no_room_and_error_says_so(desk: Desk) -> None:
    desk.save(1)
    desk.save(2)
    assert desk.offer(3, overflow="block") is None
    with pytest.raises(ThrottledError, match="faster than the store") as caught:
        desk.offer(3, overflow="error")
    assert caught.value.kind == "queue-full"
    desk.end_all()
    assert desk.committed == [1, 2]


def test_what_is_held_is_committed_when_it_is_wanted(desk: Desk) -> None:
    held = [desk.save(n, start=False) for n in (1, 2)]
    assert desk.gate is None
    assert desk.saver.pending == 2
    desk.saver.want(held[1].number)
    assert desk.end() == 2
    assert held[0].wait(0) == held[1].wait(0) == "info of 2"


def test_waiting_for_one_that_is_held_makes_it_durable(desk: Desk) -> None:
    held = desk.save(1, start=False)
    with pytest.raises(TimeoutError):
        held.wait(0)
    assert desk.end() == 1
    assert held.done


def test_one_that_is_held_is_not_committed_by_a_worker_that_passes(desk: Desk) -> None:
    desk.save(1)
    desk.save(2, start=False, room=5)
    desk.end()
    assert desk.gate is None
    assert desk.saver.pending == 1


# ---- errors

LOST = StorageError("lost on purpose")


def test_the_first_error_is_raised_by_the_next_save_once(desk: Desk) -> None:
    desk.save(1)
    desk.save(2)
    desk.end(LOST)
    desk.end(StorageError("another"))
    with pytest.raises(StorageError, match="lost on purpose"):
        desk.save(3)
    desk.save(4)
    desk.end_all()
    assert desk.committed == [4]


def test_after_a_passing_error_the_next_in_the_queue_is_tried(desk: Desk) -> None:
    desk.save(1)
    desk.save(2)
    desk.end(LOST)
    desk.end()
    assert desk.committed == [2]
    with pytest.raises(StorageError):
        desk.saver.flush()
    desk.saver.flush()


def test_an_error_is_raised_by_whoever_waits_and_then_is_told(desk: Desk) -> None:
    pending = desk.save(1)
    desk.end(LOST)
    with pytest.raises(StorageError):
        pending.wait(0)
    desk.saver.flush()
    assert end_all([desk.saver], 0) is None


@pytest.mark.parametrize("error", [FencedError("gone"), ConflictError("gone"), RunDeletedError("gone")])
def test_after_a_lost_race_nothing_is_committed_any_more(desk: Desk, error: Any) -> None:
    first, second = desk.save(1), desk.save(2)
    desk.end(error)
    assert desk.gate is None
    assert desk.saver.pending == 0
    for _ in range(3):
        with pytest.raises(type(error)):
            desk.save(3)
    for pending in (first, second):
        with pytest.raises(type(error)):
            pending.wait(0)
    assert desk.committed == []


def test_after_a_load_a_conflict_is_forgiven_and_a_fence_is_not(desk: Desk) -> None:
    desk.save(1)
    desk.end(ConflictError("somebody"))
    with pytest.raises(ConflictError):
        desk.save(2)
    desk.saver.forgive()
    desk.save(2)
    desk.end(FencedError("taken over"))
    desk.saver.forgive()
    for _ in range(2):
        with pytest.raises(FencedError):
            desk.save(3)


def test_an_error_that_nobody_was_told_of_is_told_at_the_end(desk: Desk) -> None:
    desk.save(1)
    desk.end(LOST)
    assert end_all([desk.saver], 0) is LOST
    assert end_all([desk.saver], 0) is None


def test_an_end_without_time_says_how_many_are_left(desk: Desk) -> None:
    desk.save(1)
    desk.save(2)
    failure = end_all([desk.saver], 0)
    assert isinstance(failure, StorageError)
    assert (failure.kind, failure.facts["pending"]) == ("not-drained", 2)
    desk.end_all()


def test_what_was_offered_since_is_not_missing(desk: Desk) -> None:
    """A program that goes on after a SIGTERM saves on while it is drained."""
    desk.save(1)
    waited = desk.saver.outcomes()
    desk.save(2)
    assert desk.saver.failure(waited).facts["pending"] == 1  # type: ignore[union-attr]
    desk.end()
    assert desk.saver.failure(waited) is None
    desk.save(3)
    waited = desk.saver.outcomes()
    desk.save(4)
    assert desk.saver.failure(waited) is not None
    desk.end_all()


def test_after_the_end_no_save_is_taken(desk: Desk) -> None:
    desk.saver.end()
    with pytest.raises(ClosedError):
        desk.save(1)


def test_a_worker_whose_thread_dies_leaves_nobody_waiting(desk: Desk) -> None:
    """An interrupt, or a loop that is stopped: whoever waits would wait for ever."""
    first, second = desk.save(1), desk.save(2)
    with pytest.raises(KeyboardInterrupt):
        desk.end(KeyboardInterrupt())
    for pending in (first, second):
        with pytest.raises(KeyboardInterrupt):
            pending.wait(0)
    desk.save(3)
    desk.end_all()
    assert desk.committed == [3]


def test_a_save_that_no_thread_could_be_found_for_is_tried_again(desk: Desk) -> None:
    """It was taken, so its caller would wait for it."""

    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    begin, desk.saver._begin = desk.saver._begin, refuse
    with pytest.raises(RuntimeError, match="thread"):
        desk.save(1)
    assert desk.saver.pending == 1
    desk.saver._begin = begin
    desk.save(2, room=2)
    desk.end_all()
    assert desk.committed == [1, 2]


# ---- what is alive, and waiting


def test_what_is_not_durable_or_not_told_is_kept_alive(desk: Desk) -> None:
    """A run that was dropped without an end is found by the end of the interpreter."""
    assert desk.saver not in background._unfinished
    desk.save(1)
    assert desk.saver in background._unfinished
    desk.end()
    assert desk.saver not in background._unfinished
    desk.save(2)
    desk.end(LOST)
    assert desk.saver in background._unfinished
    with pytest.raises(StorageError):
        desk.saver.tell()
    assert desk.saver not in background._unfinished


def test_a_drain_says_what_is_left(desk: Desk) -> None:
    desk.save(1)
    desk.save(2)
    assert desk.saver.drain(0) == 2
    desk.end()
    assert desk.saver.drain(0) == 1
    assert asyncio.run(desk.saver.adrain(0.001)) == 1
    desk.end()
    assert asyncio.run(desk.saver.adrain(0)) == desk.saver.drain(0) == 0


def test_a_pending_save_is_awaited_on_any_loop(desk: Desk) -> None:
    pending = desk.save(1)

    async def both() -> Any:
        asyncio.get_running_loop().call_later(0.001, desk.end)
        return await asyncio.gather(_awaited(pending), _awaited(pending))

    assert asyncio.run(both()) == ["info of 1"] * 2
    assert asyncio.run(_awaited(pending)) == "info of 1"


async def _awaited(pending: Pending) -> Any:
    return await pending


def test_who_gives_up_waiting_changes_nothing(desk: Desk) -> None:
    """`asyncio.wrap_future` would cancel the save's own future, and its end would then be an error."""
    pending = desk.save(1)

    async def given_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(pending), 0.001)
        waiting = asyncio.ensure_future(until(desk.saver.outcomes()))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(given_up())
    desk.end()
    assert pending.wait(0) == "info of 1"


def test_the_attributes_of_a_pending_save_come_with_its_end(desk: Desk) -> None:
    pending = desk.save(1)
    with pytest.raises(AttributeError, match="not durable yet"):
        pending.seq  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute"):
        pending.strange  # noqa: B018
    assert "not durable yet" in repr(pending)
    desk.end()
    assert "done" in repr(pending)


def test_threads_that_offer_are_counted_once_each(desk: Desk) -> None:
    barrier = threading.Barrier(8)
    numbers: list[int] = []

    def work() -> None:
        barrier.wait(60)
        numbers.extend([desk.save(0).number for _ in range(50)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 401))
    assert desk.saver.pending == 400
    desk.end_all()


def test_what_the_parent_has_pending_is_not_the_childs(desk: Desk) -> None:
    """Else the child would commit it a second time, or wait for ever."""
    pending = desk.save(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if not background._unfinished:
                try:
                    pending.wait(0)
                except ClosedError:
                    code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    desk.end_all()
    assert desk.committed == [1]


# ---- against a model


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
