"""The storage contract on S3 as MinIO speaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.s3 import S3Storage
from cloudckpt.testing.conformance import StorageConformance
from tests.servers.base import Server


class TestS3StorageOnMinIO(StorageConformance):
    @pytest.fixture
    def make_storage(self, minio_server: Server) -> Callable[[], Storage]:
        return lambda: S3Storage(
            minio_server.bucket, "conformance", storage_options=minio_server.storage_options()
        )
