"""What a killed writer leaves half written in a folder goes when the run is collected.

No listing shows it, so whoever ran an agent on a folder for a year of preemptions had a full disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt import keys
from cloudckpt.errors import RunNotFoundError
from cloudckpt.storage.file_leftovers import temporary_of
from cloudckpt.store import Store

RUN = "r"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with cloudckpt.open(tmp_path) as store:
        store.run(RUN).save({"n": 1, "blob": os.urandom(50_000)})
        yield store


def half(tmp_path: Path, key: str) -> Path:
    path = (tmp_path / key).with_name(f"{temporary_of(key)}0011")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    return path


def test_what_a_killed_writer_left_half_written_is_collected(store: Store, tmp_path: Path) -> None:
    own = [half(tmp_path, f"{keys.objects_prefix(RUN)}{name}") for name in ("2-x", "h2-x")]
    others = [
        half(tmp_path, f"{keys.objects_prefix('other')}2-x"),
        half(tmp_path, keys.manifest_key("other")),
    ]
    for dry_run in (True, False):
        assert all(path.exists() for path in own)
        collected = store.collect(RUN, dry_run=dry_run)
        assert (collected.objects, collected.removed, collected.bytes) == (3, 2, 8)
    assert not any(path.exists() for path in own)
    assert all(path.exists() for path in others)
    assert store.collect(RUN).removed == 0
    with pytest.raises(RunNotFoundError):
        store.collect("other")
    assert all(path.exists() for path in others), "an import into this run may be under way"


def test_a_deleted_run_is_collected_likewise(store: Store, tmp_path: Path) -> None:
    store.delete(RUN)
    path = half(tmp_path, f"{keys.objects_prefix(RUN)}2-x")
    assert store.collect(RUN).removed == 1
    assert not path.exists()


def test_a_writer_at_work_is_not_disturbed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it writes now is there in both looks when its process is stopped for long, and then goes on."""
    replace = os.replace
    collected: list[Any] = []

    def slow(source: str, target: str) -> None:
        if not collected and f"/{keys.OBJECTS}" in str(target):
            collected.append(None)
            with cloudckpt.open(tmp_path) as operator:
                collected[:] = [operator.collect(RUN)]
        replace(source, target)

    monkeypatch.setattr(os, "replace", slow)
    state = {"n": 2, "blob": os.urandom(100_000)}
    with store.run(RUN) as run:
        run.save(state)
        assert collected[0].removed == 1
        assert run.load() == state
    assert all(report.ok and not report.unreferenced for report in store.verify(depth=3))
