"""Archives: whole, the same each time, and not a byte of one can be changed unnoticed."""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import os
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cloudckpt
from cloudckpt import keys, runner
from cloudckpt.archive import INDEX, SIGNATURES, verify_archive
from cloudckpt.errors import (
    ConflictError,
    CorruptCheckpointError,
    InvalidInputError,
    RunDeletedError,
    RunNotFoundError,
)
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.history import Filter, listed
from cloudckpt.sealed import seal, unseal
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.tarball import Member, TarReader, header, padding, tail
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol.damaged import ACTIONS, KEY, LONG, RUN, LongWorld, act, flipped, outcome, small_pages
from tests.protocol.scripted import AtOnce
from tests.protocol.signers import KEYS, public_pem

LONG_ID = "X" * 1000
RUNS = (RUN, LONG_ID, "gone", "empty", "busy")
_names = itertools.count()


@pytest.fixture(scope="module")
def long_world() -> LongWorld:
    """Beside the long run: a long id whose payload rides, a deleted run, an empty one, a ledger."""
    with small_pages():
        world = LongWorld()
        with world.store.run("busy") as run:
            act(run, large=True)
    world.run.hold("for the auditors", seq=9)
    world.store.run(LONG_ID).save({"rides": True})
    world.store.run("gone").save({})
    world.store.delete("gone")
    world.store.run("empty").acquire()
    world.store.collect("busy")
    by_hand(world.store._core._sweeper.settle())
    return world


@pytest.fixture
def world(long_world: LongWorld) -> Iterator[LongWorld]:
    with long_world.restored():
        yield long_world


@pytest.fixture(scope="module")
def archive(long_world: LongWorld) -> bytes:
    return exported(long_world.store, *RUNS)


@pytest.fixture(scope="module")
def signed(long_world: LongWorld) -> bytes:
    """A small one."""
    return exported(long_world.store, LONG_ID, "gone", sign=KEYS[0])


def exported(store: Store, *runs: str, **options: Any) -> bytes:
    file = io.BytesIO()
    told = store.export(runs, file, **options)
    assert told.bytes == len(file.getvalue())
    assert [one.run for one in told.runs] == list(runs)
    return file.getvalue()


def new_store() -> Store:
    name = f"archive-{next(_names)}"
    return Store(lambda: MemoryStorage(name))


def inside(store: Store) -> dict[str, bytes]:
    storage = store._core.storage
    return {row.key: by_hand(storage.read(row.key)).data for row in by_hand(storage.list("")).rows}  # type: ignore[union-attr]


def members(data: bytes) -> dict[str, tuple[Member, bytes]]:
    reader = TarReader(io.BytesIO(data))
    found = {}
    while (member := reader.next()) is not None:
        found[member.name] = (member, reader.read())
    return found


def tarred(parts: Any) -> bytes:
    data = b"".join(header(member) + body + padding(len(body)) for member, body in parts)
    return data + tail(len(data))


def indexed(parts: dict[str, tuple[Member, bytes]]) -> bytes:
    """Make an archive of these members, as who changes one and knows the format would."""
    parts = {name: part for name, part in parts.items() if name not in (INDEX, SIGNATURES)}
    rows = [[m.name, m.size, m.time, hashlib.sha256(body).hexdigest()] for m, body in parts.values()]
    index = seal({"format": 1, "members": rows})
    return tarred([*parts.values(), (Member(INDEX, len(index), 0), index)])


def wrong(data: bytes, **options: Any) -> dict[str | None, str]:
    """Return what is wrong with an archive: name of the member to kind."""
    report = verify_archive(io.BytesIO(data), **options)
    assert report.ok == (not report.problems)
    for problem in report.problems:
        assert problem.do
    return {problem.key: problem.kind for problem in report.problems}


# There and back.


def check_same(world: LongWorld, store: Store) -> None:
    """Check that a store has all that was exported: states, history, tags, holds, tombstones."""
    for seq in range(1, LONG + 1):
        assert store.run(RUN).load(seq=seq) == world.state(seq)
    assert store.run(RUN).history() == world.run.history()
    assert store.run(RUN).load(tag="good") == world.state(4)
    assert store.run(RUN).find(seq=9).hold == world.run.find(seq=9).hold
    assert store.run(LONG_ID).load() == {"rides": True}
    assert store.run("empty").load() is None
    for n in range(ACTIONS):
        assert store.run("busy").once(f"pay-{n}", outcome, n, large=n % 2 == 0) == outcome(
            n, large=n % 2 == 0
        )
    with pytest.raises(RunDeletedError):
        store.run("gone").save({"late": True})
    assert all(report.ok for report in store.verify(deep=True))
    assert {report.unreferenced for report in store.verify(depth=2)} == {0}


def test_what_is_imported_is_what_was_exported(world: LongWorld, archive: bytes) -> None:
    report = verify_archive(io.BytesIO(archive))
    assert report.ok
    assert [(one.run, one.checkpoints, one.deleted) for one in report.runs] == [
        (RUN, LONG, False),
        (LONG_ID, 1, False),
        ("gone", 0, True),
        ("empty", 0, False),
        ("busy", 0, False),
    ]
    store = new_store()
    told = store.import_(io.BytesIO(archive))
    assert [(one.run, one.seq, one.was_there) for one in told] == [
        (RUN, LONG, False),
        (LONG_ID, 1, False),
        ("gone", 1, False),
        ("empty", 0, False),
        ("busy", 0, False),
    ]
    assert sum(one.objects for one in told) == len([name for name in members(archive) if "objects/" in name])
    check_same(world, store)
    with store.run(RUN) as run:
        assert run.save({"n": "on"}).seq == LONG + 1


def test_equal_runs_give_equal_bytes(world: LongWorld, archive: bytes) -> None:
    assert exported(world.store, *RUNS) == archive
    assert exported(world.store, RUN, LONG_ID, sign=KEYS[0]) == exported(
        world.store, RUN, LONG_ID, sign=KEYS[0]
    )


def test_an_archive_is_a_plain_tar_file_and_unpacked_it_is_a_store(
    world: LongWorld, archive: bytes, tmp_path: Path
) -> None:
    """In fifty years somebody has `tar`, and no release of ours."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        found = tar.getmembers()
        tar.extractall(tmp_path, filter="data")
    assert {(m.uid, m.gid, m.uname, m.mode) for m in found} == {(0, 0, "", 0o644)}
    newest = next(m for m in found if m.name == world.object_of(LONG))
    assert newest.mtime == int(world.run.find(seq=LONG).time.timestamp())
    check_same(world, cloudckpt.open(tmp_path))


def test_a_pipe_will_do_on_both_ends(world: LongWorld, archive: bytes) -> None:
    """Neither end can seek, and reads give less than was asked for."""
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as source, open(write, "wb", buffering=0) as sink:

        def export() -> None:
            world.store.export(RUNS, sink)  # type: ignore[arg-type]
            sink.close()

        thread = threading.Thread(target=export)
        thread.start()
        store = new_store()
        store.import_(source)  # type: ignore[arg-type]
        thread.join()
    check_same(world, store)


def test_the_order_is_that_of_a_store_objects_first_and_the_manifest_last(archive: bytes) -> None:
    names = list(members(archive))
    assert names[-1] == INDEX
    last = names.index(KEY)
    assert all(name.startswith(keys.objects_prefix(RUN)) for name in names[:last])


def test_a_run_is_archived_once_however_often_it_is_named(world: LongWorld) -> None:
    assert len(world.store.export([LONG_ID, LONG_ID], io.BytesIO()).runs) == 1


def test_the_awaited_twins_do_the_same(world: LongWorld, archive: bytes) -> None:
    async def both(store: Store) -> bytes:
        file = io.BytesIO()
        await world.store.aexport(RUNS, file)
        file.seek(0)
        await store.aimport(file)
        return file.getvalue()

    store = new_store()
    assert asyncio.run(both(store)) == archive
    check_same(world, store)


# Any change is found.


def places(data: bytes) -> list[tuple[int, int, int, str]]:
    """Return where each member begins, where its bytes do, and where it ends with its padding."""
    found, at = [], 0
    for member, body in members(data).values():
        begin = at + len(header(member))
        end = begin + len(body) + len(padding(len(body)))
        found.append((at, begin, end, member.name))
        at = end
    return [*found, (at, at, len(data), "")]


def check_flip(data: bytes, at: int, mask: int, where: list[tuple[int, int, int, str]]) -> None:
    report = verify_archive(io.BytesIO(flipped(data, at, mask)))
    assert not report.ok, at
    [(_, begin, _, name)] = [place for place in where if place[0] <= at < place[2]]
    # A header that is damaged has no name that could be believed: then the one before it is told.
    if name and at >= begin:
        assert name in [problem.key for problem in report.problems], (at, report.problems)


def test_any_flipped_byte_of_a_small_archive_is_found_with_its_member(signed: bytes) -> None:
    where = places(signed)
    *_, (end, _, _, _) = where
    for at in (*range(end), *range(end, len(signed), 97)):
        check_flip(signed, at, 1 << at % 8, where)


class Held:
    """An archive whose repr is short: hypothesis shows what a test is called with."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.where = places(data)


@pytest.fixture(scope="module")
def held(archive: bytes) -> Held:
    return Held(archive)


@settings(deadline=None)
@given(at=st.integers(0, 2**32), mask=st.integers(1, 255))
def test_any_flipped_byte_of_a_large_archive_is_found_with_its_member(held: Held, at: int, mask: int) -> None:
    check_flip(held.data, at % len(held.data), mask, held.where)


def test_every_member_with_a_flipped_byte_is_found_and_hides_no_other(archive: bytes) -> None:
    for _, begin, _, name in places(archive)[:-1]:
        assert wrong(flipped(archive, begin, 4)).keys() == {name}, name


def test_an_archive_that_is_cut_anywhere_is_found(signed: bytes, archive: bytes) -> None:
    for length in range(0, len(signed), 41):
        assert wrong(signed[:length]), length
    for start, begin, end, _ in places(archive):
        for length in (start, start + 1, begin, end - 1):
            found = wrong(archive[:length])
            assert "archive" in found.values(), length
            with pytest.raises(CorruptCheckpointError):
                new_store().import_(io.BytesIO(archive[:length]))


@pytest.mark.parametrize("more", [b"\0", bytes(10240), b"x", b"\n"])
def test_what_is_added_behind_the_end_is_found(archive: bytes, more: bytes) -> None:
    assert wrong(archive + more) == {None: "archive"}


@pytest.mark.parametrize("data", [b"", b"\0" * 1024, b"PK\3\4" * 999, b"junk" * 4000, bytes(10240)])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    assert "archive" in wrong(data).values()
    with pytest.raises(CorruptCheckpointError, match="another copy"):
        new_store().import_(io.BytesIO(data))


def rearranged(change: Callable[[list[tuple[Member, bytes]]], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        parts = list(members(data).values())
        change(parts)
        return tarred(parts)

    return changed


@pytest.mark.parametrize("index_too", [False, True])
def test_a_member_that_is_missing_is_named(world: LongWorld, archive: bytes, index_too: bool) -> None:
    """Also when the index was made to agree: the manifest says what belongs to a run."""
    page = keys.page_key(RUN, world.pages()[1].name)
    kinds = {world.object_of(12): "object-missing", page: "page", KEY: "archive"}
    for name, kind in kinds.items():
        parts = members(archive)
        del parts[name]
        for depth in (1, 2, 3):
            found = wrong(indexed(parts) if index_too else tarred(parts.values()), depth=depth)
            assert found[name] == kind


def test_a_member_that_was_added_is_named(archive: bytes) -> None:
    parts = members(archive)
    for name in (keys.object_key(RUN, 3, "0" * 64, "ab"), "objects/readme", "notes.txt", "../x", KEY + "x"):
        extra = {name: (Member(name, 3, 0), b"abc")}
        found = wrong(tarred({**extra, **parts}.values()))
        assert name in found, name


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: parts.insert(1, parts.pop(0)),  # other order
        lambda parts: parts.insert(1, parts[0]),  # twice
        lambda parts: parts.append(parts.pop(0)),  # behind the index
        lambda parts: parts.append(parts[-1]),  # two indexes
        lambda parts: parts.pop(),  # no index
        lambda parts: parts.insert(0, (replace(parts[0][0], time=1), parts.pop(0)[1])),  # another time
    ],
)
def test_members_that_stand_otherwise_are_found(archive: bytes, change: Callable[[Any], object]) -> None:
    assert "archive" in wrong(rearranged(change)(archive)).values()


def test_a_newer_format_is_told_from_damage(archive: bytes) -> None:
    parts = members(archive)
    newer = seal({**unseal(parts[INDEX][1]), "format": 2})
    parts[INDEX] = (replace(parts[INDEX][0], size=len(newer)), newer)
    assert wrong(tarred(parts.values())) == {INDEX: "newer-format"}


@pytest.mark.parametrize(
    "index", [b"", b"{}", seal({"format": 1}), seal({"format": 1, "members": [[[], 1, 2, 3]]})]
)
def test_an_index_that_is_none_is_found(archive: bytes, index: bytes) -> None:
    parts = members(archive)
    parts[INDEX] = (replace(parts[INDEX][0], size=len(index)), index)
    assert wrong(tarred(parts.values())) == {INDEX: "archive"}


def test_an_edit_of_the_past_is_found_though_every_digest_was_made_right(archive: bytes) -> None:
    """By the hash chain."""
    parts = members(archive)
    manifest = decode_manifest(parts[KEY][1], RUN)
    head, second, *rest = manifest.checkpoints
    edited = encode_manifest(replace(manifest, checkpoints=(head, replace(second, step=99), *rest)))
    parts[KEY] = (replace(parts[KEY][0], size=len(edited)), edited)
    assert wrong(indexed(parts)) == {None: "chain"}


def test_a_shallow_look_reads_documents_only_where_the_file_can_seek(archive: bytes) -> None:
    class Counting(io.BytesIO):
        count = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.count += len(data)
            return data

    file = Counting(archive)
    assert verify_archive(file, depth=2).ok
    assert file.count < len(archive) / 5
    deep = Counting(archive)
    assert verify_archive(deep).ok
    assert deep.count == len(archive)


def test_a_file_that_is_not_of_bytes_is_refused(tmp_path: Path) -> None:
    for file in (io.StringIO("text"), tmp_path, "archive.tar", None):
        with pytest.raises(InvalidInputError, match="open for reading bytes"):
            verify_archive(file)  # type: ignore[arg-type]


# Signatures.


def test_a_signed_archive_is_whole_under_its_key_and_no_other(signed: bytes) -> None:
    told = verify_archive(io.BytesIO(signed), public_key=public_pem(KEYS[0]))
    assert told.ok
    assert told.signed_by == verify_archive(io.BytesIO(signed)).signed_by
    found = wrong(signed, public_key=public_pem(KEYS[1]))
    assert found == {
        SIGNATURES: "signature",
        keys.manifest_key(LONG_ID): "signature",
        keys.manifest_key("gone"): "signature",
    }


def test_an_archive_without_a_signature_fails_when_a_key_is_given(archive: bytes, signed: bytes) -> None:
    """Or whoever changes an archive would only have to leave the signature out."""
    assert wrong(archive, public_key=public_pem(KEYS[0])) == {SIGNATURES: "signature"}
    assert wrong(indexed(members(signed)), public_key=public_pem(KEYS[0])) == {SIGNATURES: "signature"}


def test_an_edit_that_makes_every_digest_right_fails_by_the_signature(signed: bytes) -> None:
    """Of a run, and of which runs there are."""
    parts = members(signed)
    name = keys.manifest_key(LONG_ID)
    manifest = decode_manifest(parts[name][1], LONG_ID)
    edited = encode_manifest(replace(manifest, notes={"approved": True}))
    changed = {**parts, name: (replace(parts[name][0], size=len(edited)), edited)}
    without = {key: part for key, part in parts.items() if key != keys.manifest_key("gone")}
    for some, found in ((changed, {SIGNATURES, name}), (without, {SIGNATURES})):
        forged = list(members(indexed(some)).values())
        data = tarred([*forged, parts[SIGNATURES]])
        assert wrong(data) == {}
        assert wrong(data, public_key=public_pem(KEYS[0])) == dict.fromkeys(found, "signature")


def test_signatures_of_another_archive_are_no_good(world: LongWorld, signed: bytes) -> None:
    other = members(exported(world.store, "gone", sign=KEYS[0]))
    parts = {**members(signed), SIGNATURES: other[SIGNATURES]}
    found = wrong(tarred(parts.values()), public_key=public_pem(KEYS[0]))
    assert found == {SIGNATURES: "signature", keys.manifest_key(LONG_ID): "signature"}


# Export.


def test_a_run_that_is_written_to_meanwhile_is_archived_as_it_was_at_one_point() -> None:
    """Every object that is read may have expired since; then the newer manifest counts."""
    name = f"archive-{next(_names)}"
    store = Store(lambda: MemoryStorage(name), keep_last=3)

    def go_on(times: int) -> None:
        with store.run(RUN) as run:
            for n in range(times):
                run.save({"n": n, "blob": random.Random(n).randbytes(40_000)})

    class Busy(MemoryStorage):
        left = 2
        lock = threading.Lock()

        async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
            with self.lock:
                if key.startswith(keys.OBJECTS) and self.left:
                    self.left -= 1
                    go_on(4)
            return await super().read(key, offset=offset, length=length)

    go_on(5)
    data = exported(Store(lambda: Busy(name)), RUN)
    assert wrong(data) == {}
    [report] = verify_archive(io.BytesIO(data)).runs
    manifest = decode_manifest(members(data)[KEY][1], RUN)
    assert manifest.seq > 5
    assert report.checkpoints == len(manifest.checkpoints)
    other = new_store()
    other.import_(io.BytesIO(data))
    assert other.run(RUN).verify(deep=True).ok
    other.collect(RUN)
    assert other.run(RUN).verify(deep=True).unreferenced == 0


@pytest.mark.parametrize("damage", [None, b"", b"x" * 40_047])
def test_damage_ends_an_export_and_what_was_written_is_no_archive(
    world: LongWorld, damage: bytes | None
) -> None:
    key = world.object_of(12)
    world.write(key, damage)
    file = io.BytesIO()
    with pytest.raises(CorruptCheckpointError, match="repair the run first") as caught:
        world.store.export([RUN], file)
    assert (caught.value.run, caught.value.seq, caught.value.key) == (RUN, 12, key)
    assert wrong(file.getvalue())


def test_a_damaged_manifest_or_page_ends_an_export(world: LongWorld) -> None:
    page = keys.page_key(RUN, world.pages()[3].name)
    for key in (KEY, page):
        with world.restored():
            world.write(key, b"junk")
            with pytest.raises(CorruptCheckpointError) as caught:
                world.store.export([RUN], io.BytesIO())
            assert caught.value.key == key


def test_what_can_not_be_exported_is_said_before_anything_is_written(world: LongWorld) -> None:
    file = io.BytesIO()
    with pytest.raises(RunNotFoundError):
        world.store.export(["nobody"], file)
    for runs in ([], RUN):
        with pytest.raises(InvalidInputError):
            world.store.export(runs, file)
    with pytest.raises(InvalidInputError, match="no private key"):
        world.store.export([RUN], file, sign=b"junk")
    assert file.getvalue() == b""


# Import.


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

    async def no_sleep(_: float) -> None:
        pass

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

    calls = len(bring(f"archive-{next(_names)}", Plan()).calls)
    for plan in every_fault(calls, (effect,)):
        name = f"archive-{next(_names)}"
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
