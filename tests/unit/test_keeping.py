"""What goes on beside a run at work: its lease is kept alive, and it learns that it is fenced."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import Run, Store
from cloudckpt.access import Edit
from cloudckpt.clock import SystemClock
from cloudckpt.errors import AmbiguousError, FencedError, RunDeletedError
from cloudckpt.model import Lease, Manifest
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import FaultyStorage
from cloudckpt.watching import Keeper
from tests.unit.machines import Clock, clock_of, manifest, refused, stores
from tests.until import PATIENCE, until

_names = itertools.count()


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
        for tries in (1, 2):
            clock.seconds += 1.0
            until(lambda tries=tries: storage.asked >= before + tries)
        time.sleep(0.2)
        assert storage.asked == before + 2, "it is not asked all the time, a hundred times a second"
        storage.gone = False
        run.save({"n": 2})
    assert store.run("r").load() == {"n": 2}


def test_a_worker_that_waits_for_its_turn_has_no_heart_that_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to renew, and looked a hundred times a second, each in a new thread."""
    ours, theirs = stores(clocks=[SystemClock(), SystemClock()])
    ticks: list[int] = []
    plain = Keeper._tick
    monkeypatch.setattr(Keeper, "_tick", lambda keeper: (ticks.append(1), plain(keeper))[1])
    with theirs.run("r", lease=60):
        standby = ours.run("r", lease=0.3)
        with refused():
            standby.acquire()
        began = time.monotonic()
        time.sleep(1.0)
        standby.close()
        seconds = time.monotonic() - began
    assert len(ticks) <= 30 * seconds  # of the ten a second that are right, and ninety that were not


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
