"""A run on a store whose writes wait at a gate, on an engine that blocks and on one that suspends.

Owns: the fixtures, and what is durable at a moment, as another process sees it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from cloudckpt import CheckpointInfo, Pending
from cloudckpt.run import Run
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.protocol.gated import WAIT, Gated


@pytest.fixture(params=["blocking", "suspending"])
def storage(request: pytest.FixtureRequest) -> Iterator[Gated]:
    storage = Gated(blocking=request.param == "blocking")
    yield storage
    storage.open()
    gc.collect()


@pytest.fixture
def store(storage: Gated) -> Store:
    return Store(lambda: storage, probed=True, timeout=0.0)


def elsewhere(storage: Gated) -> Run:
    """Return the run as another process has it."""
    inner = MemoryStorage(storage.url.removeprefix("memory://"))
    return Store(lambda: inner, probed=True).run("r")


def states(storage: Gated) -> list[Any]:
    """Return what is durable now, oldest first."""
    run = elsewhere(storage)
    return [run.load(seq=info.seq) for info in reversed(run.history())]


def durable(saved: CheckpointInfo | Pending) -> CheckpointInfo:
    return saved.wait(WAIT) if isinstance(saved, Pending) else saved
