"""Runs that are to be erased, and what is left of them in a bucket that keeps every version.

Owns: a run that wrote a bit of everything, and the fixture that lets no wait be a real one.
"""

from __future__ import annotations

import random

import pytest

from cloudckpt import keys, runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.versions import Version
from cloudckpt.store import Store
from tests.protocol.scripted import no_sleep
from tests.protocol.versioned import VersionedMemory

RUN, WHY = "r", "a request under the law"
SECRET = random.Random(0).randbytes(50_000)  # so large that it does not ride


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_sleep", no_sleep)


def opened(engine: Storage) -> Store:
    return Store(lambda: engine, keep_last=2, timeout=2)


def filled(engine: Storage, run: str = RUN) -> Store:
    """Let a run write a bit of everything: small and large payloads, expiry, a tag."""
    store = opened(engine)
    with store.run(run) as one:
        for step in range(6):
            one.save({"step": step, "image": SECRET if step % 2 else b"small"})
            if step == 3:
                one.tag("kept")
    return store


def left_of(engine: VersionedMemory, run: str = RUN) -> list[str]:
    return [row.key for row in engine.rows(keys.objects_prefix(run))]


def rows_of(engine: VersionedMemory, run: str) -> list[Version]:
    own = [row for row in engine.rows() if row.key == keys.manifest_key(run)]
    return own + engine.rows(keys.objects_prefix(run))
