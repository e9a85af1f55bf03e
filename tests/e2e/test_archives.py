"""Verification, repair and archives on real servers, and from one kind of store to another."""

from __future__ import annotations

import io
import random
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt import keys
from cloudckpt.archive import verify_archive
from cloudckpt.errors import RunDeletedError
from cloudckpt.retention import Retention
from cloudckpt.store import Store
from tests.protocol.signers import KEYS
from tests.servers.base import Server

SAVES = 30


def state(n: int) -> dict[str, Any]:
    return {"n": n, "blob": random.Random(n).randbytes(40_000 if n % 3 else 40)}


@pytest.fixture(params=["memory", "folder", "minio", "minio boto3", "minio obstore", "fake_gcs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind, _, engine = request.param.partition(" ")
    place = secrets.token_hex(4)
    if kind in ("memory", "folder"):
        url = f"memory://{place}" if kind == "memory" else str(tmp_path / "store")
        options: dict[str, Any] = {}
    else:
        server: Server = request.getfixturevalue(f"{kind}_server")
        url = f"{server.url}/{place}"
        options = {"storage_options": server.storage_options(), "engine": engine or None}
    with cloudckpt.open(url, retention=Retention(keep_last=100), **options) as found:
        yield found


def fill(store: Store) -> None:
    with store.run("nightly/42") as run:
        for n in range(1, SAVES + 1):
            run.save(state(n), step=n, tags=["good"] if n == 4 else [])
    store.run("small").save({"rides": True})
    store.run("gone").save({})
    store.delete("gone")


def test_damage_is_found_and_repaired(store: Store) -> None:
    fill(store)
    run = store.run("nightly/42")
    assert {one.run: one.ok for one in store.verify(depth=3)} == {
        "nightly/42": True,
        "small": True,
        "gone": True,
    }
    entries = store._core.call(run.access.base()).manifest.checkpoints
    key = next(entry.extents[0].key for entry in entries if entry.seq == SAVES - 1)
    delete(store, key)
    [problem] = [problem for one in store.verify(depth=2) for problem in one.problems]
    assert (problem.kind, problem.run, problem.seq, problem.key) == (
        "object-missing",
        "nightly/42",
        SAVES - 1,
        key,
    )
    run.rollback(seq=SAVES - 1)
    done = run.repair(drop_damaged=True)
    assert (done.back_to, done.seq, done.dropped) == (SAVES, SAVES + 2, (SAVES + 1, SAVES - 1))
    assert run.load() == state(SAVES)
    assert all(one.ok for one in store.verify(deep=True))


def delete(store: Store, key: str) -> None:
    store._core.call(store._core.storage.delete([key]))


def test_an_archive_goes_to_any_store_and_back(store: Store) -> None:
    fill(store)
    runs = [info.id for info in store.runs()]
    file = io.BytesIO()
    done = store.export(runs, file, sign=KEYS[0])
    assert done.bytes == len(file.getvalue())
    again = io.BytesIO()
    store.export(runs, again, sign=KEYS[0])
    assert again.getvalue() == file.getvalue()
    file.seek(0)
    assert verify_archive(file, public_key=KEYS[0].public_key()).ok
    with cloudckpt.open(f"memory://{secrets.token_hex(4)}") as other:
        move(file, store, other)
        back = io.BytesIO()
        other.export(runs, back)
    for one in runs:
        erase(store, one)
    move(back, None, store)
    assert store.run("nightly/42").load(tag="good") == state(4)
    assert all(one.ok for one in store.verify(deep=True))
    with pytest.raises(RunDeletedError):
        store.run("gone").save({})


def erase(store: Store, run: str) -> None:
    """Take a run away as no operation does: without a tombstone."""
    core = store._core
    rows = core.call(core.storage.list(keys.objects_prefix(run))).rows
    core.call(core.storage.delete([*(row.key for row in rows), keys.manifest_key(run)]))


def move(file: io.BytesIO, source: Store | None, to: Store) -> None:
    for was_there in (False, True):
        file.seek(0)
        assert {one.was_there for one in to.import_(file)} == {was_there}
    assert all(one.ok for one in to.verify(deep=True))
    for seq in range(1, SAVES + 1):
        assert to.run("nightly/42").load(seq=seq) == state(seq)
    assert to.run("small").load() == {"rides": True}
    if source is not None:
        assert to.run("nightly/42").history() == source.run("nightly/42").history()
