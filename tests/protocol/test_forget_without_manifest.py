"""Objects of a run without a manifest, as a copy that broke off leaves them: they hold states, too.

No collector touches them, and the run that they came from may be forgotten by now.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.errors import HeldError, RunDeletedError, RunNotFoundError
from cloudckpt.pointer import read_base
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol.scripted import ScriptedStorage

RUN = "r"
WHY = "request 1138"
_names = itertools.count()


class EnoughError(Exception):
    """The test's."""


def broken_off(there: Any) -> Store:
    """Return the store of a run whose first copy broke off, with states in the other store."""
    inner = MemoryStorage(f"source-{next(_names)}")
    store = Store(lambda: inner)
    with store.run(RUN) as run:
        for n in range(3):
            run.save({"n": n, "blob": os.urandom(40_000)})

    def heard(_: int) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        store.copy(RUN, Store(lambda: there), progress=heard)
    assert objects(there)
    assert by_hand(read_base(there, RUN)) is None
    return store


def objects(there: Any) -> list[str]:
    return [row.key for row in by_hand(there.list(keys.OBJECTS)).rows]


ERASE: dict[str, Callable[[Store], Any]] = {
    "forget": lambda store: store.forget(RUN, why=WHY),
    "delete": lambda store: store.delete(RUN, why=WHY),
}
each = pytest.mark.parametrize("erase", ERASE.values(), ids=ERASE)


@each
def test_they_are_erased_and_a_late_copy_is_refused(erase: Callable[[Store], Any]) -> None:
    there = MemoryStorage(f"there-{next(_names)}")
    source = broken_off(there)
    store = Store(lambda: there)
    erase(store)
    assert objects(there) == []
    summary = store.run(RUN).summary()
    assert (summary.status, summary.tombstone and summary.tombstone.why) == ("deleted", WHY)
    with pytest.raises(RunDeletedError):
        source.copy(RUN, store)
    with pytest.raises(RunDeletedError):
        store.run(RUN).save({"n": 1})
    assert [report.ok for report in store.verify(depth=3)] == [True]
    assert erase(store)
    assert store.collect(RUN).removed == 0


def test_a_dry_run_counts_them_and_writes_nothing() -> None:
    there = MemoryStorage(f"there-{next(_names)}")
    broken_off(there)
    store = Store(lambda: there)
    count = len(objects(there))
    assert store.forget(RUN, why=WHY, dry_run=True).values == count
    assert store.delete(RUN, dry_run=True).removed == count
    assert len(objects(there)) == count
    assert by_hand(read_base(there, RUN)) is None


def test_a_receipt_says_that_nobody_knows_what_stood_there() -> None:
    there = MemoryStorage(f"there-{next(_names)}")
    broken_off(there)
    receipt = Store(lambda: there).forget(RUN, why=WHY)
    assert receipt.last_manifest == ""
    assert receipt.values > 0
    assert receipt.document()["last_manifest"] == ""


@each
def test_of_what_is_not_there_nothing_is_made(erase: Callable[[Store], Any]) -> None:
    there = MemoryStorage(f"there-{next(_names)}")
    with pytest.raises(RunNotFoundError):
        erase(Store(lambda: there))
    assert by_hand(there.list("")).rows == ()


@each
def test_a_run_that_begins_meanwhile_is_looked_at_like_any_other(erase: Callable[[Store], Any]) -> None:
    storage = ScriptedStorage()
    broken_off(storage.inner)

    async def begun_before(go: Any) -> Any:
        run = Store(storage.again).run(RUN)
        run.save({"n": 1})
        run.hold("case 7")
        return await go()

    storage.writes.append(begun_before)
    with pytest.raises(HeldError, match="case 7"):
        erase(Store(lambda: storage))
    assert Store(storage.again).run(RUN).load() == {"n": 1}


@each
def test_what_was_interrupted_is_called_again(erase: Callable[[Store], Any]) -> None:
    def attempt(plan: Plan) -> tuple[MemoryStorage, FaultyStorage]:
        there = MemoryStorage(f"there-{next(_names)}")
        broken_off(there)
        faulty = FaultyStorage(there, plan)
        store = Store(lambda: faulty, timeout=1)
        try:
            erase(store)
        except SimulatedCrash:
            assert faulty.crashed
        finally:
            store._core.closed = True
        return there, faulty

    calls = len(attempt(Plan())[1].calls)
    assert calls > 4
    for plan in every_fault(calls, [Effect.CRASH_BEFORE, Effect.CRASH_AFTER, Effect.LOST_ANSWER]):
        there, _ = attempt(plan)
        erase(Store(lambda there=there: there))
        assert objects(there) == [], plan
