"""Google Cloud Storage by obstore, on fake-gcs-server behind a translator: it knows no XML interface.

So these show what the engine makes of the answers that the translator words. How
Google itself words them is in tests/unit/test_obstore_engine.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.testing.conformance import StorageConformance
from tests.conformance.test_runs_servers import ByObstore, OnServer
from tests.servers.base import Server


class TestObstoreStorageOnFakeGCS(StorageConformance):
    @pytest.fixture
    def make_storage(self, gcs_xml_server: Server) -> Callable[[], Storage]:
        options = gcs_xml_server.storage_options()
        return lambda: ObstoreStorage("gs", gcs_xml_server.bucket, "by-obstore", storage_options=options)


class TestRunsOnFakeGCSByObstore(ByObstore, OnServer):
    @pytest.fixture
    def server(self, gcs_xml_server: Server) -> Server:
        return gcs_xml_server
