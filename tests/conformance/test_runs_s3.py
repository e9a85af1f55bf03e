"""Stores and runs on S3, as moto, SeaweedFS and MinIO speak it."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

import cloudckpt
from cloudckpt.store import Store
from cloudckpt.testing.runs import RunConformance
from tests.servers.base import Server

PLACE = secrets.token_hex(4)


class OnS3(RunConformance):
    """A subclass gives the fixture `server`."""

    @pytest.fixture
    def url(self, server: Server) -> str:
        return f"{server.url}/{PLACE}"

    @pytest.fixture
    def make_store(self, url: str, server: Server) -> Callable[..., Store]:
        return lambda **options: cloudckpt.open(url, storage_options=server.storage_options(), **options)

    @pytest.fixture
    def recipe(self, url: str, server: Server) -> tuple[str, str]:
        return f"open_store({url!r}, storage_options={server.storage_options()!r})", ""


class TestRunsOnMoto(OnS3):
    @pytest.fixture
    def server(self, moto_server: Server) -> Server:
        return moto_server


class TestRunsOnSeaweedFS(OnS3):
    @pytest.fixture
    def server(self, seaweedfs_server: Server) -> Server:
        return seaweedfs_server


class TestRunsOnMinIO(OnS3):
    @pytest.fixture
    def server(self, minio_server: Server) -> Server:
        return minio_server
