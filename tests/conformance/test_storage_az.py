"""The storage contract on Azure's Blob service as Azurite speaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudckpt.storage.azure import AzureStorage
from cloudckpt.storage.contract import Storage
from cloudckpt.testing.conformance import StorageConformance
from tests.servers.base import Server


class TestAzureStorageOnAzurite(StorageConformance):
    @pytest.fixture
    def make_storage(self, azurite_server: Server) -> Callable[[], Storage]:
        return lambda: AzureStorage(
            azurite_server.bucket, "conformance", storage_options=azurite_server.storage_options()
        )
