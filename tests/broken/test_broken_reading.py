"""Wrong variants of what is checked before it is believed; the damage suite must fail on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import format as format_module
from cloudckpt import keys, load
from tests.broken.caught import check_caught
from tests.protocol import test_damage as damage

Patch = pytest.MonkeyPatch


def passes(check: Callable[..., None], *arguments: Any, large: bool) -> bool:
    world = damage.World(large=large)
    try:
        check(world, *arguments)
    except (Exception, pytest.fail.Exception) as error:
        check_caught(error)
        return False
    return True


def lost_tail(good: bytes) -> bytes:
    return good[:-1]


def test_the_right_one_passes() -> None:
    assert passes(damage.check_object, lost_tail, large=True)
    assert passes(damage.check_object, lambda good: good + b"\0", large=True)
    assert passes(damage.test_any_flipped_byte_of_a_manifest_is_found, large=False)
    assert passes(damage.test_the_manifest_of_another_run_is_refused, large=False)


def test_a_payload_that_nobody_checked(monkeypatch: Patch) -> None:
    async def unchecked(storage: Any, effects: Any, manifest: Any, entry: Any) -> bytes:
        stored = await storage.read(entry.extents[0].key)
        return stored.data if stored else b""

    monkeypatch.setattr(load, "read_payload", unchecked)
    assert not passes(damage.check_object, lost_tail, large=True)


def test_reading_no_more_than_was_saved_misses_a_tail(monkeypatch: Patch) -> None:
    monkeypatch.setattr(keys, "object_digest", lambda _: "")
    assert not passes(damage.check_object, lambda good: good + b"\0", large=True)


def test_a_manifest_that_is_only_parsed(monkeypatch: Patch) -> None:
    """JSON with a changed digit is JSON."""
    import json

    monkeypatch.setattr(format_module, "unseal", json.loads)
    assert not passes(damage.test_any_flipped_byte_of_a_manifest_is_found, large=False)


def test_a_manifest_whose_run_is_not_compared(monkeypatch: Patch) -> None:
    from cloudckpt import pointer

    right = pointer.decode_manifest
    monkeypatch.setattr(pointer, "decode_manifest", lambda data, _: right(data, None))
    assert not passes(damage.test_the_manifest_of_another_run_is_refused, large=False)
