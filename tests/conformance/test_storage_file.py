"""The storage contract on a folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.file import FileStorage
from cloudckpt.testing.conformance import StorageConformance


class TestFileStorage(StorageConformance):
    @pytest.fixture
    def make_storage(self, tmp_path: Path) -> Callable[[], Storage]:
        return partial(FileStorage, tmp_path / "store")
