"""The storage contract on S3 as SeaweedFS speaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.s3 import S3Storage
from cloudckpt.testing.conformance import StorageConformance
from tests.servers.base import Server


class TestS3StorageOnSeaweedFS(StorageConformance):
    lists_by_whole_key = False
    rounds = 3  # a lost race is answered after 1 to 5 s here

    @pytest.fixture
    def make_storage(self, seaweedfs_server: Server) -> Callable[[], Storage]:
        return lambda: S3Storage(
            seaweedfs_server.bucket, "conformance", storage_options=seaweedfs_server.storage_options()
        )
