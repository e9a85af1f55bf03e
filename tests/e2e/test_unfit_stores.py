"""A store that does not keep conditional writes is refused before a run begins on it, on every cloud.

It answers 200 to everything, so nothing else would tell: the last writer wins, and
the steps of the other are gone. Some gateways and emulators are like that.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.doctor import examine
from cloudckpt.errors import UnsupportedStoreError
from cloudckpt.runner import make_runner
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.findings import Level
from cloudckpt.store import Store
from tests.servers.base import Server, free_ports
from tests.servers.strip_proxy import StrippingProxy


def refused(make: Callable[[], Storage]) -> dict[str, Level]:
    """See a run refused there; return what the doctor says of the store, by check."""
    with Store(make) as store:
        with pytest.raises(UnsupportedStoreError):
            store.run("r").save({"step": 1})
        assert list(store.runs()) == []
    engine = make()
    runner = make_runner(blocking=engine.blocking, clock=SystemClock())
    report = runner.call(examine(engine, runner.effects))
    left = [row.key for row in runner.call(engine.list("")).rows]
    runner.call(engine.close())
    assert left == []
    return {finding.check: finding.level for finding in report.findings}


@pytest.fixture
def open_bucket(minio_server: Server) -> str:
    """A bucket for everybody: a signature would cover the conditions that the proxy takes off."""
    name = f"open-{uuid.uuid4().hex[:12]}"
    client = minio_server.client()
    client.create_bucket(Bucket=name)
    allow = {"Effect": "Allow", "Principal": "*", "Action": ["s3:*"]}
    policy = {
        "Version": "2012-10-17",
        "Statement": [{**allow, "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]}],
    }
    client.put_bucket_policy(Bucket=name, Policy=json.dumps(policy))
    return name


@pytest.mark.parametrize("engine", ["s3fs", "boto3"])
def test_an_s3_gateway_that_drops_conditions_is_refused(
    minio_server: Server, open_bucket: str, engine: str
) -> None:
    from cloudckpt.storage.s3 import S3Storage
    from cloudckpt.storage.s3_boto3 import Boto3Storage

    kind = {"s3fs": S3Storage, "boto3": Boto3Storage}[engine]
    with StrippingProxy(minio_server.endpoint) as proxy:
        options = {
            **minio_server.through(proxy.endpoint).storage_options(),
            "anon": True,
            "key": None,
            "secret": None,
        }
        told = refused(lambda: kind(open_bucket, "agents", storage_options=options))
        assert any("If-None-Match" in request.headers for request in proxy.requests)
    assert told["conditions"] is Level.FAULT


def test_a_google_gateway_that_drops_conditions_is_refused(fake_gcs_server: Server) -> None:
    from cloudckpt.storage.gcs import GCSStorage

    with StrippingProxy(fake_gcs_server.endpoint) as proxy:
        options = fake_gcs_server.through(proxy.endpoint).storage_options()
        prefix = f"unfit-{uuid.uuid4().hex}"
        told = refused(lambda: GCSStorage(fake_gcs_server.bucket, prefix, storage_options=options))
        assert any("ifGenerationMatch" in request.path for request in proxy.requests)
    assert told["conditions"] is Level.FAULT


def test_an_azure_gateway_that_drops_conditions_is_refused(azurite_server: Server) -> None:
    """By a shared access signature, which covers no headers."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    from cloudckpt.storage.azure import AzureStorage

    account = azurite_server.access_key
    signature = generate_account_sas(
        account,
        azurite_server.secret_key,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True),
        datetime.now(UTC) + timedelta(hours=1),
    )
    with StrippingProxy(azurite_server.endpoint) as proxy:
        endpoint = f"BlobEndpoint={proxy.endpoint}/{account}"
        options = {"connection_string": f"{endpoint};SharedAccessSignature={signature}"}
        prefix = f"unfit-{uuid.uuid4().hex}"
        told = refused(lambda: AzureStorage(azurite_server.bucket, prefix, storage_options=options))
        assert any("If-None-Match" in request.headers for request in proxy.requests)
    assert told["conditions"] is Level.FAULT


@pytest.fixture
def emulator() -> Iterator[dict[str, Any]]:
    """gcp-storage-emulator, which ignores every precondition."""
    emulated = pytest.importorskip(
        "gcp_storage_emulator.server", reason="no program: pip install gcp-storage-emulator"
    )
    [port] = free_ports(1)
    server = emulated.create_server("127.0.0.1", port, in_memory=True, default_bucket="emulated")
    server.start()
    yield {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon", "project": "p"}
    server.stop()


def test_an_emulator_that_ignores_conditions_is_refused(emulator: dict[str, Any]) -> None:
    from cloudckpt.storage.gcs import GCSStorage

    told = refused(lambda: GCSStorage("emulated", "agents", storage_options=emulator))
    assert told["conditions"] is Level.FAULT
