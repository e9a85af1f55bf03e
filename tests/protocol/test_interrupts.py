"""Ctrl-C at every moment of a call at which Python lets a signal's handler run.

What is interrupted was done or was not, and the same thread goes on: no lock stays closed, no
save is lost or waited for in vain, no action stays taken, and nobody is told of the interrupt again.
Python runs a handler when a function of its own begins and after one of C's has returned; a
profiler is called at the same moments, so it strikes at each in turn.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import cloudckpt
from cloudckpt import runner
from cloudckpt.ioloop import IOLoop
from cloudckpt.run import Run
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.ticking import Ticker

OURS = f"{Path(cloudckpt.__file__).parent}/"
_names = itertools.count()

pytestmark = [
    # A coroutine that was made, and whose first step never came, is what an interrupt may leave.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage has the profiler's place"),
]


class Suspending(MemoryStorage):
    blocking = False


class Strike:
    """Interrupts the code of this package, or what that calls, at one of those moments, counted from 0."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.has_struck = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        calls = frame.f_back if event == "call" and not is_ours(frame) else frame
        if event in ("call", "c_return") and is_ours(calls):
            if self._left == 0:
                sys.setprofile(None)
                self.has_struck = True
                raise KeyboardInterrupt
            self._left -= 1


def is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(OURS)


def struck(at: int, work: Callable[[], object]) -> bool:
    """Interrupt some work; return whether it lasted long enough."""
    strike = Strike(at)
    sys.setprofile(strike)
    try:
        work()
    except KeyboardInterrupt:
        assert strike.has_struck
    finally:
        sys.setprofile(None)
    return strike.has_struck  # also in what Python calls to clean up, whose errors it drops


@pytest.fixture(params=[MemoryStorage, Suspending], ids=["blocking", "suspending"])
def stores(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Return what makes a store, of its own each time."""

    def new() -> Store:
        name = f"interrupts-{next(_names)}"
        return Store(lambda: request.param(name), keep_last=2, probed=True)

    return new


def saves(store: Store) -> tuple[Run, Callable[[], object]]:
    run = store.run("r")
    run.save({"n": 1})
    return run, lambda: run.save({"n": 2})


def large_save(store: Store) -> tuple[Run, Callable[[], object]]:
    run = store.run("r")
    run.save({"n": 1})
    return run, lambda: run.save({"n": 2, "data": bytes(range(256)) * 1000})


def behind(store: Store) -> tuple[Run, Callable[[], object]]:
    """Three saves, one of which takes the place of another, and what waits for them."""
    run = store.run("r", cadence="background")
    run.save({"n": 1})
    run.flush()

    def work() -> None:
        for n in range(3):
            run.save({"n": n})
        run.flush()

    return run, work


def now_and_then(store: Store) -> tuple[Run, Callable[[], object]]:
    run = store.run("r", cadence="selective", every=2)

    def work() -> None:
        for n in range(3):
            run.save({"n": n})
        run.load()

    return run, work


def action(store: Store) -> tuple[Run, Callable[[], object]]:
    run = store.run("r")
    run.save({"n": 1})
    return run, lambda: run.once("pay", int, policy="retry")


def block(store: Store) -> tuple[Run, Callable[[], object]]:
    run = store.run("r")

    def work() -> None:
        with run:
            run.save({"n": 2})

    return store.run("r"), work


@pytest.mark.parametrize(
    "begin",
    [saves, large_save, behind, now_and_then, action, block],
    ids=lambda one: one.__name__,
)
def test_after_an_interrupt_at_any_moment_the_same_thread_goes_on(
    stores: Callable[[], Store], begin: Callable[[Store], tuple[Run, Callable[[], object]]]
) -> None:
    """Between taking a lock and its block, say: every later save of the run waited for good."""
    with stores() as store:
        begin(store)[1]()  # what is imported late is imported
    for at in itertools.count():
        store = stores()
        run, work = begin(store)
        if not struck(at, work):
            assert at > 20
            break
        run.save({"n": 99})
        run.flush()
        assert run.pending == 0
        assert run.once("pay", int, policy="retry") == 0
        assert store.run("r").load() == {"n": 99}
        run.close()
        store.close()


def test_the_clock_of_leases_goes_on_after_an_interrupt() -> None:
    """Of the process: no run with a lease could be opened or closed any more."""

    def use(ticker: Ticker) -> None:
        ticker.cancel(ticker.after(60, list))

    for at in itertools.count():
        ticker, ticked = Ticker(), threading.Event()
        interrupted = struck(at, partial(use, ticker))
        ticker.after(0, ticked.set)
        assert ticked.wait(60)
        if not interrupted:
            break
    assert at > 5


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # an interrupt may leave a loop that was not begun
def test_a_loop_whose_start_was_interrupted_is_started_by_the_next() -> None:
    """There was a loop, and no thread that ran it: the next call waited for good."""
    loop = IOLoop()

    async def answer() -> int:
        return 42

    for at in itertools.count():
        loop._reset()
        interrupted = struck(at, loop.get)
        assert loop.begin(answer()).result(60) == 42
        running, thread = loop.get(), loop._thread
        assert thread is not None
        running.call_soon_threadsafe(running.stop)
        thread.join(60)
        running.close()
        if not interrupted:
            break
    assert at > 2
    del running, thread
    loop._reset()
    gc.collect()


def test_an_interrupt_of_who_waits_for_work_aside_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiter does the work itself when no thread has: the next save was interrupted again, and so on."""

    class NoThreads:
        def submit(self, *_: Any) -> None:
            pass

    async def strike() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_aside", NoThreads())
    work = runner._Aside(strike())
    with pytest.raises(KeyboardInterrupt):
        runner.drive(_waited(work))
    with pytest.raises(cloudckpt.StorageError, match="interrupted"):
        runner.drive(_waited(work))


def test_an_interrupted_deletion_is_not_told_to_the_runs_that_are_closed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every close of a run of that store was interrupted once more."""

    class Struck(MemoryStorage):
        async def delete(self, keys: Sequence[str]) -> None:
            raise KeyboardInterrupt

    class NoThreads:
        def submit(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(runner, "_aside", NoThreads())
    store = Store(lambda: Struck(f"interrupts-{next(_names)}"), keep_last=1, probed=True)
    run = store.run("r")
    for n in range(3):
        run.save({"n": n, "data": os.urandom(100_000)})
    with pytest.raises(KeyboardInterrupt):
        run.close()
    with store.run("r") as run:
        assert run.load()["n"] == 2
    store.close()


async def _waited(work: Any) -> Any:
    return await work.wait()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    sys.setprofile(None)
