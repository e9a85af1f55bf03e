"""A save that is cancelled, timed out or interrupted at any of its storage calls leaves nothing half-done.

The run is at the old checkpoint or at the new one; the same `Run` goes on, with no
conflict of its own making, also when a request of the cancelled save arrives late;
another process goes on too; closing does not hang; nothing is left unawaited.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cloudckpt import runner, sweep
from cloudckpt.errors import InvalidInputError, StaleStateError
from cloudckpt.run import Run
from cloudckpt.store import Store
from tests.protocol.stalling import WAIT, Life, Moment, Stalling

SMALL, LARGE = "x", bytes(range(256)) * 1000  # which does not ride, and does not shrink below what does


def state_of(n: int, size: Any) -> dict[str, Any]:
    return {"n": n, "pad": size}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Delete what expires at once; and at the end find what nobody awaited, which is an error here."""
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """What a script starts in its background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["blocking", "suspending"])
def life(request: pytest.FixtureRequest) -> Life:
    return Life(blocking=request.param == "blocking")


def lives(blocking: bool, before: int, size: Any) -> Iterator[tuple[Life, int]]:
    """Yield a run with so many checkpoints for each call that one more save makes, and the call's number."""
    for number in itertools.count():
        life = Life(blocking=blocking)
        for n in range(before):
            life.save_now(state_of(n, size))
        life.storage.arm(None)
        if number == 0:
            life.save_now(state_of(before, size))
            calls = len(life.storage.calls)
            assert calls >= 1
            life.store.close()
            life = Life(blocking=blocking)
            for n in range(before):
                life.save_now(state_of(n, size))
        elif number == calls:
            return
        yield life, number


CASES = [
    pytest.param(before, size, id=f"{name}-{before}")
    for before in (0, 3)
    for name, size in (("small", SMALL), ("large", LARGE))
]


@pytest.mark.parametrize("moment", ["before", "after", "late"])
@pytest.mark.parametrize(("before", "size"), CASES)
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "suspending"])
def test_a_cancelled_save_was_made_or_was_not(blocking: bool, before: int, size: Any, moment: Moment) -> None:
    """A thread can't be stopped, so a blocking engine's save goes on; the next one waits for it."""

    async def cancelled(life: Life, number: int) -> None:
        life.storage.arm(number, moment)
        task = asyncio.ensure_future(life.save(state_of(before, size)))
        await asyncio.to_thread(life.storage.reached.wait, WAIT)
        task.cancel()
        await asyncio.wait([task], timeout=WAIT)
        assert task.cancelled()
        assert before <= life.check() <= before + 1
        life.storage.let_go()
        await life.save(state_of(before + 1, size))
        await life.storage.arrive()
        assert life.check() in (before + 1, before + 2)
        await life.save(state_of(before + 2, size))
        await asyncio.wait_for(life.store.aclose(), WAIT)

    for life, number in lives(blocking, before, size):
        asyncio.run(cancelled(life, number))
        life.resumed(state_of(before + 2, size))


@pytest.mark.parametrize(("before", "size"), CASES)
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "suspending"])
def test_a_save_that_timed_out_may_be_made_again(blocking: bool, before: int, size: Any) -> None:
    """As a caller does who gave it too little time: the same state, once more."""

    async def timed_out(life: Life, number: int) -> None:
        life.storage.arm(number)
        state = state_of(before, size)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(life.save(state), 0.001)
        life.storage.let_go()
        await life.save(state)
        await asyncio.wait_for(life.store.aclose(), WAIT)

    for life, number in lives(blocking, before, size):
        asyncio.run(timed_out(life, number))
        life.resumed(state_of(before, size))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("before", "size"), CASES)
@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "suspending"])
def test_an_interrupted_save_was_made_or_was_not(
    blocking: bool, before: int, size: Any, moment: Moment
) -> None:
    """Ctrl-C in a sync save, at each of its calls; a lock that stayed closed would stop the next one."""
    main = threading.main_thread().ident
    assert main is not None
    for life, number in lives(blocking, before, size):
        storage = life.storage
        storage.arm(number, moment, lambda: signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            life.save_now(state_of(before, size))
        assert storage.reached.is_set()
        assert before <= life.check() <= before + 1
        storage.let_go()
        life.save_now(state_of(before + 1, size))
        life.run.close()
        life.store.close()
        life.resumed(state_of(before + 1, size))


def test_closing_waits_for_a_cancelled_save_that_goes_on() -> None:
    """Else it would find its engine closed under it, and open another that nobody closes."""
    life = Life(blocking=True)
    closed = []

    async def close() -> None:
        closed.append(life.check())

    async def caller() -> None:
        await life.save("first")
        life.storage.arm(0)
        task = asyncio.ensure_future(life.save("second"))
        await asyncio.to_thread(life.storage.reached.wait, WAIT)
        task.cancel()
        await asyncio.wait([task])
        ending = asyncio.ensure_future(life.store.aclose())
        await asyncio.sleep(0.01)
        assert not ending.done()
        life.storage.let_go()
        await asyncio.wait_for(ending, WAIT)

    life.storage.close = close  # type: ignore[method-assign]
    asyncio.run(caller())
    assert closed == [2]


def test_a_save_that_is_cancelled_before_it_begins_never_was(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, or while every thread or the loop is busy: nothing is sent, and nothing complains of it."""
    monkeypatch.setattr(runner, "_callers", runner._Pool(1, "the only one"))
    free = threading.Event()

    async def caller() -> None:
        await life.save("first")
        task = asyncio.ensure_future(life.run.asave("never"))
        task.cancel()
        await asyncio.wait([task])
        if life.storage.blocking:
            runner._callers.submit(free.wait, WAIT)
        else:
            runner._loop.get().call_soon_threadsafe(free.wait, WAIT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(life.run.asave("never"), 0.01)
        free.set()
        await life.store.aclose()

    asyncio.run(caller())
    assert life.check() == 1


def test_a_save_inside_a_save_of_the_same_thread_is_refused_and_does_not_wait_for_itself() -> None:
    """A handler of SIGTERM that saves, and strikes in mid-save."""
    life = Life(blocking=True)
    life.save_now("first")

    def strike() -> None:
        with pytest.raises(InvalidInputError, match="flag"):
            life.run.save("by the handler")
        life.storage.let_go()

    life.storage.arm(0, "before", strike)
    life.save_now("second")
    assert life.check() == 2
    life.store.close()


def test_an_interrupted_caller_does_not_stop_another_runs_saves(life: Life) -> None:
    other = life.store.run("other")
    main = threading.main_thread().ident
    assert main is not None
    life.save_now("first")
    life.storage.arm(0, "before", lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        life.save_now("second")
    assert other.save("one").seq == 1
    life.storage.let_go()
    life.store.close()


async def give_up(storage: Stalling, run: Run, state: Any, **options: Any) -> None:
    """Save, and go while the storage is at it, which goes on."""
    storage.arm(0)
    task = asyncio.ensure_future(run.asave(state, **options))
    assert await asyncio.to_thread(storage.reached.wait, WAIT)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    storage.let_go()


def test_a_save_that_its_caller_gave_up_may_be_tried_again_on_the_checkpoint_it_was_on() -> None:
    """It landed all the same: what the caller tries again continues the run, and no stranger's state."""
    storage = Stalling(blocking=True)
    run = Store(lambda: storage).run("r")
    run.save({"n": 1})

    async def agent() -> None:
        await give_up(storage, run, {"n": 2}, expect=1)
        assert (await run.asave({"n": 2}, expect=1)).seq == 3
        with pytest.raises(StaleStateError):
            await run.asave({"n": 2}, expect=2)

    asyncio.run(agent())
    assert [one.seq for one in run.history()] == [3, 2, 1]


def test_whoever_loads_is_told_of_a_save_that_was_given_up() -> None:
    """From then on a state from before it is an old copy, and must not go on top of it."""
    storage = Stalling(blocking=True)
    run = Store(lambda: storage).run("r")
    run.save({"n": 1})

    async def agent() -> None:
        await give_up(storage, run, {"n": 2}, expect=1)
        assert await run.aload() == {"n": 2}
        with pytest.raises(StaleStateError):
            await run.asave({"n": "old"}, expect=1)

    asyncio.run(agent())
