"""Leases: who is refused, for how long, and that nobody's wall clock decides it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.errors import FencedError, InvalidInputError, RunBusyError
from cloudckpt.leases import CLAIM, RUN, Terms, claim_of, terms_for
from cloudckpt.model import Lease
from cloudckpt.testing.driver import by_hand
from cloudckpt.working import Work
from tests.unit.machines import LONG, Clock, clock_of, manifest, refused, stores
from tests.until import PATIENCE

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
