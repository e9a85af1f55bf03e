"""A checkpoint in a cold tier: what a load says, and asking for it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest

from cloudckpt import keys, restore, runner
from cloudckpt.errors import (
    AmbiguousError,
    ArchivedError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    InvalidInputError,
    RunDeletedError,
    RunNotFoundError,
    UnsupportedStoreError,
)
from cloudckpt.storage.cold import Warmth
from cloudckpt.storage.contract import Storage, Stored
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import FaultyStorage

RUN = "r"
BODY = random.Random(0).randbytes(50_000)  # so large that it does not ride
_names = itertools.count()


class ColdMemory(MemoryStorage):
    """A store with a cold tier.

    Attributes:
        cold: Keys in it, to the number of looks after which one that was asked for can be read.
        asked: What was asked for: key, days, speed.
    """

    def __init__(self) -> None:
        super().__init__(f"cold-{next(_names)}")
        self.cold: dict[str, int] = {}
        self.asked: list[tuple[str, int, str]] = []
        self.looks = 0

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        if key in self.cold:
            raise ArchivedError("the object is in a cold tier; restore it first", key=key)
        return await super().read(key, offset=offset, length=length)

    async def warmth(self, key: str) -> Warmth:
        self.looks += 1
        if key not in self.cold:
            return Warmth.WARM
        if not any(one[0] == key for one in self.asked):
            return Warmth.COLD
        self.cold[key] -= 1
        if self.cold[key] > 0:
            return Warmth.COMING
        del self.cold[key]
        return Warmth.WARM

    async def rewarm(self, key: str, *, days: int, speed: str) -> None:
        self.asked.append((key, days, speed))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(runner, "_sleep", sleep)
    return found


def opened(engine: Storage) -> Store:
    return Store(lambda: engine, timeout=2)


def filled(engine: Storage, count: int = 3, keep: int = 10) -> Store:
    store = Store(lambda: engine, keep_last=keep, timeout=2)
    with store.run(RUN) as run:
        for step in range(1, count + 1):
            run.save({"step": step, "image": BODY if count < 10 else step}, step=step)
    return store


def object_of(engine: MemoryStorage, seq: int) -> str:
    rows = by_hand(engine.list(f"{keys.objects_prefix(RUN)}{seq}-")).rows
    [row] = rows
    return row.key


def test_a_load_says_which_checkpoint_and_how_to_get_it() -> None:
    engine = ColdMemory()
    store = filled(engine)
    key = object_of(engine, 2)
    engine.cold[key] = 1
    with pytest.raises(ArchivedError) as caught:
        store.run(RUN).load(seq=2)
    assert (caught.value.facts["run"], caught.value.facts["seq"], caught.value.facts["key"]) == (RUN, 2, key)
    assert "Run.restore(seq=2, wait=True)" in str(caught.value)
    assert "cloudckpt restore RUN@2 --wait" in str(caught.value)
    assert store.run(RUN).load(seq=3) == {"step": 3, "image": BODY}, "the others are not hidden"


def test_a_restore_asks_for_what_the_checkpoint_needs_and_nothing_else() -> None:
    engine = ColdMemory()
    store = filled(engine)
    cold = {seq: object_of(engine, seq) for seq in (1, 2, 3)}
    engine.cold = dict.fromkeys(cold.values(), 3)
    found = store.run(RUN).restore(seq=2, days=5, tier="bulk")
    assert engine.asked == [(cold[2], 5, "bulk")]
    assert (found.run, found.seq, found.ready) == (RUN, 2, False)
    assert found.objects == {cold[2]: Warmth.COMING}
    again = store.run(RUN).restore(seq=2)
    assert len(engine.asked) == 1, "it was asked for already"
    assert not again.ready


def test_what_can_be_read_is_not_asked_for() -> None:
    engine = ColdMemory()
    found = filled(engine).run(RUN).restore()
    assert found.ready
    assert found.seq == 3
    assert engine.asked == []


def test_what_rides_in_the_pointer_needs_nothing() -> None:
    engine = ColdMemory()
    store = opened(engine)
    store.run(RUN).save({"small": 1})
    found = store.run(RUN).restore()
    assert (found.ready, found.objects, engine.looks) == (True, {}, 0)


def test_waiting_looks_until_it_can_be_read_with_growing_pauses(slept: list[float]) -> None:
    engine = ColdMemory()
    store = filled(engine)
    engine.cold[object_of(engine, 2)] = 10
    slept.clear()
    found = store.run(RUN).restore(seq=2, wait=True)
    assert found.ready
    assert store.run(RUN).load(seq=2) == {"step": 2, "image": BODY}
    waited = [one for one in slept if one >= restore.FIRST_POLL]
    assert waited[:3] == [1.0, 2.0, 4.0]
    assert max(waited) == restore.MOST_POLL


def test_a_wait_outlives_a_store_that_is_away(slept: list[float]) -> None:
    """Two days are longer than any outage, and than the time that one call has."""

    class Away(ColdMemory):
        async def warmth(self, key: str) -> Warmth:
            if 3 < self.looks < 20:
                self.looks += 1
                raise AmbiguousError("no answer")
            return await super().warmth(key)

    engine = Away()
    store = filled(engine)
    engine.cold[object_of(engine, 2)] = 5
    assert store.run(RUN).restore(seq=2, wait=True).ready
    assert engine.looks > 20
    assert len(slept) > 3


def test_the_async_twin_does_the_same() -> None:
    engine = ColdMemory()
    store = filled(engine)
    engine.cold[object_of(engine, 2)] = 1
    assert asyncio.run(store.run(RUN).arestore(seq=2, wait=True)).ready


def test_a_page_of_history_in_a_cold_tier_comes_first(slept: list[float]) -> None:
    """A lifecycle rule for objects/ moves these too, and only they tell where an old checkpoint is."""
    engine = ColdMemory()
    store = filled(engine, count=300, keep=300)
    pages = [row.key for row in by_hand(engine.list(f"{keys.objects_prefix(RUN)}h")).rows]
    assert pages
    engine.cold = dict.fromkeys(pages, 2)
    with pytest.raises(ArchivedError) as caught:
        store.run(RUN).load(seq=3)
    assert caught.value.facts["key"] in pages
    first = store.run(RUN).restore(seq=3)
    assert (first.seq, first.ready) == (None, False)
    assert list(first.objects) == [caught.value.facts["key"]]
    slept.clear()
    assert store.run(RUN).restore(seq=3, wait=True).ready
    assert store.run(RUN).load(seq=3) == {"step": 3, "image": 3}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"seq": 99}, CheckpointNotFoundError),
        ({"seq": 1, "tag": "t"}, InvalidInputError),
        ({"days": 0}, InvalidInputError),
        ({"days": True}, InvalidInputError),
        ({"days": 366}, InvalidInputError),
        ({"tier": "Standard"}, InvalidInputError),
        ({"tier": "soon"}, InvalidInputError),
    ],
)
def test_what_can_not_be_is_refused(options: dict[str, int], error: type[Exception]) -> None:
    engine = ColdMemory()
    store = filled(engine)
    engine.cold[object_of(engine, 3)] = 1
    with pytest.raises(error):
        store.run(RUN).restore(**options)  # type: ignore[arg-type]
    assert engine.asked == []


def test_a_run_that_is_not_there_is_told() -> None:
    engine = ColdMemory()
    store = filled(engine)
    with pytest.raises(RunNotFoundError):
        store.run("nobody").restore()
    store.run("empty").acquire()
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint"):
        store.run("empty").restore()
    store.delete(RUN)
    with pytest.raises(RunDeletedError):
        store.run(RUN).restore()


def test_an_engine_that_can_not_ask_says_which_can() -> None:
    """One of obstore's: it may read, and be told that it is cold, and has no call for more."""

    class OnlyReads(MemoryStorage):
        async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
            if key.startswith("objects/"):
                raise ArchivedError("the object is in a cold tier; restore it first", key=key)
            return await super().read(key, offset=offset, length=length)

    store = filled(OnlyReads(f"only-{next(_names)}"))
    with pytest.raises(UnsupportedStoreError, match="s3fs or boto3"):
        store.run(RUN).restore()


def test_a_store_without_cold_tiers_is_ready() -> None:
    assert filled(MemoryStorage(f"warm-{next(_names)}")).run(RUN).restore(seq=1).ready


def test_the_engine_is_reached_through_wrappers() -> None:
    class Counting(FaultyStorage):
        async def around(self, op: str, key: str, call: Callable[[], Awaitable[object]]) -> object:  # type: ignore[override]
            return await super().around(op, key, call)

    engine = ColdMemory()
    filled(engine)
    engine.cold[object_of(engine, 3)] = 1
    faulty = Counting(engine)
    assert Store(lambda: faulty, latency=0.001).run(RUN).restore().ready
    assert {call.op for call in faulty.calls} >= {"warmth", "rewarm"}


def test_going_back_stops_at_one_in_a_cold_tier() -> None:
    """To pass it over would throw away what it holds, though nothing is known against it."""
    engine = ColdMemory()
    store = filled(engine)
    by_hand(engine.delete([object_of(engine, 3)]))
    engine.cold[object_of(engine, 2)] = 1
    with pytest.raises(ArchivedError) as cold:
        store.run(RUN).load(fallback=True)
    assert cold.value.facts["seq"] == 2
    with pytest.raises(CorruptCheckpointError, match="cold tier") as caught:
        store.run(RUN).load()
    assert (caught.value.seq, caught.value.facts["archived"], caught.value.newest_intact) == (3, 2, None)
