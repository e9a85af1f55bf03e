"""The storage contract on S3 by obstore, on each server that speaks it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.testing.conformance import StorageConformance
from tests.servers.base import Server


def on(server: Server) -> Callable[[], Storage]:
    return partial(
        ObstoreStorage, "s3", server.bucket, "by-obstore", storage_options=server.storage_options()
    )


class TestObstoreStorageOnMinIO(StorageConformance):
    @pytest.fixture
    def make_storage(self, minio_server: Server) -> Callable[[], Storage]:
        return on(minio_server)


class TestObstoreStorageOnSeaweedFS(StorageConformance):
    lists_by_whole_key = False
    rounds = 3  # a lost race is answered after 1 to 5 s here

    @pytest.fixture
    def make_storage(self, seaweedfs_server: Server) -> Callable[[], Storage]:
        return on(seaweedfs_server)


class TestObstoreStorageOnMoto(StorageConformance):
    @pytest.fixture
    def make_storage(self, moto_server: Server) -> Callable[[], Storage]:
        return on(moto_server)
