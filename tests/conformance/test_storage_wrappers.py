"""The storage contract through each wrapper: one that adds nothing here may change nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.runner import make_runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy
from cloudckpt.testing.conformance import StorageConformance
from cloudckpt.testing.faults import FaultyStorage

EFFECTS = make_runner(blocking=True, clock=SystemClock()).effects


class TestFaultyStorage(StorageConformance):
    @pytest.fixture
    def make_storage(self) -> Callable[[], Storage]:
        return lambda: FaultyStorage(MemoryStorage("faulty"))


class TestRetryingStorage(StorageConformance):
    @pytest.fixture
    def make_storage(self) -> Callable[[], Storage]:
        return lambda: RetryingStorage(MemoryStorage("retrying"), RetryPolicy(), EFFECTS)


class TestLatencyStorage(StorageConformance):
    @pytest.fixture
    def make_storage(self) -> Callable[[], Storage]:
        return lambda: LatencyStorage(MemoryStorage("latency"), 0.0, EFFECTS)
