"""Calls other than a save that are cancelled or time out: what goes on, and what can be done after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.errors import ClosedError, InFlightError, InvalidInputError, WaitingError
from cloudckpt.events import Acting
from cloudckpt.hooks import listen
from cloudckpt.store import Store
from cloudckpt.testing.faults import Effect, Fault, FaultyStorage, Plan
from tests.protocol.stalling import RUN, WAIT, Moment, Stalling
from tests.unit.machines import manifest
from tests.until import until

both = pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "suspending"])


@pytest.fixture(params=[True, False], ids=["blocking", "suspending"])
def storage(request: pytest.FixtureRequest) -> Stalling:
    return Stalling(blocking=request.param)


@pytest.fixture
def store(storage: Stalling) -> Store:
    return Store(lambda: storage, probed=True)


@asynccontextmanager
async def cancelled(
    storage: Stalling, call: Callable[[], Coroutine[Any, Any, Any]], at: int = 0, moment: Moment = "before"
) -> AsyncIterator[None]:
    """Cancel a call while one of its requests stands still, which goes on after the block."""
    storage.arm(at, moment)
    task = asyncio.ensure_future(call())
    try:
        assert await asyncio.to_thread(storage.reached.wait, WAIT)
        task.cancel()
        await asyncio.wait([task], timeout=WAIT)
        assert task.cancelled()
        yield
    finally:
        storage.let_go()


# ---- actions


@pytest.mark.parametrize("cadence", ["step", "background"])
def test_a_result_that_is_known_is_recorded_although_the_caller_is_cancelled(
    storage: Stalling, store: Store, cadence: Any
) -> None:
    """A time-out strikes as the result is noted: else a person would have to look whether it was paid."""
    paid = []

    async def pay() -> str:
        paid.append(1)
        storage.arm(0)
        return "receipt"

    async def agent() -> None:
        run = store.run(RUN, cadence=cadence)
        await run.afinish({"n": 1})
        task = asyncio.ensure_future(run.aonce("pay", pay))
        assert await asyncio.to_thread(storage.reached.wait, WAIT)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        again = asyncio.ensure_future(run.aonce("pay", pay))
        await asyncio.sleep(0.02)
        assert not again.done(), "it waits for what is recorded"
        storage.let_go()
        assert await asyncio.wait_for(again, WAIT) == "receipt"
        assert run.once("pay", pay_now) == "receipt"
        await store.aclose()

    def pay_now() -> None:
        raise AssertionError

    asyncio.run(agent())
    assert len(paid) == 1


def test_a_result_is_recorded_also_when_saves_before_it_are_under_way_as_the_caller_is_cancelled(
    storage: Stalling, store: Store
) -> None:
    run = store.run(RUN, cadence="background")

    async def pay() -> str:
        storage.arm(0)
        await run.asave({"n": 2})
        return "receipt"

    async def agent() -> None:
        await run.afinish({"n": 1})
        task = asyncio.ensure_future(run.aonce("pay", pay))
        assert await asyncio.to_thread(storage.reached.wait, WAIT)
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        storage.let_go()
        assert await asyncio.wait_for(run.aonce("pay", pay), WAIT) == "receipt"
        await store.aclose()

    asyncio.run(agent())


def test_closing_waits_for_a_result_whose_caller_was_cancelled(storage: Stalling, store: Store) -> None:
    async def pay() -> str:
        storage.arm(0)
        return "receipt"

    async def agent() -> None:
        run = store.run(RUN)
        await run.asave({"n": 1})
        task = asyncio.ensure_future(run.aonce("pay", pay))
        assert await asyncio.to_thread(storage.reached.wait, WAIT)
        task.cancel()
        await asyncio.wait([task])
        ending = asyncio.ensure_future(store.aclose())
        await asyncio.sleep(0.02)
        assert not ending.done()
        storage.let_go()
        await asyncio.wait_for(ending, WAIT)

    asyncio.run(agent())
    assert Store(lambda: storage.inner, probed=True).run(RUN).in_flight() == []


def test_an_action_whose_caller_is_cancelled_before_its_end_is_in_flight(
    storage: Stalling, store: Store
) -> None:
    """Where nobody can know: in the function itself. The key is free at once."""
    begun = asyncio.Event()

    async def pay() -> None:
        begun.set()
        await asyncio.sleep(WAIT)

    async def agent() -> None:
        run = store.run(RUN)
        task = asyncio.ensure_future(run.aonce("pay", pay))
        await asyncio.wait_for(begun.wait(), WAIT)
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(InFlightError):
            await run.aonce("pay", pay)
        await store.aclose()

    asyncio.run(agent())


def test_a_listener_that_fails_leaves_no_action_taken(store: Store) -> None:
    """Else no call of this run would ever do that action again."""

    def fails(event: object) -> None:
        if isinstance(event, Acting):
            raise ZeroDivisionError

    run = store.run(RUN)
    end = listen(fails)
    try:
        with pytest.raises(ZeroDivisionError):
            run.once("pay", dict)
    finally:
        end()
    assert run.once("pay", dict) == {}
    with pytest.raises(InvalidInputError, match="another thread"):
        run.once("outer", lambda: run.once("outer", dict))
    store.close()


# ---- what a cancelled call does after its caller went on


class Held(SystemClock):
    """A clock at which a thread stands still: a save asks what time it is, and then waits for its turn."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.armed = False

    def monotonic(self) -> float:
        if self.armed and threading.current_thread().name.startswith("cloudckpt-call"):
            self.armed = False
            self.reached.set()
            assert self.go.wait(WAIT)
        return super().monotonic()


def test_a_save_that_was_given_up_before_its_turn_is_not_made_after_a_newer_one() -> None:
    """A thread can't be stopped: it would put the older state on top of what its caller saved since."""
    storage, clock = Stalling(blocking=True), Held()
    store = Store(lambda: storage, probed=True, clock=clock)
    run = store.run(RUN)

    async def agent() -> None:
        await run.asave({"n": 1})
        clock.armed = True
        task = asyncio.ensure_future(run.asave({"n": 2}))
        assert await asyncio.to_thread(clock.reached.wait, WAIT)
        task.cancel()
        await asyncio.wait([task])
        await run.asave({"n": 3})
        clock.go.set()
        await store.aclose()

    asyncio.run(agent())
    assert Store(lambda: storage.inner).run(RUN).load() == {"n": 3}


# ---- waiting


WAITS: dict[str, Callable[[Store, Any], Coroutine[Any, Any, Any]]] = {
    "another run": lambda store, poll: store.run(RUN).await_for("child", poll=poll),
    "a person": lambda store, poll: store.run(RUN).await_answer("Go on?", poll=poll),
    "work": lambda store, poll: store.aclaim(wait=2 * WAIT, poll=poll),
}


@pytest.mark.parametrize("poll", [0.01, WAIT])
@pytest.mark.parametrize("what", list(WAITS))
def test_who_waits_and_is_cancelled_leaves_nobody_waiting(store: Store, what: str, poll: float) -> None:
    """On a folder a thread went on looking for good; closing, and the interpreter's end, waited for it."""

    async def agent() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(WAITS[what](store, poll), 0.1)
        await asyncio.wait_for(store.aclose(), WAIT / 2)

    asyncio.run(agent())


@pytest.mark.parametrize("waits", ["wait_for", "await_for"])
def test_who_polls_for_long_has_time_for_another_try_at_each_look(waits: str) -> None:
    """All looks shared one deadline: after it the first request that failed in passing ended the waiting."""
    lost = FaultyStorage(Stalling(blocking=True).inner)
    store = Store(lambda: lost, timeout=2.0, probed=True)
    run = store.run(RUN)
    child = Store(lambda: lost.inner).run("child")

    def later() -> None:
        lost._plan = Plan(tuple(Fault(len(lost.calls) + n, Effect.LOST_ANSWER) for n in range(2)))
        child.finish({"done": True})

    timer = threading.Timer(3, later)
    timer.start()
    if waits == "wait_for":
        assert run.wait_for("child", poll=0.01) == {"done": True}
    else:
        assert asyncio.run(run.await_for("child", poll=0.01)) == {"done": True}
    timer.join()
    store.close()


def test_who_polls_for_an_answer_is_told_that_the_question_has_expired(store: Store) -> None:
    """No answer is taken any more, so it would be waited for in vain."""
    with pytest.raises(WaitingError) as caught:
        store.run(RUN).wait("Go on?", expires=0.1, poll=0.05)
    assert caught.value.kind == "expired"
    store.close()


# ---- leases and blocks


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("at", range(3))
def test_a_run_is_no_obstacle_to_itself_after_a_cancelled_beginning(
    storage: Stalling, store: Store, at: int, moment: Moment
) -> None:
    """Its lease was written, and it was not told: it took itself for another worker."""

    async def agent() -> None:
        run = store.run(RUN, lease=WAIT)
        async with cancelled(storage, run.aacquire, at, moment):
            pass
        await run.asave({"n": 1})
        await run.aclose()
        await store.run(RUN, lease=WAIT).aacquire()
        await store.aclose()

    asyncio.run(agent())


def test_a_block_that_was_not_entered_does_not_hold_its_run(storage: Stalling, store: Store) -> None:
    """A folder's thread became the writer all the same, and its lease was renewed for good."""

    async def agent() -> None:
        run = store.run(RUN, lease=0.2)
        async with cancelled(storage, run.__aenter__, 2, "after"):
            pass
        async with asyncio.timeout(WAIT / 2), store.run(RUN, lease=WAIT, busy="wait") as other:
            assert other.epoch == 2
        await store.aclose()
        assert run.id == other.id, "somebody holds it still"

    asyncio.run(agent())


def beat(store: Store) -> int:
    """Return how often the run's lease was renewed."""
    lease = manifest(store, RUN).lease
    assert lease is not None
    return lease.beat


def test_a_run_that_was_not_entered_and_then_is_renews_its_lease(storage: Stalling, store: Store) -> None:
    async def agent() -> None:
        run = store.run(RUN, lease=0.2)
        async with cancelled(storage, run.__aenter__, 2, "after"):
            pass
        async with run:
            before = beat(store)
            await asyncio.to_thread(until, lambda: beat(store) > before)
        await store.aclose()

    asyncio.run(agent())


# ---- ends


@pytest.mark.parametrize("ends", ["close", "aclose"])
def test_a_close_that_was_cancelled_is_gone_on_with_by_the_next(
    storage: Stalling, store: Store, ends: str
) -> None:
    """It took the store for closed: nobody waited for the saves any more, not even the interpreter."""
    closed = []

    async def close() -> None:
        closed.append(True)

    storage.close = close  # type: ignore[method-assign]

    async def agent() -> None:
        run = store.run(RUN, cadence="background")
        async with cancelled_close(storage, run, store.aclose):
            with pytest.raises(ClosedError):
                store.run(RUN)
        if ends == "close":
            await asyncio.to_thread(store.close)
        else:
            await store.aclose()
        assert run.pending == 0
        await store.aclose()

    asyncio.run(agent())
    assert closed == [True]
    assert Store(lambda: storage.inner).run(RUN).load() == {"n": 2}


def test_a_runs_close_that_was_cancelled_is_gone_on_with_by_the_next(storage: Stalling, store: Store) -> None:
    """It said that nothing was pending, and the next one waited for nothing."""

    async def agent() -> None:
        run = store.run(RUN, cadence="background")
        async with cancelled_close(storage, run, run.aclose):
            assert run.pending == 2
        await run.aclose()
        assert run.pending == 0
        assert Store(lambda: storage.inner).run(RUN).load() == {"n": 2}
        await store.aclose()

    asyncio.run(agent())


@asynccontextmanager
async def cancelled_close(
    storage: Stalling, run: Any, close: Callable[[], Coroutine[Any, Any, None]]
) -> AsyncIterator[None]:
    """Cancel a close that waits for two saves, the first of which goes on after the block."""
    storage.arm(0)
    await run.asave({"n": 1})
    await run.asave({"n": 2})
    assert await asyncio.to_thread(storage.reached.wait, WAIT)
    for _ in range(2):
        task = asyncio.ensure_future(close())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task], timeout=WAIT)
        assert task.cancelled()
    yield
    storage.let_go()
