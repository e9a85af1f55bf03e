"""The storage contract on S3 by botocore alone, on each server that speaks it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.testing.conformance import StorageConformance
from tests.servers.base import Server


def on(server: Server) -> Callable[[], Storage]:
    return partial(Boto3Storage, server.bucket, "by-boto3", storage_options=server.storage_options())


class TestBoto3StorageOnMinIO(StorageConformance):
    @pytest.fixture
    def make_storage(self, minio_server: Server) -> Callable[[], Storage]:
        return on(minio_server)


class TestBoto3StorageOnSeaweedFS(StorageConformance):
    lists_by_whole_key = False
    rounds = 3  # a lost race is answered after 1 to 5 s here

    @pytest.fixture
    def make_storage(self, seaweedfs_server: Server) -> Callable[[], Storage]:
        return on(seaweedfs_server)


class TestBoto3StorageOnMoto(StorageConformance):
    @pytest.fixture
    def make_storage(self, moto_server: Server) -> Callable[[], Storage]:
        return on(moto_server)
