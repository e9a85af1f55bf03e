"""Where the core runs: on the caller's thread, or on one loop that nobody else's depends on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.effects import gather
from cloudckpt.errors import InvalidInputError
from cloudckpt.runner import Runner, drive, make_runner
from cloudckpt.storage.retry import RetryPolicy, is_over, within


@pytest.fixture(params=["blocking", "suspending"])
def runner(request: pytest.FixtureRequest) -> Runner:
    return make_runner(blocking=request.param == "blocking", clock=SystemClock())


@pytest.fixture
def looped() -> Runner:
    return make_runner(blocking=False, clock=SystemClock())


async def answer(value: Any = 42) -> Any:
    return value


async def fail() -> None:
    raise ZeroDivisionError


def test_a_sync_and_an_async_call_return_and_raise(runner: Runner) -> None:
    assert runner.call(answer()) == 42
    assert asyncio.run(runner.acall(answer())) == 42
    with pytest.raises(ZeroDivisionError):
        runner.call(fail())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(runner.acall(fail()))


def test_many_async_calls_of_a_blocking_engine_wait_side_by_side() -> None:
    """64 runs that save at once wait for the store together; asyncio's own threads may be six."""
    runner = make_runner(blocking=True, clock=SystemClock())
    waiting = threading.Barrier(64)

    async def meet() -> None:
        waiting.wait(20)

    async def caller() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(6))
        await asyncio.gather(*(runner.acall(meet()) for _ in range(64)))

    asyncio.run(caller())


def test_a_sync_call_in_a_running_loop_returns(runner: Runner) -> None:
    async def caller() -> Any:
        return runner.call(answer()), await runner.acall(answer(7))

    assert asyncio.run(caller()) == (42, 7)


def test_an_async_call_leaves_the_callers_loop_free(runner: Runner) -> None:
    """A folder on a slow disk must not stop the agent's other tasks."""
    release = threading.Event()

    async def slow() -> None:
        await runner.effects.offload(partial(release.wait, 60))

    async def caller() -> None:
        call = asyncio.ensure_future(runner.acall(slow()))
        await asyncio.sleep(0.01)  # which a blocked loop would not come back from
        assert not call.done()
        release.set()
        await call

    asyncio.run(caller())


def test_work_aside_ends_once_and_may_be_waited_for_twice(runner: Runner) -> None:
    async def caller() -> None:
        good, bad = runner.effects.spawn(answer()), runner.effects.spawn(fail())
        for _ in range(2):
            assert await good.wait() == 42
            with pytest.raises(ZeroDivisionError):
                await bad.wait()
        assert good.done()
        assert bad.done()

    runner.call(caller())


def test_a_lock_excludes(runner: Runner) -> None:
    inside = 0

    async def enter(lock: Any) -> None:
        nonlocal inside
        async with lock:
            inside += 1
            assert inside == 1
            await runner.effects.sleep(0.001)
            inside -= 1

    async def caller() -> None:
        lock = runner.effects.lock()
        for work in [runner.effects.spawn(enter(lock)) for _ in range(8)]:
            await work.wait()

    runner.call(caller())


def test_side_by_side_work_is_bounded_and_comes_back_in_order(runner: Runner) -> None:
    under_way, most = 0, 0
    lock = threading.Lock()
    end = time.monotonic() + 20

    async def work(n: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        while most < 4 and time.monotonic() < end:  # however late the others begin
            await runner.effects.sleep(0.001)
        with lock:
            under_way -= 1
        return n

    results = runner.call(gather(runner.effects, [partial(work, n) for n in range(10)], width=4))
    assert results == list(range(10))
    assert most == 4


def test_an_error_side_by_side_is_raised_when_nothing_runs_any_more(runner: Runner) -> None:
    """Else a put would still be under way when its save has failed already."""
    ended: list[int] = []

    async def work(n: int) -> None:
        if n == 0:
            raise ZeroDivisionError
        await runner.effects.sleep(0.02)
        ended.append(n)

    with pytest.raises(ZeroDivisionError):
        runner.call(gather(runner.effects, [partial(work, n) for n in range(8)], width=4))
    assert sorted(ended) == [1, 2, 3], "the first four ended, the others never began"


def test_work_aside_that_waits_for_more_of_it_needs_no_free_thread() -> None:
    """`verify` looks at runs side by side, and at the payloads of each: on a folder it waited for good."""
    runner = make_runner(blocking=True, clock=SystemClock())
    all_busy = threading.Barrier(8, timeout=20)  # as many as there are threads

    async def inner() -> list[int]:
        all_busy.wait()
        return await gather(runner.effects, [answer, answer], width=2)

    ended: list[Any] = []
    work = gather(runner.effects, [inner] * 8, width=8)
    thread = threading.Thread(target=lambda: ended.append(runner.call(work)), daemon=True)
    thread.start()
    thread.join(30)
    assert ended == [[[42, 42]] * 8]


def test_a_blocking_engine_that_suspends_is_told_so() -> None:
    async def suspends() -> None:
        await asyncio.sleep(0)

    with pytest.raises(InvalidInputError, match="blocking = False"):
        drive(suspends())


def test_a_call_from_the_io_thread_is_refused_and_does_not_wait_for_itself(looped: Runner) -> None:
    async def inner() -> None:
        looped.call(answer())

    with pytest.raises(InvalidInputError, match="IO thread"):
        looped.call(inner())


def test_cancelling_an_async_call_reaches_it(looped: Runner) -> None:
    """An abandoned save that goes on by itself would surprise whoever saves next."""
    begun, cancelled = threading.Event(), threading.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def caller() -> None:
        call = asyncio.ensure_future(looped.acall(waits()))
        assert await asyncio.to_thread(begun.wait, 60)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()

    asyncio.run(caller())
    assert cancelled.wait(60)


def test_work_whose_caller_goes_before_it_begins_does_not_begin(looped: Runner) -> None:
    """Also not its first step, in which an engine may send a request."""
    free = threading.Event()
    begun = []

    async def hold() -> None:
        free.wait(20)

    async def first_step() -> None:
        begun.append(True)

    busy = looped.aside(hold())
    with pytest.raises(TimeoutError):
        looped.call(first_step(), timeout=0.01)
    assert looped.aside(first_step()).cancel()
    free.set()
    busy.result(20)
    looped.call(answer())
    assert not begun


def test_a_cancelled_waiter_does_not_take_the_shared_work_with_it(looped: Runner) -> None:
    async def caller() -> Any:
        work = looped.effects.spawn(looped_answer())
        waiter = asyncio.ensure_future(work.wait())
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        return await work.wait()

    async def looped_answer() -> int:
        await asyncio.sleep(0.01)
        return 42

    assert looped.call(caller()) == 42


def test_calls_of_many_threads_share_one_loop(looped: Runner) -> None:
    found: set[int] = set()

    async def which() -> None:
        found.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.001)

    def call(_: int) -> None:
        looped.call(which())

    run_threads(8, call)
    assert len(found) == 1
    [thread] = [thread for thread in threading.enumerate() if thread.name == "cloudckpt-io"]
    assert thread.daemon, "or the interpreter would wait for it at its end"


def run_threads(number: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_ids_are_sixteen_hex_digits_and_new(runner: Runner) -> None:
    ids = {runner.effects.new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in ids)


def test_work_aside_has_the_deadline_of_the_call_that_began_it(runner: Runner) -> None:
    """In a thread as on the loop: what it tries again must not go on when its caller has given up."""
    policy = RetryPolicy(deadline=0.0)

    async def over() -> bool:
        return is_over(runner.effects)

    async def caller() -> bool:
        ended: bool = await runner.effects.spawn(over()).wait()
        return ended

    assert not runner.call(caller())
    with within(policy, runner.effects):
        assert runner.call(caller())
    assert not runner.call(caller())
