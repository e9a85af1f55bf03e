"""Erasing a run for good: every version, after a crash at any storage call too, and the receipt."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import forget as forgetting
from cloudckpt import keys, runner
from cloudckpt.errors import (
    AmbiguousError,
    HeldError,
    InvalidInputError,
    PermissionDeniedError,
    RunDeletedError,
    RunNotFoundError,
    StorageError,
)
from cloudckpt.format import decode_manifest, manifest_digest
from cloudckpt.run import Run
from cloudckpt.sealed import canonical, unseal
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.file import FileStorage
from cloudckpt.storage.file_leftovers import temporary_of
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.versions import Kept, Version, VersionPage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol.versioned import UNTIL, VersionedMemory

RUN, WHY = "r", "a request under the law"
SECRET = random.Random(0).randbytes(50_000)  # so large that it does not ride


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sleep(_: float) -> None:
        pass

    monkeypatch.setattr(runner, "_sleep", no_sleep)


def opened(engine: Storage) -> Store:
    return Store(lambda: engine, keep_last=2, timeout=2)


def filled(engine: Storage, run: str = RUN) -> Store:
    """Let a run write a bit of everything: small and large payloads, expiry, a tag."""
    store = opened(engine)
    with store.run(run) as one:
        for step in range(6):
            one.save({"step": step, "image": SECRET if step % 2 else b"small"})
            if step == 3:
                one.tag("kept")
    return store


def left_of(engine: VersionedMemory, run: str = RUN) -> list[str]:
    return [row.key for row in engine.rows(keys.objects_prefix(run))]


def rows_of(engine: VersionedMemory, run: str) -> list[Version]:
    own = [row for row in engine.rows() if row.key == keys.manifest_key(run)]
    return own + engine.rows(keys.objects_prefix(run))


# ---- every version


def test_nothing_but_the_tombstone_is_left_of_a_versioned_bucket() -> None:
    """`delete` leaves each object's bytes behind a marker, and each old pointer with the payloads in it."""
    engine = VersionedMemory()
    store = filled(engine)
    store.delete(RUN)
    assert any(row.size > 1000 for row in engine.rows()), "or this test erases nothing"
    receipt = store.forget(RUN, why=WHY)
    assert left_of(engine) == []
    [(_, tombstone)] = engine.kept[keys.manifest_key(RUN)]
    assert tombstone is not None
    manifest = decode_manifest(tombstone, RUN)
    assert manifest.status == "deleted"
    assert manifest.checkpoints == manifest.history == ()
    assert manifest.inline == {}
    assert receipt.complete
    assert receipt.versions == "looked at"
    assert receipt.markers > 0
    assert receipt.left == ()


def test_another_run_keeps_everything() -> None:
    """The manifest's key of `r` begins that of a run named `r.json`, which has old pointers too."""
    engine = VersionedMemory()
    store = filled(engine)
    names = ["r.json", "r.json.json", "r2", "r-"]
    for name in names:
        filled(engine, name)
    before = {name: rows_of(engine, name) for name in names}
    assert all(before.values())
    store.forget(RUN, why=WHY)
    after = {name: rows_of(engine, name) for name in names}
    assert after == before
    for name in names:
        assert store.run(name).load() is not None


def test_the_receipt_counts_what_was_there() -> None:
    engine = VersionedMemory()
    store = filled(engine)
    manifest = by_hand(engine.read(keys.manifest_key(RUN)))
    assert manifest is not None
    before = engine.rows(keys.objects_prefix(RUN)) + engine.rows(keys.manifest_key(RUN))
    receipt = store.forget(RUN, why=WHY, by="somebody")
    assert receipt.values == sum(not row.marker for row in before)
    assert receipt.markers == sum(row.marker for row in before)
    assert receipt.size == sum(row.size for row in before)
    assert receipt.erased == tuple(sorted((row.key, row.version, row.size) for row in before))
    assert receipt.last_manifest == manifest_digest(decode_manifest(manifest.data, RUN))
    assert (receipt.by, receipt.why) == ("somebody", WHY)
    assert receipt.deleted is not None
    assert receipt.deleted.digest == receipt.last_manifest


def test_a_receipt_is_sealed_json() -> None:
    """An auditor keeps it: a changed byte must show."""
    store = filled(VersionedMemory())
    receipt = store.forget(RUN, why=WHY)
    document = unseal(receipt.sealed())
    assert document == receipt.document() == json.loads(json.dumps(receipt.document()))
    assert document["complete"] is True
    assert document["run"] == RUN
    rows = [list(row) for row in receipt.erased or ()]
    assert rows
    assert document["erased"]["rows"] == rows
    assert document["erased"]["digest"] == hashlib.sha256(canonical(rows)).hexdigest()


def test_many_rows_are_told_by_their_digest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "LISTED", 2)
    receipt = filled(VersionedMemory()).forget(RUN, why=WHY)
    assert receipt.values > 2
    assert receipt.document()["erased"]["rows"] is None
    assert len(receipt.digest) == 64


def test_forgetting_again_finds_nothing_and_is_complete() -> None:
    engine = VersionedMemory()
    store = filled(engine)
    first = store.forget(RUN, why=WHY)
    before = engine.rows()
    again = store.forget(RUN, why="another reason")
    assert engine.rows() == before
    assert again.complete
    assert (again.values, again.markers, again.erased) == (0, 0, ())
    assert again.deleted == first.deleted, "the tombstone keeps who deleted it first, and why"
    assert again.last_manifest == first.last_manifest


def test_a_dry_run_counts_and_touches_nothing() -> None:
    engine = VersionedMemory()
    store = filled(engine)
    before = engine.rows()
    plan = store.forget(RUN, why=WHY, dry_run=True)
    assert engine.rows() == before
    assert store.run(RUN).load() is not None
    assert plan.dry_run
    assert not plan.complete
    assert plan.deleted is None
    done = store.forget(RUN, why=WHY)
    # The pointer that was the newest becomes an old version by the tombstone.
    assert done.values == plan.values + 1
    assert done.markers == plan.markers
    assert done.last_manifest == plan.last_manifest


# ---- what refuses it


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_hold_refuses_it_and_nothing_is_touched(whole: bool, dry_run: bool) -> None:
    engine = VersionedMemory()
    store = filled(engine)
    store.run(RUN).hold("a lawsuit", by="the lawyer", whole=whole)
    before = engine.rows()
    with pytest.raises(HeldError) as caught:
        store.forget(RUN, why=WHY, dry_run=dry_run)
    assert caught.value.facts["by"] == "the lawyer"
    assert caught.value.facts["why"] == "a lawsuit"
    assert engine.rows() == before


def test_an_unknown_run_is_told() -> None:
    with pytest.raises(RunNotFoundError):
        opened(VersionedMemory()).forget("nobody", why=WHY)


@pytest.mark.parametrize("why", ["", "  ", None, 3])
def test_a_reason_must_be_given(why: str) -> None:
    with pytest.raises(InvalidInputError, match="why it is erased"):
        opened(VersionedMemory()).forget(RUN, why=why)


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


# ---- a folder


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_folder_keeps_no_byte_of_a_state(tmp_path: Path) -> None:
    """A writer that was killed in the middle leaves a temporary file, which no listing shows."""
    engine = FileStorage(tmp_path)
    store = filled(engine)
    objects, manifests = tmp_path / keys.objects_prefix(RUN), tmp_path / "manifests"
    (objects / f"{temporary_of('objects/r/killed')}0011").write_bytes(b"half a secret")
    (manifests / f"{temporary_of(keys.manifest_key(RUN))}0011").write_bytes(b"half a secret")
    other = manifests / f"{temporary_of(keys.manifest_key('other'))}0011"
    other.write_bytes(b"another run's")
    receipt = store.forget(RUN, why=WHY)
    assert receipt.complete
    assert [path for path in objects.rglob("*") if path.is_file()] == []
    assert other.exists(), "its writer may be alive"
    assert b"half a secret" not in everything_in(tmp_path)
    assert {row[1] for row in receipt.erased or () if row[1]} != set()


def test_a_writer_names_its_temporary_files_by_their_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above would look for names that nobody writes."""
    seen = []
    monkeypatch.setattr(os, "replace", lambda source, _target: seen.append(Path(source).name))
    by_hand(FileStorage(tmp_path).put("objects/r/1", b"x"))
    assert [name.startswith(temporary_of("objects/r/1")) for name in seen] == [True]


def test_the_async_twin_does_the_same() -> None:
    engine = VersionedMemory()
    store = filled(engine)
    receipt = asyncio.run(store.aforget(RUN, why=WHY))
    assert receipt.complete
    assert left_of(engine) == []
