"""The queue of saves behind their caller, step by step: who waits, who gives way, what is told to whom."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from cloudckpt import background
from cloudckpt.background import end_all
from cloudckpt.errors import (
    ClosedError,
    ConflictError,
    FencedError,
    RunDeletedError,
    StorageError,
    ThrottledError,
)
from cloudckpt.pending import Pending, until
from tests.unit.desk import Desk


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
