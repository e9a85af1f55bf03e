"""Manifests as bytes: canonical, self-checking, and open to what a newer release adds."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudckpt.entries import entry_digest
from cloudckpt.errors import CorruptCheckpointError, InvalidInputError, UnsupportedFormatError
from cloudckpt.format import decode_manifest, decode_page, encode_branch, encode_leaf, encode_manifest
from cloudckpt.labels import MAX_INT, MAX_LEVELS, check_metadata
from cloudckpt.model import (
    FORMAT_VERSION,
    STATUSES,
    Entry,
    Expired,
    Extent,
    Hold,
    Lease,
    Manifest,
    Origin,
    Page,
    Tombstone,
    Writer,
)
from cloudckpt.sealed import canonical, seal, unseal

AT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
DIGEST = "ab" * 32
KEY = f"objects/r/1-{DIGEST}-0"
ENTRY = Entry(
    seq=1,
    step=None,
    commit="c1",
    epoch=1,
    parent=None,
    parent_digest=None,
    digest=DIGEST,
    size=3,
    encoded_digest=DIGEST,
    encoded_size=9,
    codec="msgpack+zstd/1",
    schema="Research",
    schema_version=2,
    fingerprint={"prompt": "5f"},
    time=AT,
    tags=("best", "ä 😀"),
    metadata={"cost": 0.25, "deep": [1, None, {"x": True}]},
    extents=(Extent(KEY, 0, 3, DIGEST),),
    extra={"added_later": [1, 2]},
)
MANIFEST = Manifest(
    run="nightly/42 😀",
    seq=1,
    nonce="n",
    epoch=1,
    writer=Writer("w", "host", 7, AT),
    checkpoints=(ENTRY,),
    recent=("c1",),
    inline={KEY: b"\x00\xff\n"},
    extra={"later": {"until": 1}},
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
TIMES = st.datetimes(timezones=st.just(UTC))
INTS = st.integers(-MAX_INT, MAX_INT)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
HOLDS = st.builds(Hold, TEXTS, TEXTS, TIMES)
PAGES = st.builds(
    Page,
    name=TEXTS,
    **dict.fromkeys(("size", "level", "count", "held", "newest", "oldest", "stored"), st.integers(0)),
    since=TIMES,
    until=TIMES,
    steps=st.none() | st.tuples(st.integers(0), st.integers(0)),
    tags=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
)
EXTENTS = st.builds(Extent, TEXTS, st.integers(0), st.integers(0), TEXTS)
ENTRIES = st.builds(
    Entry,
    **{name: st.integers(0) for name in ("seq", "epoch", "size", "encoded_size")},
    **dict.fromkeys(("commit", "digest", "encoded_digest", "codec"), TEXTS),
    step=st.none() | st.integers(0),
    parent=st.none() | st.integers(1),
    parent_digest=st.none() | TEXTS,
    schema=st.none() | TEXTS,
    schema_version=st.none() | st.integers(1),
    fingerprint=st.none() | st.dictionaries(TEXTS, TEXTS),
    time=TIMES,
    tags=st.lists(TEXTS, max_size=3).map(tuple),
    metadata=st.dictionaries(TEXTS, JSON, max_size=3),
    extents=st.lists(EXTENTS, max_size=3).map(tuple),
    origin=st.none() | st.builds(Origin, TEXTS, st.integers(1), st.none() | TEXTS),
    hold=st.none() | HOLDS,
    notes=st.dictionaries(TEXTS, JSON, max_size=2),
    extra=st.dictionaries(TEXTS.map(lambda text: f"new-{text}"), JSON, max_size=2),
)
MANIFESTS = st.builds(
    Manifest,
    run=TEXTS,
    nonce=TEXTS,
    seq=st.integers(0),
    epoch=st.integers(1),
    writer=st.builds(Writer, TEXTS, TEXTS, st.integers(0), TIMES),
    status=st.sampled_from(STATUSES),
    checkpoints=st.lists(ENTRIES, max_size=3).map(tuple),
    recent=st.lists(TEXTS, max_size=4).map(tuple),
    inline=st.dictionaries(TEXTS, st.binary(max_size=20), max_size=2),
    history=st.lists(PAGES, min_size=1, max_size=3).map(tuple),
    expired=st.lists(st.builds(Expired, st.integers(1), st.integers(1), TIMES, TEXTS), max_size=2).map(tuple),
    retention=st.none() | st.dictionaries(TEXTS, JSON, max_size=2),
    hold=st.none() | HOLDS,
    notes=st.dictionaries(TEXTS, JSON, max_size=2),
    copied=st.none() | TEXTS,
    lease=st.none() | st.builds(Lease, st.none() | st.floats(0.01, 1e6) | st.integers(1, 99), INTS),
    max_steps=st.none() | INTS,
    tombstone=st.none() | st.builds(Tombstone, TEXTS, TEXTS, TIMES, TEXTS),
    extra=st.dictionaries(TEXTS.map(lambda text: f"new-{text}"), JSON, max_size=2),
)


@given(MANIFESTS)
def test_a_manifest_comes_back_equal(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert decode_manifest(data, manifest.run) == manifest
    assert encode_manifest(decode_manifest(data, None)) == data


def test_equal_manifests_give_equal_bytes() -> None:
    """Whatever order a mapping was filled in, and in whatever zone a clock shows its time."""
    other = replace(
        MANIFEST,
        checkpoints=(
            replace(
                ENTRY,
                metadata=dict(reversed(ENTRY.metadata.items())),
                time=AT.astimezone(timezone(timedelta(hours=5))),
            ),
        ),
    )
    assert encode_manifest(other) == encode_manifest(MANIFEST)


def test_a_manifest_is_one_line_of_ascii_json_with_its_digest_first() -> None:
    """The envelope stays in every later format, so that an old release can tell newer from damaged."""
    data = encode_manifest(MANIFEST)
    assert re.match(rb'\{"digest":"[0-9a-f]{64}","checkpoints":', data)
    assert data.isascii()
    assert b"\n" not in data
    assert json.loads(data)["format"] == FORMAT_VERSION


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    good = encode_manifest(MANIFEST)
    at = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[at]))
    with pytest.raises(CorruptCheckpointError):
        decode_manifest(good[:at] + bytes([byte]) + good[at + 1 :], MANIFEST.run)


def test_any_cut_and_any_tail_is_found() -> None:
    good = encode_manifest(MANIFEST)
    for damaged in [
        *(good[:at] for at in range(len(good))),
        good + b" ",
        good + b"\n",
        good + good,
        b"\0" + good,
    ]:
        with pytest.raises(CorruptCheckpointError):
            decode_manifest(damaged, MANIFEST.run)


def test_the_manifest_of_another_run_is_refused() -> None:
    """Somebody copied a key by hand; loading it would resume the wrong agent."""
    with pytest.raises(CorruptCheckpointError, match="another run"):
        decode_manifest(encode_manifest(MANIFEST), "nightly/43")


def test_a_newer_format_is_refused_whatever_else_it_holds() -> None:
    """It is told apart from damage, since the remedy is another one."""
    newer = seal({"format": FORMAT_VERSION + 1, "run": {"id": "r"}, "shape": "unknown"})
    with pytest.raises(UnsupportedFormatError, match="upgrade cloudckpt"):
        decode_manifest(newer, "r")


def broken(**changes: Any) -> bytes:
    document = {**unseal(encode_manifest(MANIFEST)), **changes}
    return seal({name: value for name, value in document.items() if value is not ...})


@pytest.mark.parametrize(
    "changes",
    [
        {"seq": "1"},
        {"seq": True},
        {"seq": ...},
        {"run": 7},
        {"status": "sleeping"},
        {"writer": None},
        {"writer": {"id": "w"}},
        {"checkpoints": [{"seq": 1}]},
        {"checkpoints": 3},
        {"recent": [1]},
        {"inline": {"k": "not base64!"}},
        {"inline": {"k": 5}},
        {"inline": []},
    ],
)
def test_a_sealed_document_of_a_wrong_shape_is_damage(changes: dict[str, Any]) -> None:
    """The digest is right, so only a fault of some writer makes such bytes; still no TypeError comes out."""
    with pytest.raises(CorruptCheckpointError):
        decode_manifest(broken(**changes), None)


@pytest.mark.parametrize("body", [b"[1]", b"7", b"{", b"\xff"])
def test_a_sealed_text_that_is_no_object_is_damage(body: bytes) -> None:
    import hashlib

    sealed = b'{"digest":"' + hashlib.sha256(b"{" + body).hexdigest().encode() + b'",' + body
    with pytest.raises(CorruptCheckpointError):
        unseal(sealed)


@given(st.lists(ENTRIES, max_size=3), st.lists(PAGES, max_size=3))
def test_a_page_of_history_comes_back_equal(entries: list[Entry], pages: list[Page]) -> None:
    assert decode_page(encode_leaf("r", entries), "r") == (tuple(entries), ())
    assert decode_page(encode_branch("r", pages), "r") == ((), tuple(pages))
    with pytest.raises(CorruptCheckpointError, match="another run"):
        decode_page(encode_leaf("r", entries), "s")


def test_an_entry_digest_covers_every_field_that_may_not_change_later() -> None:
    """The hash chain would not show an edit of a field that it leaves out."""
    later = {"tags": ("t",), "hold": Hold("me", "audit", AT), "notes": {"a": 1}}
    assert entry_digest(replace(ENTRY, **later)) == entry_digest(ENTRY)
    assert entry_digest(replace(ENTRY, origin=Origin("other", 1))) != entry_digest(ENTRY)
    seen = {entry_digest(ENTRY)}
    names = [field.name for field in fields(Entry) if field.init and field.name not in {*later, "origin"}]
    for name in names:
        value = getattr(ENTRY, name)
        other = {
            int: lambda v: v + 1,
            str: lambda v: v + "x",
            type(None): lambda _: 5,
            datetime: lambda v: v + timedelta(microseconds=1),
            tuple: lambda v: v[:-1],
            dict: lambda v: {**v, "added": 1},
        }[type(value)](value)
        seen.add(entry_digest(replace(ENTRY, **{name: other})))
    assert len(seen) == 1 + len(names)


@given(st.dictionaries(TEXTS, JSON, max_size=4))
def test_metadata_comes_back_as_it_was(metadata: dict[str, Any]) -> None:
    checked = check_metadata(metadata)
    assert checked == metadata
    assert canonical(json.loads(canonical(checked))) == canonical(checked)


def test_metadata_is_a_copy() -> None:
    inner: list[Any] = [1]
    checked = check_metadata({"a": inner})
    inner.append(2)
    assert checked == {"a": [1]}


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"a": float("nan")}, "metadata.a"),
        ({"a": [1, {"b": float("inf")}]}, "metadata.a[1].b"),
        ({"a": (1, 2)}, "metadata.a"),
        ({"a": {1: 2}}, "metadata.a"),
        ({"a": b"x"}, "metadata.a"),
        ({"a": AT}, "metadata.a"),
        ({1: "a"}, "metadata"),
        ({"a": [2**63]}, "metadata.a[0]"),
        ({"a": -(10**5000)}, "metadata.a"),
        ({"a": "\ud83d\ude00"}, "metadata.a"),
        ({"\ud83d\ude00": 1}, "metadata"),
    ],
)
def test_metadata_that_json_would_change_is_refused_by_its_path(metadata: Any, path: str) -> None:
    """json.dumps makes a list of a tuple, "1" of 1, one character of two surrogates, and writes NaN."""
    with pytest.raises(InvalidInputError) as caught:
        check_metadata(metadata)
    assert caught.value.facts["path"] == path


def test_metadata_that_holds_itself_is_refused() -> None:
    metadata: dict[str, Any] = {}
    metadata["me"] = metadata
    with pytest.raises(InvalidInputError, match="holds itself"):
        check_metadata(metadata)


def _nested(levels: int, wrap: Any) -> Any:
    value = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"k": inner}], ids=["list", "object"])
def test_how_deep_metadata_may_be_does_not_depend_on_the_interpreter(wrap: Any) -> None:
    """A list of 900 levels that 3.12 saved ended every load by 3.11, in its JSON reader."""
    deepest = {"a": _nested(MAX_LEVELS, wrap)}
    assert check_metadata(deepest) == deepest
    with pytest.raises(InvalidInputError, match="more than 50 levels"):
        check_metadata({"a": _nested(MAX_LEVELS + 1, wrap)})


def test_a_lone_surrogate_comes_back() -> None:
    """A run id may hold one, from a file name that is no UTF-8."""
    manifest = replace(MANIFEST, run="\udcff", checkpoints=(), inline={})
    assert decode_manifest(encode_manifest(manifest), "\udcff") == manifest


@pytest.mark.parametrize("metadata", ["text", 5, [("a", 1)]])
def test_metadata_that_is_no_mapping_is_refused(metadata: Any) -> None:
    with pytest.raises(InvalidInputError, match="mapping"):
        check_metadata(metadata)
