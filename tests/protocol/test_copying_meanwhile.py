"""Copies of runs that somebody works on, at either end, and copies that are interrupted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cloudckpt import collect, copying, sweep
from cloudckpt.errors import PermissionDeniedError
from cloudckpt.pages import every_key
from cloudckpt.pointer import Pointer
from cloudckpt.retention import Retention
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol import pairs, past
from tests.protocol.pairs import Pair, all_loads
from tests.protocol.past import RUN, SAVES, TAGGED, save, state_of

pair = pairs.pair
one_at_a_time = pairs.one_at_a_time
small = past.small


def test_a_page_that_the_source_replaces_while_it_is_looked_at_is_no_damage(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pair.world.store
    store.copy(RUN, pair.to)
    pair.to.run(RUN).tag("odd", seq=5)
    right, calls = copying._holds, itertools.count()

    async def holds(access: Any, manifest: Any) -> Any:
        if next(calls) == 1:  # the source's, whose page of the held checkpoint is another one then
            with ThreadPoolExecutor(1) as another:
                another.submit(store.run(RUN).tag, "mine", seq=3).result()
        return await right(access, manifest)

    monkeypatch.setattr(copying, "_holds", holds)
    assert store.copy(RUN, pair.to).changed
    assert next(calls) == 4
    assert pair.same()


def test_a_run_at_work_is_copied_at_one_point(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent saves, and its rules drop what is being copied, between the look and the sending."""
    right = copying._send
    store = pair.world.store
    pair.world.ledger.keep_last = 3
    saved = itertools.count(SAVES + 1)

    with store.run(RUN, retention=Retention(keep_last=3)) as run:
        pair.world.ledger.took_over(run.epoch)
        run.retain(Retention(keep_last=100))

        def busy(*arguments: Any) -> int:
            if next(turns) < 2:
                for _ in range(3):
                    save(pair.world, run, next(saved))
                store.run(RUN).retain(Retention(keep_last=4))
                store.collect(RUN)
            return right(*arguments)

        turns = itertools.count()
        monkeypatch.setattr(copying, "_send", busy)
        copied = store.copy(RUN, pair.to)
    assert copied.seq > SAVES, "what was looked at first was gone when it was to be sent"
    copy = pair.to.run(RUN)
    assert copy.load() == state_of(copied.seq)
    assert all(copy.load(seq=one.seq) == state_of(one.seq) for one in copy.history())
    store.copy(RUN, pair.to)
    assert pair.same()


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.run(RUN).retain(Retention(keep_last=2)),
        lambda store: store.run(RUN).tag("odd", seq=3),
        lambda store: store.run(RUN).annotate({"odd": 1}, seq=TAGGED),
    ],
    ids=["retain", "tag", "annotate"],
)
def test_a_copy_refers_to_nothing_that_somebody_is_about_to_delete(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, change: Callable[[Store], Any]
) -> None:
    """An operator of the destination drops objects, which the next copy finds there and refers to again."""
    pair.world.store.copy(RUN, pair.to)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1000)
    with Store(lambda: pair.there) as operator:
        change(operator)
        assert pair.world.store.copy(RUN, Store(lambda: pair.there)).changed
    assert all_loads(pair)


def break_off(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy, and once more what was saved since, up to the manifest: nothing refers to its objects."""
    store = pair.world.store
    store.copy(RUN, pair.to)
    with store.run(RUN) as run:
        for step in range(SAVES + 1, SAVES + 9):
            save(pair.world, run, step)
    with monkeypatch.context() as patch:
        patch.setattr(Pointer, "swap", refused)
        with pytest.raises(PermissionDeniedError):
            store.copy(RUN, pair.to)


def test_what_a_collector_takes_from_a_copy_is_sent_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy broke off; a collector of the destination listed what it had sent, and deletes it late."""
    store = pair.world.store
    break_off(pair, monkeypatch)
    right = copying._act
    listed = by_hand(every_object(pair.there))

    def act(*arguments: Any) -> Any:
        sent = right(*arguments)
        used = by_hand(every_key(access.pages, by_hand(access.base()).manifest))
        doomed.extend(key for key in listed if key in used and key not in before)
        by_hand(pair.there.delete(doomed))
        return sent

    doomed: list[str] = []
    access = pair.to._core.access(RUN)
    before = by_hand(every_key(access.pages, by_hand(access.base()).manifest))
    monkeypatch.setattr(copying, "_act", act)
    copied = store.copy(RUN, pair.to)
    assert len(doomed) > 4
    assert copied.sent >= len(doomed)
    assert all_loads(pair)


def test_a_collector_leaves_what_a_copy_refers_to_meanwhile(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fenced when nothing did, and needs many requests to delete it all."""
    store = pair.world.store
    break_off(pair, monkeypatch)
    right, deleted = MemoryStorage.delete, []

    async def delete(self: MemoryStorage, batch: Any) -> None:
        if not deleted:
            with ThreadPoolExecutor(1) as another:
                another.submit(store.copy, RUN, pair.to).result()
        deleted.extend(batch)
        await right(self, batch)

    monkeypatch.setattr(MemoryStorage, "delete", delete)
    monkeypatch.setattr(collect, "DELETES_AT_ONCE", 1)
    assert pair.to.collect(RUN).removed == len(deleted) == 1, "only what it was about to delete"
    monkeypatch.undo()
    assert store.copy(RUN, pair.to, check=True).sent == 1
    assert all_loads(pair)


async def refused(*_: Any) -> Any:
    raise PermissionDeniedError("the test's")


async def every_object(storage: MemoryStorage) -> list[str]:
    return [row.key for row in (await storage.list("objects/")).rows]


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_copy_that_was_interrupted_goes_on(side: str) -> None:
    def attempt(pair: Pair, plan: Plan) -> FaultyStorage:
        inner = pair.world.inner if side == "source" else pair.there
        faulty = FaultyStorage(inner, plan)
        broken = Store(lambda: faulty, timeout=1)
        here, there = (broken, pair.to) if side == "source" else (pair.world.store, broken)
        try:
            here.copy(RUN, there)
        except SimulatedCrash:
            assert faulty.crashed
        finally:
            broken._core.closed = True
        return faulty

    calls = len(attempt(Pair(), Plan()).calls)
    assert calls > 20
    for plan in every_fault(calls, [Effect.CRASH_BEFORE, Effect.LOST_ANSWER]):
        pair = Pair()
        try:
            attempt(pair, plan)
            before = {row.key for row in by_hand(pair.there.list("objects/")).rows}
            again = pair.world.store.copy(RUN, pair.to)
            assert again.sent <= again.objects - len(before)
            assert pair.same()
        except BaseException as error:
            error.add_note(f"{side=} {plan=}")
            raise
