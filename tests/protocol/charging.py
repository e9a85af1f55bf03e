"""A run whose agent pays: what was paid is known outside of the store, too."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cloudckpt.run import Run
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store

RUN = "r"
_names = itertools.count()


class Shop:
    """A store in memory, and the world outside, which knows how often it was charged."""

    def __init__(self) -> None:
        self.inner = MemoryStorage(f"once-{next(_names)}")
        self.charged: list[tuple[int, str]] = []
        self.store = self.open()

    def open(self, storage: Any = None) -> Store:
        return Store(lambda: storage or self.inner, timeout=1)

    def charge(self, order: int, idempotency_key: str) -> dict[str, int]:
        self.charged.append((order, idempotency_key))
        return {"paid": order}

    def run(self) -> Run:
        return self.open().run(RUN)


@pytest.fixture
def shop() -> Shop:
    return Shop()
