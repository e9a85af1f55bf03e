"""How a question ends: by an answer or by time, once and for all; and what a question may be called."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cloudckpt.access import Access
from cloudckpt.errors import InvalidInputError, RunDeletedError, WaitingError
from cloudckpt.run import Run
from cloudckpt.storage.contract import Token
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, Fault, FaultyStorage, Plan, SimulatedCrash
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol import charging
from tests.protocol.charging import RUN, Shop
from tests.protocol.scripted import Go, ScriptedStorage

shop = charging.shop


class StoreClock:
    """Moves the store's clock; asks the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from cloudckpt import questions

        plain, self.ahead = questions.store_time, timedelta()

        async def moved(access: Access) -> datetime:
            return await plain(access) + self.ahead

        monkeypatch.setattr(questions, "store_time", moved)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StoreClock:
    return StoreClock(monkeypatch)


def ask(shop: Shop, **options: Any) -> WaitingError:
    with shop.run() as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?", **options)
    return caught.value


def test_who_looks_again_and_again_is_told_that_it_expired(shop: Shop, clock: StoreClock) -> None:
    """It went on looking for good."""
    ask(shop, expires=60)
    clock.ahead = timedelta(minutes=2)
    assert ask(shop, expires=60, poll=0.01).kind == "expired"


def test_a_question_that_expired_for_its_run_takes_no_answer_whatever_the_clock_does(
    shop: Shop, clock: StoreClock
) -> None:
    """The run went on without, and a resumed one was given the answer: it did both."""
    token = str(ask(shop, expires=60).token)
    clock.ahead = timedelta(minutes=2)
    assert ask(shop, expires=60).kind == "expired"
    assert shop.run().questions() == [], "nobody need look at it any more"
    clock.ahead = timedelta()
    with pytest.raises(InvalidInputError, match="expired") as caught:
        shop.run().answer(token, True)
    assert caught.value.kind == "expired"
    assert ask(shop, expires=60).kind == "expired"
    with shop.run() as run:
        run.save({"n": 1})
    known = Ledger()
    known.ask({"n": 1})
    assert by_hand(check_laws(shop.inner, RUN, known)).status == "running"


def test_an_answer_that_was_under_way_when_it_expired_counts_not_at_all_or_for_the_run_too(
    shop: Shop, clock: StoreClock
) -> None:
    """It was judged in time, and written when the run had been told that there is none."""
    token = str(ask(shop, expires=60).token)
    storage = ScriptedStorage()
    storage.inner = shop.inner
    with shop.run() as run:

        async def late(go: Go) -> Token:
            clock.ahead = timedelta(minutes=2)
            with pytest.raises(WaitingError, match="expired"):
                run.wait("Ship it?", expires=60)
            return str(await go())

        storage.writes.append(late)
        with pytest.raises(InvalidInputError, match="expired"):
            shop.open(storage).run(RUN).answer(token, True)
    assert ask(shop, expires=60).kind == "expired"


def test_an_answer_that_is_faster_than_the_note_that_it_expired_counts(shop: Shop, clock: StoreClock) -> None:
    token = str(ask(shop, expires=60).token)
    storage = ScriptedStorage()
    storage.inner = shop.inner
    with shop.open(storage).run(RUN) as run:
        clock.ahead = timedelta(minutes=2)

        async def answered_first(go: Go) -> Token:
            clock.ahead = timedelta()
            shop.run().answer(token, "yes")
            return str(await go())

        storage.writes.append(answered_first)
        assert run.wait("Ship it?", expires=60) == "yes"


def test_a_question_that_was_asked_expires_wherever_its_process_died(shop: Shop, clock: StoreClock) -> None:
    """When that was by the store's clock was noted after it was asked: without, it never expired."""
    seen, number = 0, 0
    while True:
        shop, number = Shop(), number + 1
        shop.run().save({"n": 1})
        storage = FaultyStorage(shop.inner, Plan((Fault(number, Effect.CRASH_AFTER),)))
        store = shop.open(storage)
        with suppress(SimulatedCrash, WaitingError):
            store.run(RUN).wait("Ship it?", expires=60)
        store._core.closed = True
        for question in shop.run().questions():
            seen += 1
            clock.ahead = timedelta(minutes=2)
            with pytest.raises(InvalidInputError, match="expired"):
                shop.run().answer(question.token, True)
            clock.ahead = timedelta()
        if not storage.crashed:
            break
    assert seen > 1


@pytest.mark.parametrize("bad", [5, "", "x" * 600, ("a",), "\ud83d\ude00"])
def test_an_unusable_key_of_a_question_is_refused(shop: Shop, bad: Any) -> None:
    """One that is no str went into the run's manifest, which nobody could read again."""
    shop.run().save({"n": 1})
    with shop.run() as run, pytest.raises(InvalidInputError, match=r"key|surrogate"):
        run.wait("Ship it?", key=bad)
    assert shop.run().load() == {"n": 1}


@pytest.mark.parametrize("bad", [5, ("ann",), UUID(int=7), b"ann"])
def test_who_and_why_are_text_or_refused(shop: Shop, bad: Any) -> None:
    """A user's number went into the run's manifest, which nobody could read again."""
    shop.run().save({"n": 1})
    token = str(ask(shop).token)
    for say in (
        lambda: shop.run().answer(token, True, by=bad),
        lambda: shop.run().hold("why", by=bad),
        lambda: shop.run().hold("why", by=bad, whole=True),
        lambda: shop.store.delete(RUN, by=bad),
        lambda: shop.store.delete(RUN, why=bad),
        lambda: shop.store.forget(RUN, why="why", by=bad),
    ):
        with pytest.raises(InvalidInputError, match="must be a str"):
            say()
    assert shop.run().load() == {"n": 1}


def test_a_deleted_run_is_waited_for_no_longer(shop: Shop) -> None:
    """Its parent waited for good: no worker was given it, since nothing had come."""
    shop.store.submit(RUN, {"n": 1})
    shop.store.run("child").save({"n": 1})
    parent = shop.store.claim()
    assert parent
    with parent, pytest.raises(WaitingError):
        parent.wait_for("child")
    assert shop.store.claim() is None
    shop.store.delete("child")
    parent = shop.store.claim()
    assert parent
    with parent:
        for _ in range(2):
            with pytest.raises(RunDeletedError, match="waited for") as caught:
                parent.wait_for("child", poll=0.01)
            assert caught.value.facts["run"] == "child"
        assert parent.questions() == []


def test_each_of_several_runs_is_waited_for_however_long_their_ids_are(shop: Shop) -> None:
    """The key of the question was cut off, so the second was taken for the first."""
    ids = ["x" * 600 + end for end in "ab"]
    with shop.run() as run:
        for child in ids:
            with pytest.raises(WaitingError):
                run.wait_for(child)
        assert [one.child for one in run.questions()] == ids


def test_a_person_can_be_asked_of_an_action_however_long_its_key_is(shop: Shop) -> None:
    """The key of the question was cut off, so it was that of the action itself."""
    key = "k" * 512

    def half() -> None:
        raise ConnectionError

    with shop.run() as run:
        with pytest.raises(ConnectionError):
            run.once(key, half)
        with pytest.raises(WaitingError) as caught:
            run.once(key, half, policy="ask")
        run.answer(str(caught.value.token), True)
        assert run.once(key, half, policy="ask") is None


def test_nobody_can_answer_in_the_place_of_a_run_that_is_waited_for(shop: Shop) -> None:
    with shop.run() as run, pytest.raises(WaitingError) as caught:
        run.wait_for("child")
    with pytest.raises(InvalidInputError, match="end of another run"):
        shop.run().answer(str(caught.value.token), True)
    assert [one.child for one in shop.run().questions()] == ["child"]


def test_one_question_has_one_token_whoever_asked_it_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two threads was given a token of its own, and only the later one's was taken."""
    looked = threading.Barrier(2, timeout=20)
    plain = Run._action

    async def together(self: Run, *args: Any) -> Any:
        found = await plain(self, *args)
        looked.wait()
        return found

    with shop.run() as run:
        monkeypatch.setattr(Run, "_action", together)

        def ask() -> str:
            with pytest.raises(WaitingError) as caught:
                run.wait("Ship it?")
            return str(caught.value.token)

        with ThreadPoolExecutor() as pool:
            tokens = [one.result(20) for one in [pool.submit(ask), pool.submit(ask)]]
        monkeypatch.undo()
        assert len(set(tokens)) == 1
        run.answer(tokens[0], "yes")
        assert run.wait("Ship it?") == "yes"


def test_a_question_does_not_make_a_cancelled_save_a_strangers() -> None:
    """To look for an answer is not to load: who saves again continues what landed without it."""
    storage = ScriptedStorage()
    begun, go_on = threading.Event(), threading.Event()

    async def slow(go: Go) -> Any:
        begun.set()
        go_on.wait(20)
        return await go()

    async def agent() -> int:
        async with Shop().open(storage).run(RUN) as run:
            await run.asave({"n": 1})
            storage.writes.append(slow)
            save = asyncio.ensure_future(run.asave({"n": 2}, expect=1))
            await asyncio.to_thread(begun.wait, 20)
            save.cancel()
            with pytest.raises(asyncio.CancelledError):
                await save
            go_on.set()
            with pytest.raises(WaitingError):
                await run.await_answer("Ship it?")
            return (await run.asave({"n": 2}, expect=1)).seq

    assert asyncio.run(agent()) == 3
