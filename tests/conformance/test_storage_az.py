"""The storage contract on Azure's Blob service as Azurite speaks it."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from cloudckpt.errors import PreconditionFailedError
from cloudckpt.storage.azure import READ_BYTES, UPLOAD_BYTES, AzureStorage
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.testing.conformance import StorageConformance
from cloudckpt.testing.driver import Client
from tests.servers.base import Server


class TestAzureStorageOnAzurite(StorageConformance):
    """What the emulator leaves out is in tests/unit/test_azure_errors.py: refusals, throttling, folders."""

    @pytest.fixture
    def make_storage(self, azurite_server: Server) -> Callable[[], Storage]:
        return lambda: AzureStorage(
            azurite_server.bucket, "conformance", storage_options=azurite_server.storage_options()
        )

    def test_a_value_of_many_parts_is_one_write_on_one_condition(self, client: Client, at: str) -> None:
        """Azure's library sends it as blocks, and the condition goes with their list or is lost."""
        value = secrets.token_bytes(2**16) * (UPLOAD_BYTES // 2**16 + 1)
        token = client.create(f"{at}k", value)
        with pytest.raises(PreconditionFailedError):
            client.create(f"{at}k", value[::-1])
        changed = client.replace(f"{at}k", value[::-1], token)
        with pytest.raises(PreconditionFailedError):
            client.replace(f"{at}k", value, token)
        stored = client.read(f"{at}k")
        assert stored is not None
        assert (stored.token, stored.data == value[::-1]) == (changed, True)
        part = client.value(f"{at}k", offset=5, length=READ_BYTES + 7)
        assert part == value[::-1][5 : READ_BYTES + 12]


class TestObstoreStorageOnAzurite(StorageConformance):
    @pytest.fixture
    def make_storage(self, azurite_server: Server) -> Callable[[], Storage]:
        options = azurite_server.storage_options()
        return lambda: ObstoreStorage("az", azurite_server.bucket, "by-obstore", storage_options=options)
