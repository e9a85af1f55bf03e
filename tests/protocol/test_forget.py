"""Erasing a run for good: every version of it, nothing of another, and the receipt."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from cloudckpt import forget as forgetting
from cloudckpt import keys
from cloudckpt.errors import HeldError, InvalidInputError, RunNotFoundError
from cloudckpt.format import decode_manifest, manifest_digest
from cloudckpt.sealed import canonical, unseal
from cloudckpt.storage.file import FileStorage
from cloudckpt.storage.file_leftovers import temporary_of
from cloudckpt.testing.driver import by_hand
from tests.protocol import erased
from tests.protocol.erased import RUN, WHY, filled, left_of, opened, rows_of
from tests.protocol.versioned import VersionedMemory

at_once = erased.at_once


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
