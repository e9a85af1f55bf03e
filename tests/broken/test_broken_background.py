"""Wrong variants of saving behind the caller; each is caught by the test named in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from typing import Any

import pytest

from cloudckpt import background, paced, pending
from cloudckpt.background import Saver
from cloudckpt.codec import arrays, encoding, freezing, gently
from cloudckpt.store import Store
from tests.broken.caught import is_caught_by as fails
from tests.protocol import test_background as simulated
from tests.protocol.gated import Gated
from tests.unit import test_background as queue
from tests.unit import test_cadences as cadences
from tests.unit import test_codec_freezing as frozen
from tests.unit import test_saving_behind as behind
from tests.unit.desk import Desk

Patch = pytest.MonkeyPatch


def is_caught_by(test: Callable[..., None], *arguments: Any) -> bool:
    return fails(test, *arguments, also=(AttributeError, InvalidStateError))


def desk() -> Desk:
    return Desk()


def on_a_store(test: Callable[..., None], *arguments: Any) -> bool:
    storage = Gated(blocking=True)
    store = Store(lambda: storage, probed=True, timeout=0.0)
    try:
        return is_caught_by(test, storage, store, *arguments)
    finally:
        storage.open()


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    yield
    background._unfinished.clear()


def test_dropping_errors(monkeypatch: Patch) -> None:
    """A log line is nobody's: the agent goes on for hours, and nothing is saved."""
    right = Saver._failed

    def failed(self: Saver[Any], job: Any, error: BaseException) -> Any:
        following = right(self, job, error)
        self._error = None
        return following

    monkeypatch.setattr(Saver, "_failed", failed)
    assert is_caught_by(simulated.test_what_fails_is_told_and_the_rest_goes_on, 1)
    assert is_caught_by(queue.test_the_first_error_is_raised_by_the_next_save_once, desk())


def test_telling_the_last_error_instead_of_the_first(monkeypatch: Patch) -> None:
    right = Saver._failed

    def failed(self: Saver[Any], job: Any, error: BaseException) -> Any:
        self._error = error
        return right(self, job, error)

    monkeypatch.setattr(Saver, "_failed", failed)
    assert is_caught_by(queue.test_the_first_error_is_raised_by_the_next_save_once, desk())


def test_going_on_after_a_lost_race(monkeypatch: Patch) -> None:
    right = Saver._failed

    def failed(self: Saver[Any], job: Any, error: BaseException) -> Any:
        following = right(self, job, error)
        self._stopped = None
        return following

    monkeypatch.setattr(Saver, "_failed", failed)
    assert on_a_store(behind.test_a_fenced_run_stops_at_once_and_stays_so)


def test_coalescing_out_of_order(monkeypatch: Patch) -> None:
    """The newest in the place of the oldest, before one that is kept: the head is then not the newest."""
    right = Saver.offer

    def offer(self: Saver[Any], work: Any, **options: Any) -> Any:
        before = list(self._queue)
        found = right(self, work, **options)
        gone = [at for at, job in enumerate(before) if job not in self._queue and job is not self._flying]
        if gone:
            self._queue.insert(gone[0], self._queue.pop())
        return found

    monkeypatch.setattr(Saver, "offer", offer)
    assert is_caught_by(queue.test_one_that_is_kept_never_gives_way, desk())
    assert is_caught_by(simulated.test_saves_behind_come_in_order_and_none_is_lost_in_silence, 3)


def test_skipping_the_newest_while_one_is_under_way(monkeypatch: Patch) -> None:
    right = Saver.offer

    def offer(self: Saver[Any], work: Any, *, room: int, **options: Any) -> Any:
        if len(self._queue) >= room:
            return pending.Pending(self, self._number, self._queue[-1].outcome)
        return right(self, work, room=room, **options)

    monkeypatch.setattr(Saver, "offer", offer)
    assert is_caught_by(queue.test_five_fast_saves_and_an_end_leave_the_fifth, desk())


def test_letting_a_kept_one_give_way(monkeypatch: Patch) -> None:
    right = Saver.offer
    monkeypatch.setattr(Saver, "offer", lambda self, work, **o: right(self, work, **{**o, "keep": False}))
    assert is_caught_by(queue.test_one_that_is_kept_never_gives_way, desk())
    assert is_caught_by(simulated.test_saves_behind_come_in_order_and_none_is_lost_in_silence, 1)


def test_a_queue_without_bound(monkeypatch: Patch) -> None:
    right = Saver.offer
    monkeypatch.setattr(Saver, "offer", lambda self, work, **o: right(self, work, **{**o, "room": 10**6}))
    assert is_caught_by(queue.test_when_all_that_wait_are_kept_there_is_no_room, desk())
    assert is_caught_by(queue.test_five_fast_saves_and_an_end_leave_the_fifth, desk())


def test_an_end_that_does_not_flush(monkeypatch: Patch) -> None:
    monkeypatch.setattr(background, "_ending", lambda savers: [])
    monkeypatch.setattr(Saver, "failure", lambda *_: None)
    assert on_a_store(cadences.test_every_third_save_is_committed_and_the_last)
    assert on_a_store(cadences.test_a_closed_store_has_made_durable_what_its_runs_had_pending)


def test_an_end_that_hides_what_failed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(background, "_failure", lambda *_: None)
    assert on_a_store(behind.test_an_error_that_nobody_was_told_of_is_raised_where_the_block_ends)
    assert on_a_store(behind.test_an_error_of_the_block_is_not_hidden_and_gets_a_note)


def test_a_call_that_does_not_come_after_what_is_pending(monkeypatch: Patch) -> None:
    monkeypatch.setattr(paced._After, "call", lambda self, work: self._core.call(work))
    for call in ("find", "history"):
        assert on_a_store(behind.test_every_other_call_comes_after_what_was_saved, call)


def test_counting_only_what_waits_as_pending(monkeypatch: Patch) -> None:
    """The one under way is lost in a crash too."""
    monkeypatch.setattr(Saver, "pending", property(lambda self: len(self._queue)))
    assert is_caught_by(simulated.test_a_crash_costs_no_more_than_what_is_pending)
    assert is_caught_by(queue.test_five_fast_saves_and_an_end_leave_the_fifth, desk())


def test_saving_what_the_caller_has_later(monkeypatch: Patch) -> None:
    """The copy shares the caller's list."""
    monkeypatch.setitem(freezing._FREEZERS, list, lambda value: value)
    assert is_caught_by(frozen.test_what_the_owner_changes_afterwards_is_not_in_it, "lists")
    assert on_a_store(behind.test_what_the_caller_changes_at_once_is_not_saved, "background", behind.LARGE)


def test_sharing_an_array_that_is_only_read(monkeypatch: Patch) -> None:
    monkeypatch.setattr(arrays, "frozen", lambda value: value if not value.flags.writeable else value.copy())
    assert is_caught_by(frozen.test_an_array_over_bytes_is_shared_and_a_view_that_is_only_read_is_not)


def test_packing_the_whole_in_one_go(monkeypatch: Patch) -> None:
    """An event loop in another thread stands still meanwhile."""
    monkeypatch.setattr(gently, "prepare", encoding.prepare)
    assert is_caught_by(frozen.test_others_get_their_turn_between_two_pieces, monkeypatch)


def test_cancelling_the_save_with_who_waits_for_it(monkeypatch: Patch) -> None:
    async def until(outcomes: Any) -> None:
        for outcome in outcomes:
            await asyncio.wrap_future(outcome)

    monkeypatch.setattr(pending, "until", until)
    monkeypatch.setattr(queue, "until", until)
    assert is_caught_by(queue.test_who_gives_up_waiting_changes_nothing, desk())


def test_forgetting_a_run_that_was_dropped(monkeypatch: Patch) -> None:
    class Nothing(set[Any]):
        def add(self, _: Any) -> None:
            pass

    monkeypatch.setattr(background, "_unfinished", Nothing())
    assert is_caught_by(queue.test_what_is_not_durable_or_not_told_is_kept_alive, desk())
    assert on_a_store(cadences.test_a_closed_store_has_made_durable_what_its_runs_had_pending)
