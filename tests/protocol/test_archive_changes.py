"""Not a byte of an archive can be changed unnoticed, nor of a signed one by who makes every digest right."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudckpt import keys
from cloudckpt.archive import INDEX, SIGNATURES, verify_archive
from cloudckpt.errors import CorruptCheckpointError, InvalidInputError
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.sealed import seal, unseal
from cloudckpt.tarball import Member
from tests.protocol import archived
from tests.protocol.archived import LONG_ID, exported, indexed, members, new_store, places, tarred, wrong
from tests.protocol.damaged import KEY, RUN, LongWorld, flipped
from tests.protocol.signers import KEYS, public_pem

long_world = archived.long_world
world = archived.world
archive = archived.archive
signed = archived.signed


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
