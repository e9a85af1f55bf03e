"""Leases: who is refused, for how long, and that nobody's wall clock decides it."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import cloudckpt
from cloudckpt import Run, Store
from cloudckpt.access import Edit
from cloudckpt.clock import SystemClock
from cloudckpt.errors import AmbiguousError, FencedError, InvalidInputError, RunBusyError, RunDeletedError
from cloudckpt.leases import CLAIM, RUN, Terms, claim_of, terms_for
from cloudckpt.model import Lease, Manifest
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import FaultyStorage
from cloudckpt.working import Work

_names = itertools.count()
LONG = 1000.0
PATIENCE = 30.0
"""Seconds until a test gives up what must come; how fast it comes is the machine's affair."""


class Clock:
    """A clock that goes on when the test says so; its wall time may be anything."""

    def __init__(self, wall: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self.wall = wall
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds


def stores(count: int = 2, *, clocks: list[Any] | None = None) -> list[Store]:
    """Return stores in one place, as so many machines have them, each with a clock of its own."""
    name = f"memory://leases-{next(_names)}"
    return [cloudckpt.open(name, clock=clock) for clock in clocks or [Clock() for _ in range(count)]]


def clock_of(store: Store) -> Clock:
    clock = store._core.effects.clock
    assert isinstance(clock, Clock)
    return clock


def manifest(store: Store, run: str = "r") -> Manifest:
    return by_hand(store._core.access(run).base(deleted=True)).manifest


def until(true: Callable[[], Any]) -> None:
    """Wait until something has come."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


@contextmanager
def refused() -> Iterator[pytest.ExceptionInfo[RunBusyError]]:
    with pytest.raises(RunBusyError) as told:
        yield told


# ---- who is refused


def test_a_second_worker_is_told_who_holds_the_run_and_for_how_long() -> None:
    ours, theirs = stores()
    with ours.run("r", lease=LONG) as run:
        run.save({"n": 1})
        for lease in (None, LONG):
            with refused() as told:
                theirs.run("r", lease=lease).acquire()
            facts = told.value.facts
            assert (facts["pid"], facts["lease"], told.value.left) == (os.getpid(), LONG, LONG)
            assert facts["host"]
        run.save({"n": 2})
    assert manifest(ours).epoch == 1


def test_a_save_without_a_block_is_refused_too() -> None:
    ours, theirs = stores()
    with ours.run("r", lease=LONG), refused():
        theirs.run("r").save({"n": 1})


def test_reading_and_saying_something_need_no_lease() -> None:
    """An operator's tag must not wait for an agent, nor end its lease."""
    ours, theirs = stores()
    with ours.run("r", lease=LONG) as run:
        run.save({"n": 1})
        assert theirs.run("r").load() == {"n": 1}
        theirs.run("r").tag("best")
        assert manifest(ours).lease == Lease(LONG, 2)
        run.save({"n": 2})


def test_leaving_the_block_lets_the_next_one_in_at_once() -> None:
    ours, theirs = stores()
    for _ in range(3):
        with ours.run("r", lease=LONG):
            pass
        with theirs.run("r", lease=LONG) as run:
            run.save({})
    assert manifest(ours).lease is not None
    assert manifest(ours).lease.seconds is None  # type: ignore[union-attr]


def test_an_exception_in_the_block_lets_it_go_as_well() -> None:
    ours, theirs = stores()
    with pytest.raises(ZeroDivisionError), ours.run("r", lease=LONG):
        raise ZeroDivisionError
    theirs.run("r").acquire()


def test_who_takes_a_run_of_workers_without_a_lease_gives_it_back() -> None:
    """An operator's rollback would take it out of the workers' queue for ever, and nobody would notice."""
    ours, theirs = stores()
    ours.submit("r", {"n": 1})
    with theirs.run("r", busy="take") as run:
        assert manifest(ours).lease is None, "nobody may claim it meanwhile"
        run.rollback(seq=1)
    claimed = ours.claim()
    assert claimed is not None
    assert claimed.load() == {"n": 1}
    with theirs.run("r", busy="take") as run:
        run.finish({})
    assert manifest(ours).lease is None


def test_a_run_that_is_done_has_no_lease_left() -> None:
    ours, _ = stores()
    with ours.run("r", lease=LONG) as run:
        run.finish({})
        assert manifest(ours).lease is None


def test_taking_a_run_over_fences_its_holder() -> None:
    ours, theirs = stores()
    with ours.run("r", lease=LONG) as run:
        with theirs.run("r", busy="take") as other:
            other.save({"by": "them"})
        with pytest.raises(FencedError):
            run.save({"by": "us"})
        assert isinstance(run.fenced, FencedError)
    assert theirs.run("r").load() == {"by": "them"}


def test_a_closed_store_lets_go_of_its_leases() -> None:
    """A process that ends without leaving its block by `with` must not keep the next one waiting."""
    ours, theirs = stores()
    run = ours.run("r", lease=LONG)
    run.save({})
    ours.close()
    theirs.run("r").acquire()


# ---- how long


def test_a_lease_expires_when_nothing_was_written_for_its_time() -> None:
    ours, theirs = stores()
    run = ours.run("r", lease=LONG)
    run.acquire()
    with refused():
        theirs.run("r").acquire()
    clock_of(theirs).seconds += LONG - 1
    with refused() as told:
        theirs.run("r").acquire()
    assert told.value.left == 1
    clock_of(theirs).seconds += 1
    theirs.run("r").acquire()
    with pytest.raises(FencedError):
        run.save({})


def test_each_write_of_its_holder_renews_it() -> None:
    """Saves, notes of actions and heartbeats alike."""
    ours, theirs = stores()
    with ours.run("r", lease=LONG) as run:
        writes: list[Callable[[], Any]] = [
            lambda: run.save({}),
            lambda: run.once("pay", lambda: 1),
            lambda: by_hand(run._claimed().renew()),
        ]
        for write in writes * 2:
            with refused():
                theirs.run("r").acquire()
            clock_of(theirs).seconds += LONG - 1
            write()
    assert manifest(ours).epoch == 1


def test_what_others_write_does_not_renew_it() -> None:
    """A collector that comes every minute would keep a dead worker's run from ever being taken."""
    ours, theirs = stores()
    run = ours.run("r", lease=LONG)
    run.save({})
    for _ in range(4):
        with refused():
            theirs.run("r").acquire()
        clock_of(theirs).seconds += LONG / 4
        theirs.run("r").annotate({"looked": clock_of(theirs).seconds})
        theirs.collect("r")
    theirs.run("r").acquire()
    assert run.head == 1  # the holder alone does not know it yet


def taken_by_a_machine_whose_clock_is_ahead() -> bool:
    """Whether a worker that is at work loses its run to one whose wall clock is a day ahead, or behind."""
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    for days in (1, -1):
        ours, theirs = stores(clocks=[Clock(begin), Clock(begin + timedelta(days=days))])
        with ours.run("r", lease=LONG) as run:
            run.save({})
            try:
                theirs.run("r").acquire()
            except RunBusyError:
                continue
            return True
    return False


def test_no_wall_clock_decides() -> None:
    assert not taken_by_a_machine_whose_clock_is_ahead()


def test_the_holder_is_who_is_there_now() -> None:
    """A lease of another writer than the one that was watched is a new one."""
    ours, theirs, thirds = stores(3)
    first = ours.run("r", lease=LONG)
    first.acquire()
    with refused():
        theirs.run("r").acquire()
    clock_of(theirs).seconds += LONG
    thirds.run("r", lease=LONG, busy="take").acquire()
    with refused():
        theirs.run("r").acquire()


# ---- waiting


def test_waiting_ends_when_the_holder_leaves() -> None:
    ours, theirs = stores(clocks=[Clock(), SystemClock()])
    run = ours.run("r", lease=LONG)
    run.acquire()
    got = threading.Event()

    def wait() -> None:
        with theirs.run("r", lease=LONG, busy="wait"):
            got.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not got.wait(0.05)
    run.close()
    assert got.wait(PATIENCE)
    waiter.join()


def test_waiting_ends_when_the_lease_has_expired() -> None:
    real = SystemClock()
    ours, theirs = stores(clocks=[Clock(), real])
    ours.run("r", lease=0.2).acquire()
    with theirs.run("r", busy="wait") as run:
        assert run.epoch == 2


def test_a_task_that_waits_can_be_cancelled() -> None:
    """It would wait for as long as the other one works."""
    ours, theirs = stores(clocks=[Clock(), SystemClock()])

    async def main() -> None:
        with ours.run("r", lease=LONG):
            waiting = asyncio.create_task(theirs.run("r", busy="wait").aacquire())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(main())
    theirs.close()
    assert manifest(ours).epoch == 1


# ---- beside the run


def test_the_heart_beats_while_a_tool_runs_and_the_run_is_open() -> None:
    """The observer's clock is the test's, so a slow machine expires nothing."""
    ours, theirs = stores(clocks=[SystemClock(), Clock()])

    def beat() -> int:
        lease = manifest(ours).lease
        return lease.beat if lease else 0

    with ours.run("r", lease=0.05) as run:
        run.save({})
        for _ in range(5):
            before = beat()
            with refused():
                theirs.run("r").acquire()
            until(lambda before=before: beat() > before)
            clock_of(theirs).seconds += 0.049
    theirs.run("r").acquire()
    assert manifest(ours).epoch == 2


def test_the_heart_is_still_while_saves_renew_the_lease() -> None:
    """A request more than needed for each step would be felt on a store that counts them."""
    clock = Clock()
    storage = FaultyStorage(MemoryStorage(f"beats-{next(_names)}"))
    store = Store(lambda: storage, clock=clock, probed=True)
    with store.run("r", lease=0.03) as run:
        for n in range(5):
            run.save({"n": n})
        writes = sum(call.op == "replace" for call in storage.calls)
        time.sleep(0.1)  # by the store's clock no time has gone by
        assert sum(call.op == "replace" for call in storage.calls) == writes
        clock.seconds = 1.0
        until(lambda: sum(call.op == "replace" for call in storage.calls) > writes)


def test_a_fenced_worker_learns_it_between_its_saves() -> None:
    for options in ({"lease": 0.05}, {"watch": 0.02}):
        ours, theirs = stores(clocks=[SystemClock(), Clock()])
        told: list[Any] = []
        with ours.run("r", on_fenced=told.append, **options) as run:
            run.save({})
            assert run.fenced is None
            with theirs.run("r", busy="take"):
                until(lambda told=told: told)
            assert told == [run.fenced]
            assert isinstance(told[0], FencedError)
            with pytest.raises(FencedError):
                run.save({})
        assert run.fenced is told[0], "who left the block still wants to know"


def test_a_deleted_run_is_told_like_a_fence() -> None:
    ours, theirs = stores(clocks=[SystemClock(), Clock()])
    told: list[Any] = []
    with ours.run("r", watch=0.02, on_fenced=told.append) as run:
        run.save({})
        theirs.delete("r")
        until(lambda: told)
    assert isinstance(told[0], RunDeletedError)


def test_what_the_callback_raises_comes_out_of_the_block() -> None:
    ours, theirs = stores(clocks=[SystemClock(), Clock()])
    called = threading.Event()

    def fail(_: object) -> None:
        called.set()
        raise ZeroDivisionError("from the callback")

    run = ours.run("r", watch=0.02, on_fenced=fail)
    run.acquire()
    theirs.run("r", busy="take").acquire()
    assert called.wait(PATIENCE)
    until(lambda: run._keeper is not None and run._keeper.error is not None)
    with pytest.raises(ZeroDivisionError, match="from the callback"):
        run.close()


def test_a_watch_writes_nothing() -> None:
    storage = FaultyStorage(MemoryStorage(f"watch-{next(_names)}"))
    store = Store(lambda: storage, probed=True)
    with store.run("r", watch=0.01) as run:
        run.save({})
        before = len(storage.calls)
        until(lambda: len(storage.calls) >= before + 3)
        assert {call.op for call in storage.calls[before:]} <= {"read", "changed"}


def test_a_tag_that_a_watch_has_seen_does_not_cost_the_next_save_a_lost_race() -> None:
    storage = FaultyStorage(MemoryStorage(f"watch-{next(_names)}"))
    store = Store(lambda: storage, probed=True)
    with store.run("r") as run:
        run.save({"n": 1})
        by_hand(store._core.access("r").amend(_noted))
        by_hand(run._claimed().look())
        before = len(storage.calls)
        run.save({"n": 2})
        assert [call.op for call in storage.calls[before:]].count("replace") == 1


async def _noted(manifest: Manifest) -> Any:
    return Edit(replace(manifest, notes={"a": 1})) if not manifest.notes else None


class Gone(MemoryStorage):
    """A store that may be gone for a while."""

    gone = False
    asked = 0

    async def replace(self, key: str, data: Any, token: str) -> str:
        self.asked += 1
        if self.gone:
            raise AmbiguousError("gone on purpose")
        return await super().replace(key, data, token)


def test_a_heart_that_can_not_beat_costs_no_save() -> None:
    """A store that is gone for a moment between two saves is nobody's failure."""
    clock, storage = Clock(), Gone(f"gone-{next(_names)}")
    store = Store(lambda: storage, clock=clock, probed=True, timeout=0.0)
    with store.run("r", lease=0.03) as run:
        run.save({"n": 1})
        storage.gone, before = True, storage.asked
        clock.seconds = 1.0
        until(lambda: storage.asked >= before + 2)
        storage.gone = False
        run.save({"n": 2})
    assert store.run("r").load() == {"n": 2}


def test_a_run_that_was_dropped_keeps_no_lease_alive() -> None:
    ours, _ = stores(clocks=[SystemClock(), Clock()])
    run: Run | None = ours.run("r", lease=0.03)
    assert run is not None
    run.acquire()
    keeper = run._keeper
    assert keeper is not None
    del run
    until(lambda: keeper._owner() is None)
    lease = manifest(ours).lease
    time.sleep(0.1)
    assert manifest(ours).lease in (lease, Lease(0.03, lease.beat + 1) if lease else None)


# ---- a claim that is handed over


def test_a_process_that_was_handed_a_run_takes_it_over_and_holds_it() -> None:
    """Its program need know nothing of leases; and no other one gets in between."""
    ours, theirs, thirds = stores(3)
    run = ours.run("r", lease=LONG)
    run.acquire()
    environment = run.handover()
    assert terms_for("r", None, "raise", environment) == Terms(LONG, "raise", handed=run._claimed().id)
    assert terms_for("other", None, "raise", environment) == Terms()
    heir = theirs.run("r")
    heir._work = Work(terms_for("r", None, "raise", environment))
    heir.acquire()
    assert manifest(ours).lease == Lease(LONG, 1)
    with refused():
        thirds.run("r").acquire()
    again = thirds.run("r")  # the same environment, after another one has taken over
    again._work = heir._work
    with refused():
        again.acquire()


def test_only_what_is_held_can_be_handed_over() -> None:
    ours, _ = stores()
    for run in (ours.run("r"), ours.run("r", lease=LONG)):
        with pytest.raises(InvalidInputError):
            run.handover()


def test_the_environment_says_it_all() -> None:
    assert claim_of("a b", "0f", 1.5) == {RUN: "a b", CLAIM: "0f:1.5"}


@pytest.mark.parametrize(
    "options",
    [
        {"lease": 0},
        {"lease": -1},
        {"lease": float("nan")},
        {"lease": float("inf")},
        {"lease": True},
        {"lease": "30"},
        {"watch": 0},
        {"busy": "perhaps"},
        {"on_fenced": print},
        {"max_steps": -1},
        {"max_steps": 1.5},
    ],
)
def test_a_wrong_argument_is_told_at_once(options: dict[str, Any]) -> None:
    (store,) = stores(1)
    with pytest.raises(InvalidInputError):
        store.run("r", **options)


# ---- processes


def test_a_forked_child_is_a_worker_of_its_own_and_beats_for_nobody() -> None:
    """It has its parent's memory and none of its threads; a child that beat would keep a dead run alive."""
    (ours,) = stores(1, clocks=[SystemClock()])
    with ours.run("r", lease=LONG) as run:
        run.save({})
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert run._keeper is None
                assert run.epoch is None
                with refused():
                    run.save({"by": "child"})
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        run.save({"by": "parent"})
    assert ours.run("r").load() == {"by": "parent"}
