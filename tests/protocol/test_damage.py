"""Damaged bytes: never a wrong state, always an error that names the place, and a way back."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudckpt import keys
from cloudckpt.codec import Encoded
from cloudckpt.drafts import Draft
from cloudckpt.errors import CorruptCheckpointError, DataError, UnsupportedFormatError
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.model import FORMAT_VERSION
from cloudckpt.sealed import seal, unseal
from cloudckpt.testing.driver import by_hand
from tests.protocol.damaged import KEY, RUN, SAVES, World, damages, flipped


@pytest.fixture(scope="module")
def riding_world() -> World:
    return World(large=False)


@pytest.fixture(scope="module")
def objects_world() -> World:
    return World(large=True)


@pytest.fixture
def riding(riding_world: World) -> Iterator[World]:
    with riding_world.restored():
        yield riding_world


@pytest.fixture
def objects(objects_world: World) -> Iterator[World]:
    with objects_world.restored():
        yield objects_world


@pytest.fixture(params=["riding", "objects"])
def world(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def refused(load: Callable[[], Any], *, seq: int | None, key: str) -> CorruptCheckpointError:
    """Return the error of a load that must fail, whose facts must be right."""
    with pytest.raises(CorruptCheckpointError) as caught:
        load()
    error = caught.value
    assert (error.run, error.seq, error.key) == (RUN, seq, key)
    assert f"run={RUN!r}" in str(error)
    assert f"key={key!r}" in str(error)
    assert seq is None or f"seq={seq}" in str(error)
    return error


# The manifest.


def test_any_flipped_byte_of_a_manifest_is_found(riding: World) -> None:
    good = riding.at(KEY)
    for at in range(len(good)):
        riding.write(KEY, flipped(good, at, 1 << at % 8))
        refused(riding.run.load, seq=None, key=KEY)


def test_a_manifest_that_is_cut_at_any_length_is_found(riding: World) -> None:
    good = riding.at(KEY)
    for length in range(len(good)):
        riding.write(KEY, good[:length])
        refused(riding.run.load, seq=None, key=KEY)


@settings(deadline=None)
@given(at=st.integers(0, 2**32), mask=st.integers(1, 255))
def test_any_flipped_byte_of_a_large_manifest_is_found(riding_world: World, at: int, mask: int) -> None:
    """With a payload of about the largest size that rides."""
    run, key = riding_world.store.run("large"), keys.manifest_key("large")
    if run.load() is None:
        run.save(random.Random(1).randbytes(32_000))
    good = riding_world.at(key)
    riding_world.write(key, flipped(good, at % len(good), mask))
    try:
        with pytest.raises(CorruptCheckpointError):
            riding_world.store.run("large").load()
    finally:
        riding_world.write(key, good)


def test_damage_of_a_manifest_stops_all_who_need_it_and_changes_nothing(world: World) -> None:
    """A writer above all: it must not take the run for a new one and write over what is left of it."""
    for damaged in damages(world.at(KEY)):
        world.write(KEY, damaged)
        for use in (world.run.load, world.run.history, world.run.acquire, lambda: world.run.save({"n": 9})):
            refused(use, seq=None, key=KEY)
        assert world.at(KEY) == damaged


def test_the_manifest_of_another_run_is_refused(world: World) -> None:
    world.store.run("other").save({"n": "other's"})
    world.write(KEY, world.at(keys.manifest_key("other")))
    assert "another run" in str(refused(world.run.load, seq=None, key=KEY))


def test_a_manifest_of_a_newer_format_asks_for_an_upgrade(world: World) -> None:
    """And is neither called damaged nor written over."""
    newer = seal({**unseal(world.at(KEY)), "format": FORMAT_VERSION + 1})
    world.write(KEY, newer)
    for use in (world.run.load, world.run.history, world.run.acquire, lambda: world.run.save({"n": 9})):
        with pytest.raises(UnsupportedFormatError, match="upgrade cloudckpt") as caught:
            use()
        assert caught.value.facts["run"] == RUN
        assert caught.value.facts["key"] == KEY
    assert world.at(KEY) == newer


@pytest.mark.parametrize("run_id", ["b", "x" * 1000])
def test_a_damaged_run_does_not_hide_the_others(run_id: str) -> None:
    """Of a long id the key tells only the beginning; the rest is in the manifest."""
    world = World(large=False)
    for other in ("a", run_id, "z"):
        world.store.run(other).save({})
    key = keys.manifest_key(run_id)
    for data in (b"", b"junk", seal({**unseal(world.at(key)), "format": FORMAT_VERSION + 1})):
        world.write(key, data)
        found = [info.id for info in world.store.runs()]
        [shown] = set(found) - {"a", RUN, "z"}
        assert len(found) == 4
        assert run_id.startswith(shown.removesuffix("…"))


# The payload.


def check_object(world: World, damage: Callable[[bytes], bytes | None]) -> None:
    key = world.object_of(SAVES)
    with world.restored():
        world.write(key, damage(world.at(key)))
        error = refused(world.run.load, seq=SAVES, key=key)
    assert error.newest_intact == SAVES - 1
    assert "fallback=True" in str(error)
    assert world.run.load() == world.state(SAVES)


@settings(deadline=None)
@given(at=st.integers(0, 2**32), mask=st.integers(1, 255))
def test_any_flipped_byte_of_an_object_is_found(objects_world: World, at: int, mask: int) -> None:
    check_object(objects_world, lambda good: flipped(good, at % len(good), mask))


@settings(deadline=None)
@given(length=st.integers(0, 2**32))
def test_an_object_that_is_cut_at_any_length_is_found(objects_world: World, length: int) -> None:
    check_object(objects_world, lambda good: good[: length % len(good)])


@settings(deadline=None)
@given(tail=st.binary(min_size=1))
def test_an_object_with_a_tail_is_found(objects_world: World, tail: bytes) -> None:
    """The bytes before the tail hash right, so reading just the expected length would not see it."""
    check_object(objects_world, lambda good: good + tail)


def test_a_missing_object_is_found(objects: World) -> None:
    check_object(objects, lambda _: None)


def test_a_damaged_checkpoint_is_named_with_the_newest_intact_one(objects: World) -> None:
    """Also an older one that was asked for by its seq, and an intact one is loaded all the same."""
    for seq in (2, 4):
        objects.write(objects.object_of(seq), b"")
    for seq in (2, 4):
        error = refused(partial(objects.run.load, seq=seq), seq=seq, key=objects.object_of(seq))
        assert error.newest_intact == 3
    for seq in (1, 3):
        assert objects.run.load(seq=seq) == objects.state(seq)


def test_fallback_goes_back_to_the_newest_intact_one_and_says_so(
    objects: World, caplog: pytest.LogCaptureFixture
) -> None:
    newest = objects.object_of(SAVES)
    for damaged in [None, *damages(objects.at(newest))]:
        caplog.clear()
        objects.write(newest, damaged)
        assert objects.run.load(fallback=True) == objects.state(SAVES - 1)
        [record] = caplog.records
        assert (record.name, record.levelno) == ("cloudckpt", logging.WARNING)
        for fact in (RUN, newest, f"seq={SAVES - 1}"):
            assert fact in record.getMessage()


def test_fallback_passes_over_all_that_is_damaged(objects: World, caplog: pytest.LogCaptureFixture) -> None:
    for seq in (SAVES, SAVES - 1):
        objects.write(objects.object_of(seq), None)
    assert objects.run.load(fallback=True) == objects.state(SAVES - 2)
    assert len(caplog.records) == 2


def test_fallback_without_damage_says_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert world.run.load(fallback=True) == world.state(SAVES)
    assert not caplog.records


def test_fallback_never_goes_forward(objects: World) -> None:
    """Whoever asks for an older checkpoint wants to go back, not to a state that was to be undone."""
    key = objects.object_of(1)
    objects.write(key, None)
    error = refused(partial(objects.run.load, seq=1, fallback=True), seq=1, key=key)
    assert "no other checkpoint" in str(error)


@pytest.mark.parametrize("fallback", [False, True])
def test_when_nothing_is_intact_the_error_says_so(objects: World, fallback: bool) -> None:
    for seq in range(1, SAVES + 1):
        key = objects.object_of(seq)
        objects.write(key, objects.at(key)[:-1])
    error = refused(partial(objects.run.load, fallback=fallback), seq=SAVES, key=objects.object_of(SAVES))
    assert error.newest_intact is None
    assert "no other checkpoint of the run is intact" in str(error)


def test_a_writer_goes_on_from_a_damaged_checkpoint(objects: World) -> None:
    """The damage is of one payload; the run and its history are whole."""
    objects.write(objects.object_of(SAVES), b"")
    with objects.run as run:
        refused(run.load, seq=SAVES, key=objects.object_of(SAVES))
        state = run.load(fallback=True)
        assert run.save(state).seq == SAVES + 1
        assert run.load() == state == objects.state(SAVES - 1)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"no payload of ours", CorruptCheckpointError),
        (b"ckpt\x01\x00\x0cmsgpack+zstd\x00\x01junk", CorruptCheckpointError),
        (b"ckpt\x09\x00\x0cmsgpack+zstd\x00\x01junk", UnsupportedFormatError),
        (b"ckpt\x01\x00\x06pickle\x00\x01junk", UnsupportedFormatError),
    ],
)
def test_intact_bytes_that_are_no_state_are_named_too(
    world: World, data: bytes, error: type[DataError]
) -> None:
    """They hash right, so only a fault of a writer, or a newer one, makes them."""
    claim = world.store._core.writer(RUN, rules=None)
    by_hand(claim.save(Draft("c", Encoded(data, 1, "0" * 64, "msgpack+zstd/1", None, None))))
    with pytest.raises(error) as caught:
        world.run.load()
    assert caught.value.facts["run"] == RUN
    assert caught.value.facts["seq"] == SAVES + 1
    assert world.run.load(seq=SAVES) == world.state(SAVES)


def test_a_reference_to_a_part_of_an_object_is_checked_as_a_part(objects: World) -> None:
    """The format lets several extents make a payload; each has its own digest, and so has the whole."""
    data, manifest = objects.at(objects.object_of(SAVES)), decode_manifest(objects.at(KEY), RUN)
    head, *older = manifest.checkpoints
    [whole] = head.extents

    def part(start: int, end: int) -> Any:
        digest = hashlib.sha256(data[start:end]).hexdigest()
        return replace(whole, offset=start, length=end - start, digest=digest)

    def refer(*extents: Any) -> None:
        changed = replace(manifest, checkpoints=(replace(head, extents=extents), *older))
        objects.write(KEY, encode_manifest(changed))

    one, other = part(0, 10_000), part(10_000, len(data))
    refer(one, other)
    assert objects.run.load() == objects.state(SAVES)
    for extents in ([other, one], [one], [one, other, other]):
        refer(*extents)
        error = refused(objects.run.load, seq=SAVES, key=whole.key)
        assert "do not make up what was saved" in str(error)
    refer(replace(one, offset=1), other)
    refused(objects.run.load, seq=SAVES, key=whole.key)
