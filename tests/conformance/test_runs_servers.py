"""Stores and runs on every server, by every engine."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

import cloudckpt
from cloudckpt.store import Store
from cloudckpt.testing.runs import RunConformance
from tests.servers.base import Server

PLACE = secrets.token_hex(4)


class OnServer(RunConformance):
    """A subclass gives the fixture `server`, and may name another engine than the first."""

    engine: str | None = None

    @pytest.fixture
    def url(self, server: Server) -> str:
        return f"{server.url}/{PLACE}-{self.engine}"

    @pytest.fixture
    def make_store(self, url: str, server: Server) -> Callable[..., Store]:
        return lambda **options: cloudckpt.open(
            url, storage_options=server.storage_options(), engine=self.engine, **options
        )

    @pytest.fixture
    def recipe(self, url: str, server: Server) -> tuple[str, str]:
        options = f"storage_options={server.storage_options()!r}, engine={self.engine!r}"
        return f"open_store({url!r}, {options})", ""


class TestRunsOnMoto(OnServer):
    @pytest.fixture
    def server(self, moto_server: Server) -> Server:
        return moto_server


class TestRunsOnSeaweedFS(OnServer):
    @pytest.fixture
    def server(self, seaweedfs_server: Server) -> Server:
        return seaweedfs_server


class TestRunsOnMinIO(OnServer):
    @pytest.fixture
    def server(self, minio_server: Server) -> Server:
        return minio_server


class TestRunsOnMinIOByBoto3(TestRunsOnMinIO):
    engine = "boto3"

    @pytest.fixture
    def recipe(self, url: str, server: Server) -> tuple[str, str]:
        # urllib3 leaves the socket of its last connection to the garbage collector, which says so.
        quiet = "import warnings; warnings.simplefilter('ignore', ResourceWarning)"
        options = f"storage_options={server.storage_options()!r}, engine={self.engine!r}"
        return f"open_store({url!r}, {options})", quiet


class ByObstore:
    """obstore's own threads do not survive a fork; `test_obstore_engine.py` shows that the engine says so."""

    engine = "obstore"

    @pytest.mark.skip(reason="obstore's threads do not survive a fork; the engine refuses with advice")
    def test_a_forked_child_is_a_writer_of_its_own(self) -> None: ...

    @pytest.mark.skip(reason="obstore's threads do not survive a fork; the engine refuses with advice")
    def test_a_forked_child_has_a_loop_of_its_own(self) -> None: ...


class TestRunsOnMinIOByObstore(ByObstore, TestRunsOnMinIO):
    pass


class TestRunsOnFakeGCS(OnServer):
    @pytest.fixture
    def server(self, fake_gcs_server: Server) -> Server:
        return fake_gcs_server


class TestRunsOnAzurite(OnServer):
    @pytest.fixture
    def server(self, azurite_server: Server) -> Server:
        return azurite_server


class TestRunsOnAzuriteByObstore(ByObstore, TestRunsOnAzurite):
    pass
