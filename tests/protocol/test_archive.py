"""Archives: a run is in one whole, as it was at one point, the same each time."""

from __future__ import annotations

import asyncio
import io
import os
import random
import tarfile
import threading
from pathlib import Path

import pytest

import cloudckpt
from cloudckpt import keys
from cloudckpt.archive import INDEX, verify_archive
from cloudckpt.errors import CorruptCheckpointError, InvalidInputError, RunNotFoundError
from cloudckpt.format import decode_manifest
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.protocol import archived
from tests.protocol.archived import LONG_ID, RUNS, check_same, exported, members, new_name, new_store, wrong
from tests.protocol.damaged import KEY, LONG, RUN, LongWorld
from tests.protocol.signers import KEYS

long_world = archived.long_world
world = archived.world
archive = archived.archive


# There and back.


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


# Export.


def test_a_run_that_is_written_to_meanwhile_is_archived_as_it_was_at_one_point() -> None:
    """Every object that is read may have expired since; then the newer manifest counts."""
    name = new_name()
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
