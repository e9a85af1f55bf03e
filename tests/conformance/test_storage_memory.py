"""The storage contract on the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.conformance import StorageConformance


class TestMemoryStorage(StorageConformance):
    @pytest.fixture
    def make_storage(self) -> Callable[[], Storage]:
        return partial(MemoryStorage, "conformance")
