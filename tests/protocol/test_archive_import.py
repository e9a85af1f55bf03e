"""Importing an archive: nothing is overwritten, nothing is believed, and it goes on where it stopped."""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt import keys, runner
from cloudckpt.errors import ConflictError, CorruptCheckpointError, RunNotFoundError
from cloudckpt.format import decode_manifest
from cloudckpt.history import Filter, listed
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.tarball import Member
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol import archived
from tests.protocol.archived import (
    LONG_ID,
    check_same,
    indexed,
    inside,
    members,
    new_name,
    new_store,
    places,
    tarred,
)
from tests.protocol.damaged import KEY, LONG, RUN, LongWorld, flipped
from tests.protocol.scripted import AtOnce, no_sleep

long_world = archived.long_world
world = archived.world
archive = archived.archive


def test_a_second_import_changes_nothing(world: LongWorld, archive: bytes) -> None:
    store = new_store()
    store.import_(io.BytesIO(archive))
    before = inside(store)
    again = store.import_(io.BytesIO(archive))
    assert {(one.was_there, one.objects) for one in again} == {(True, 0)}
    assert inside(store) == before


def test_a_run_that_exists_is_never_overwritten(world: LongWorld, archive: bytes) -> None:
    """Neither another run of that id, nor one that has gone on since, nor one that was deleted."""

    def other(store: Store) -> None:
        store.run(RUN).save({"mine": True})

    def gone_on(store: Store) -> None:
        store.import_(io.BytesIO(archive))
        store.run(RUN).save({"mine": True})

    def deleted(store: Store) -> None:
        other(store)
        store.delete(RUN)

    for before in (other, gone_on, deleted):
        store = new_store()
        before(store)
        stands = inside(store)
        with pytest.raises(ConflictError, match="not what the archive has") as caught:
            store.import_(io.BytesIO(archive))
        assert caught.value.facts["run"] == RUN
        assert inside(store) == stands


def test_the_token_of_a_lost_manifest_does_not_come_back_with_the_import(archive: bytes) -> None:
    """A store that makes tokens of the bytes would let a writer that slept through it all write on."""
    store = new_store()
    store.import_(io.BytesIO(archive))
    assert (
        decode_manifest(inside(store)[KEY], RUN).nonce != decode_manifest(members(archive)[KEY][1], RUN).nonce
    )


def test_only_the_runs_that_are_wanted_come(archive: bytes) -> None:
    store = new_store()
    [one] = store.import_(io.BytesIO(archive), runs=[LONG_ID])
    assert one.run == LONG_ID
    assert [info.id for info in store.runs()] == [LONG_ID]
    assert not [key for key in inside(store) if key.startswith(keys.OBJECTS)]
    with pytest.raises(RunNotFoundError, match="the archive has no such run"):
        store.import_(io.BytesIO(archive), runs=[RUN, "nobody"])


def test_nothing_of_a_damaged_run_becomes_one(world: LongWorld, archive: bytes) -> None:
    for _, begin, _, name in places(archive):
        if not name.startswith(keys.objects_prefix(RUN)) and name != KEY:
            continue
        store = new_store()
        with pytest.raises(CorruptCheckpointError) as caught:
            store.import_(io.BytesIO(flipped(archive, begin + 99, 1)))
        assert caught.value.key == name
        assert KEY not in inside(store)
        for key, data in inside(store).items():
            if key.startswith(keys.OBJECTS):
                assert hashlib.sha256(data).hexdigest() == keys.object_digest(key)


@pytest.mark.parametrize("segment", ["..", ".", "", "A", "a!zz", "x" * 200, ".hidden"])
def test_a_name_that_would_leave_the_store_is_refused(segment: str, tmp_path: Path) -> None:
    """Whoever made the archive chose its names."""
    data = b"payload"
    name = f"objects/{segment}/1-{hashlib.sha256(data).hexdigest()}-ab"
    for forged in (indexed({name: (Member(name, len(data), 0), data)}), tarred([(Member(name, 7, 0), data)])):
        with pytest.raises(CorruptCheckpointError) as caught:
            cloudckpt.open(tmp_path / "store").import_(io.BytesIO(forged))
        assert caught.value.key == name
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_object_of_another_length_in_its_place_is_not_believed(world: LongWorld, archive: bytes) -> None:
    store = new_store()
    by_hand(store._core.storage.put(world.object_of(12), b"short"))
    with pytest.raises(CorruptCheckpointError, match="delete it first") as caught:
        store.import_(io.BytesIO(archive))
    assert caught.value.key == world.object_of(12)


@pytest.mark.parametrize("effect", Effect)
def test_an_import_that_ends_anywhere_goes_on_where_it_stopped(
    world: LongWorld, archive: bytes, effect: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its storage calls; and no object is put twice, and no manifest stands before its objects."""
    monkeypatch.setattr(runner, "_spawn_aside", AtOnce)
    monkeypatch.setattr(runner, "_sleep", no_sleep)
    wanted = {name for name in members(archive) if name.startswith("objects/")}
    past = world.run.history()

    def bring(name: str, plan: Plan) -> FaultyStorage:
        storage = FaultyStorage(MemoryStorage(name), plan)
        store = Store(lambda: storage)
        with suppress(SimulatedCrash):
            store.import_(io.BytesIO(archive))
        store._core.closed = True
        return storage

    calls = len(bring(new_name(), Plan()).calls)
    for plan in every_fault(calls, (effect,)):
        name = new_name()
        bring(name, plan)
        store = Store(lambda name=name: MemoryStorage(name))
        there = inside(store)
        for run in (RUN, "busy"):
            own = {name for name in wanted if name.startswith(keys.objects_prefix(run))}
            assert keys.manifest_key(run) not in there or own <= there.keys()
        again = bring(name, Plan())
        puts = [call.key for call in again.calls if call.op == "put"]
        assert set(puts) == wanted - there.keys()
        assert all(report.ok for report in store.verify(deep=True))
        assert store.run(RUN).history() == past


def test_two_imports_at_once_are_harmless(world: LongWorld, archive: bytes) -> None:
    store = new_store()
    other = new_store()
    halves = [io.BytesIO(archive), io.BytesIO(archive)]

    class Between(MemoryStorage):
        """The other import is made just before the manifest of the first one is."""

        async def create(self, key: str, data: Any) -> str:
            if key == KEY and len(halves) == 2:
                other.import_(halves.pop())
            return await super().create(key, data)

    place = other.url.removeprefix("memory://")
    [first, *_] = Store(lambda: Between(place)).import_(halves[0])
    assert first.was_there
    check_same(world, other)
    assert inside(store) == {}


def test_a_past_of_any_length_comes_whole(world: LongWorld, archive: bytes) -> None:
    store = new_store()
    store.import_(io.BytesIO(archive))
    access = store.run(RUN).access
    manifest = by_hand(access.base()).manifest
    assert [one.seq for one in by_hand(listed(access.pages, manifest, Filter()))] == list(range(LONG, 0, -1))
