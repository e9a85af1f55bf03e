"""The storage contract on Google Cloud Storage as fake-gcs-server speaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.gcs import GCSStorage
from cloudckpt.testing.conformance import StorageConformance
from tests.servers.base import Server


class TestGCSStorageOnFakeGCS(StorageConformance):
    """What the emulator leaves out is in tests/unit/test_gcs_errors.py: refusals, and one write a second.

    Nor does it tell a read of a missing bucket from one of a missing object, or know
    `ifGenerationNotMatch`: see tests/unit/test_changed.py.
    """

    brings_nothing = False

    @pytest.fixture
    def make_storage(self, fake_gcs_server: Server) -> Callable[[], Storage]:
        return lambda: GCSStorage(
            fake_gcs_server.bucket, "conformance", storage_options=fake_gcs_server.storage_options()
        )
