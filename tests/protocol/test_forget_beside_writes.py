"""A folder's writes under way while the run is forgotten: what they have half written is erased too.

Their writers are alive, so they are to learn what became of the run, and not that a file is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt import keys
from cloudckpt.errors import RunDeletedError
from cloudckpt.store import Store

RUN = "r"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with cloudckpt.open(tmp_path) as store:
        store.run(RUN).save({"n": 1})
        yield store


def forget_at(prefix: str, monkeypatch: pytest.MonkeyPatch, store: Store) -> list[Any]:
    """Forget the run when the next file below a prefix has been written, and has not its name yet."""
    replace = os.replace
    receipts: list[Any] = []

    def slow(source: str, target: str) -> None:
        if not receipts and f"/{prefix}" in str(target):
            receipts.append(None)
            receipts[:] = [store.forget(RUN, why="asked")]
        replace(source, target)

    monkeypatch.setattr(os, "replace", slow)
    return receipts


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_who_saves_a_large_state_meanwhile_is_told_that_the_run_is_deleted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cloudckpt.open(tmp_path) as operators:
        receipts = forget_at(keys.OBJECTS, monkeypatch, operators)
        with pytest.raises(RunDeletedError):
            store.run(RUN).save({"n": 2, "recording": os.urandom(100_000)})
        assert receipts[0].complete
        operators.collect(RUN)
    assert files(tmp_path / keys.OBJECTS) == []


def test_who_collects_meanwhile_goes_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fence is written over the tombstone."""
    store.delete(RUN)
    (tmp_path / keys.objects_prefix(RUN)).mkdir(parents=True, exist_ok=True)
    (tmp_path / keys.objects_prefix(RUN) / "late").write_bytes(b"of an agent that was at work")
    with cloudckpt.open(tmp_path) as operators:
        receipts = forget_at(keys.MANIFESTS, monkeypatch, operators)
        assert store.collect(RUN).objects == 1
        assert receipts[0].complete
        assert operators.collect(RUN).objects == 0
    assert files(tmp_path / keys.OBJECTS) == []
