"""What can't be erased, or not be seen: a lock, a missing right, an engine; and that it is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cloudckpt import keys
from cloudckpt.errors import AmbiguousError, PermissionDeniedError, StorageError
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.versions import Kept, Version, VersionPage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol import erased
from tests.protocol.erased import RUN, SECRET, WHY, filled, left_of, rows_of
from tests.protocol.versioned import UNTIL, VersionedMemory

at_once = erased.at_once


# ---- what stays


def test_the_receipt_names_what_a_lock_keeps() -> None:
    engine = VersionedMemory()
    store = filled(engine)
    locked = keys.objects_prefix(RUN)
    [key, *_] = sorted({row.key for row in engine.rows(locked) if row.newest and not row.marker})
    engine.locked = {key}
    receipt = store.forget(RUN, why=WHY)
    assert not receipt.complete
    [left] = receipt.left
    assert (left.row.key, left.kind, left.until) == (key, "retained", UNTIL)
    assert receipt.document()["left"][0]["until"] == UNTIL.isoformat()
    assert (key, left.row.version, left.row.size) not in (receipt.erased or ())
    assert by_hand(engine.read(key)) is None, "it is hidden from readers by a marker"
    assert {row.key for row in engine.rows(locked)} == {key}
    engine.locked = set()
    again = store.forget(RUN, why=WHY)
    assert again.complete
    assert left_of(engine) == []


def test_a_marker_above_a_locked_version_stays() -> None:
    """Erasing it would bring back what the run had let go of."""
    engine = VersionedMemory()
    store = filled(engine)
    store.delete(RUN)
    [key, *_] = [row.key for row in engine.rows(keys.objects_prefix(RUN)) if row.marker]
    engine.locked = {key}
    for _ in range(2):
        receipt = store.forget(RUN, why=WHY)
        assert [one.row.key for one in receipt.left] == [key]
        assert by_hand(engine.read(key)) is None
        assert [row.marker for row in engine.rows(key)] == [True, False], "and not one more each time"


def test_a_store_that_lists_what_it_said_it_erased_is_not_believed() -> None:
    """An emulator answers 404 to the deletion of an older version, and goes on showing it."""

    class Liar(VersionedMemory):
        async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
            return []

    engine = Liar()
    receipt = filled(engine).forget(RUN, why=WHY)
    assert not receipt.complete
    assert {one.kind for one in receipt.left} == {"still-listed"}
    assert receipt.values == receipt.markers == receipt.size == 0
    values = {(row.key, row.version) for row in rows_of(engine, RUN)[1:] if not row.marker}
    assert {(one.row.key, one.row.version) for one in receipt.left} >= values


def test_what_was_refused_and_is_gone_counts_as_erased() -> None:
    """Of a refused deletion moto names the key and not the version; the listing tells which one stayed."""

    class Vague(VersionedMemory):
        async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
            await super().erase(rows)
            return [Kept(row, "retained", "it may be this one") for row in rows]

    engine = Vague()
    receipt = filled(engine).forget(RUN, why=WHY)
    assert left_of(engine) == []
    assert receipt.complete
    assert receipt.values > 0


def test_a_store_that_ignores_which_version_is_named_is_told() -> None:
    """Fake-gcs-server 1.54 deletes the newest whatever generation is named: there goes the tombstone."""

    class Careless(VersionedMemory):
        async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
            await self.delete([row.key for row in rows])
            return []

    with pytest.raises(StorageError, match="no tombstone") as caught:
        filled(Careless()).forget(RUN, why=WHY)
    assert caught.value.kind == "unfit"


# ---- engines that can't look


class SixMethods:
    """An engine of somebody's own: the contract and nothing beside it."""

    blocking = True

    def __init__(self) -> None:
        self._inner = MemoryStorage(f"six-{id(self)}")
        self.url = "own://store"
        for name in ("read", "create", "replace", "put", "list", "delete", "close"):
            setattr(self, name, getattr(self._inner, name))


def test_an_engine_that_can_not_list_versions_says_so() -> None:
    engine = SixMethods()
    receipt = filled(engine).forget(RUN, why=WHY)  # type: ignore[arg-type]
    assert by_hand(engine._inner.list("objects/")).rows == ()
    assert not receipt.complete, "nobody knows what the bucket keeps"
    assert receipt.versions.startswith("not looked at")
    assert "s3fs" in receipt.versions
    assert receipt.left == ()
    assert receipt.values > 0


def test_a_role_that_may_not_list_versions_erases_what_it_may() -> None:
    class Denied(VersionedMemory):
        async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
            raise PermissionDeniedError("the store denies the request; grant a right", kind="denied")

    engine = Denied()
    receipt = filled(engine).forget(RUN, why=WHY)
    assert by_hand(engine.list(keys.objects_prefix(RUN))).rows == ()
    assert not receipt.complete
    assert receipt.versions.startswith("not looked at: the store denies the request")


def test_a_store_that_fails_meanwhile_is_no_missing_right() -> None:
    class Broken(VersionedMemory):
        async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
            raise AmbiguousError("no answer")

    with pytest.raises(AmbiguousError):
        filled(Broken()).forget(RUN, why=WHY)


def test_a_writer_that_may_not_delete_leaves_all_and_says_so() -> None:
    class Forbidden(MemoryStorage):
        async def delete(self, _: object) -> None:
            raise PermissionDeniedError("the store denies the request; grant a right", kind="denied")

    engine = Forbidden("forbidden")
    receipt = filled(engine).forget(RUN, why=WHY)
    rows = by_hand(engine.list(keys.objects_prefix(RUN))).rows
    assert {one.row.key for one in receipt.left} == {row.key for row in rows}
    assert {one.kind for one in receipt.left} == {"denied"}
    assert not receipt.complete
    assert receipt.values == 0


def test_versions_are_reached_through_the_latency_wrapper() -> None:
    engine = VersionedMemory()
    filled(engine)
    store = Store(lambda: engine, latency=0.001)
    assert isinstance(store._core.storage.inner, LatencyStorage)  # type: ignore[attr-defined]
    assert store.forget(RUN, why=WHY).complete
    assert left_of(engine) == []


# ---- what a lock keeps from collecting


class Locking(MemoryStorage):
    """A store without versions whose objects can be locked, as Google's and Azure's can."""

    locked: frozenset[str] = frozenset()

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self.locked:
                raise PermissionDeniedError("a retention policy forbids it", kind="retained")
            await super().delete([key])


def test_collecting_and_deleting_go_around_what_a_lock_keeps() -> None:
    """One locked object at the front must not keep all the others for its time."""
    engine = Locking("locking")
    store = filled(engine)
    prefix = keys.objects_prefix(RUN)
    strays = [f"{prefix}0-{n:064x}-{n:016x}" for n in range(3)]
    for key in strays:
        by_hand(engine.put(key, b"left by a crash"))
    engine.locked = frozenset(strays[:1])
    done = store.collect(RUN)
    assert (done.removed, done.bytes) == (2, 2 * len(b"left by a crash"))
    assert store.run(RUN).load() == {"step": 5, "image": SECRET}
    removed = store.delete(RUN)
    assert [row.key for row in by_hand(engine.list(prefix)).rows] == strays[:1]
    assert removed.removed == removed.objects - 1
