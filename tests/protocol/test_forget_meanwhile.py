"""Erasing a run that crashes at any storage call, or while somebody writes: the next call finishes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.errors import RunDeletedError, StorageError
from cloudckpt.format import decode_manifest
from cloudckpt.run import Run
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.versions import VersionPage
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol import erased
from tests.protocol.erased import RUN, SECRET, WHY, filled, left_of, opened
from tests.protocol.versioned import VersionedMemory

at_once = erased.at_once


# ---- a crash anywhere


def clean_calls() -> int:
    engine = VersionedMemory()
    filled(engine)
    faulty = FaultyStorage(engine)
    opened(faulty).forget(RUN, why=WHY)
    assert {"read", "replace", "versions", "erase"} <= {call.op for call in faulty.calls}
    return len(faulty.calls)


@pytest.mark.parametrize("effect", list(Effect))
def test_what_a_crash_interrupted_is_finished_by_another_call(effect: Effect) -> None:
    """At each storage call: before it the run is whole, or after it deleted; never something between."""
    calls = clean_calls()
    for plan in every_fault(calls, [effect]):
        engine = VersionedMemory()
        filled(engine)
        faulty = FaultyStorage(engine, plan)
        store = opened(faulty)
        with suppress(SimulatedCrash, StorageError):
            store.forget(RUN, why=WHY)
        store._core.closed = True
        check_finished(engine, plan)


def check_finished(engine: VersionedMemory, plan: Plan) -> None:
    store = opened(engine)
    stored = by_hand(engine.read(keys.manifest_key(RUN)))
    assert stored is not None, plan
    if decode_manifest(stored.data, RUN).status != "deleted":
        assert store.run(RUN).load() == {"step": 5, "image": SECRET}, plan
    receipt = store.forget(RUN, why=WHY)
    assert receipt.complete, plan
    assert left_of(engine) == [], plan
    assert len(engine.kept[keys.manifest_key(RUN)]) == 1, plan
    with pytest.raises(RunDeletedError):
        store.run(RUN).save({})


# ---- a zombie


def test_a_late_save_is_refused_and_its_late_object_is_found() -> None:
    """A writer that was at work puts its object, and only then learns that the run is gone."""
    engine = VersionedMemory()
    filled(engine).close()
    zombie = opened(engine).run(RUN)
    zombie.acquire()
    store = opened(engine)
    assert store.forget(RUN, why=WHY).complete
    with pytest.raises(RunDeletedError):
        zombie.save({"late": SECRET})
    [late] = {row.key for row in engine.rows(keys.objects_prefix(RUN))}
    assert store.collect(RUN, dry_run=True).removed == 1
    receipt = store.forget(RUN, why=WHY)
    assert receipt.complete
    assert [row[0] for row in receipt.erased or ()].count(late) >= 1
    assert left_of(engine) == []


def test_collecting_finds_a_late_object_too() -> None:
    engine = MemoryStorage("late")
    filled(engine).close()
    zombie = opened(engine).run(RUN)
    zombie.acquire()
    store = opened(engine)
    store.forget(RUN, why=WHY)
    with pytest.raises(RunDeletedError):
        zombie.save({"late": SECRET})
    assert store.collect(RUN).removed == 1
    assert by_hand(engine.list(keys.objects_prefix(RUN))).rows == ()


def test_what_comes_while_it_is_listed_is_erased_too() -> None:
    class Slow(VersionedMemory):
        late = False

        async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
            page = await super().versions(prefix, cursor=cursor)
            if prefix == keys.objects_prefix(RUN) and page.cursor is None and not self.late:
                self.late = True
                await self.put(f"{prefix}a-late-one", SECRET)
            return page

    engine = Slow()
    receipt = filled(engine).forget(RUN, why=WHY)
    assert engine.late
    assert left_of(engine) == []
    assert receipt.complete


class Meanwhile(FaultyStorage):
    """Lets somebody act before one of its calls."""

    def __init__(self, inner: Storage, at: int, act: Callable[[], None]) -> None:
        super().__init__(inner)
        self._at, self._act = at, act

    async def _call(self, op: str, key: str, go: Callable[[], Awaitable[Any]]) -> Any:
        if len(self.calls) == self._at:
            self._act()
        return await super()._call(op, key, go)


def test_a_writer_that_saves_at_any_moment_revives_nothing() -> None:
    """Before each call of the erasing: its save lands before the tombstone and is erased, or is refused."""
    outcomes = set()
    for at in range(clean_calls()):
        engine = VersionedMemory()
        filled(engine).close()
        writer = opened(engine).run(RUN)
        writer.acquire()

        def act(writer: Run[Any] = writer) -> None:
            try:
                writer.save({"step": 6, "image": SECRET})
                outcomes.add("landed")
            except RunDeletedError:
                outcomes.add("refused")

        receipt = opened(Meanwhile(engine, at, act)).forget(RUN, why=WHY)
        late = left_of(engine)
        assert len(late) <= 1, "at most its last object, put behind the last listing"
        assert receipt.deleted is not None
        again = opened(engine).forget(RUN, why=WHY)
        assert again.complete
        assert left_of(engine) == []
        with pytest.raises(RunDeletedError):
            opened(engine).run(RUN).save({})
    assert outcomes == {"landed", "refused"}
