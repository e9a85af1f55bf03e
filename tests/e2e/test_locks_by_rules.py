"""A lock and a storage class that an operator set, on real servers: by clients that know nothing of them.

What is there is looked at by the server's own client, never by the product.
"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import cloudckpt
from cloudckpt import keys
from cloudckpt.errors import StorageError, UnsupportedStoreError
from cloudckpt.retention import Retention
from cloudckpt.store import Store
from tests.e2e.test_forget_on_servers import ENGINES, make_bucket
from tests.servers.base import Server
from tests.servers.strip_proxy import StrippingProxy

RUN = "r"
BODY = random.Random(0).randbytes(50_000)  # so large that it does not ride
CLASS = "REDUCED_REDUNDANCY"  # the one that every server takes


def opened(server: Server, bucket: str, **options: Any) -> Store:
    return cloudckpt.open(f"s3://{bucket}", storage_options=server.storage_options(), **options)


def heads(server: Server, bucket: str) -> dict[str, Any]:
    """Return what the server says of each key."""
    client = server.client()
    rows = client.list_objects_v2(Bucket=bucket)["Contents"]
    return {row["Key"]: client.head_object(Bucket=bucket, Key=row["Key"]) for row in rows}


@pytest.mark.parametrize("engine", ENGINES)
def test_objects_of_a_client_that_knows_no_lock_are_locked(s3_server: Server, engine: str) -> None:
    """By the store's default rules; the pointer, the settings and what a probe leaves are not."""
    bucket = make_bucket(s3_server, lock=True)
    with opened(s3_server, bucket) as operator:
        operator.set_retention(Retention(keep_last=5, lock="governance:2d"))
    with opened(s3_server, bucket, engine=engine, keep_last=20) as store, store.run(RUN) as run:
        run.save({"step": 1, "image": BODY})
        run.save({"step": 2})
        run.once("work", lambda: BODY)
    found = heads(s3_server, bucket)
    objects = {key: head for key, head in found.items() if key.startswith(keys.OBJECTS)}
    assert len(objects) == 3
    for head in objects.values():
        assert head["ObjectLockMode"] == "GOVERNANCE"
        left = head["ObjectLockRetainUntilDate"] - datetime.now(UTC)
        assert timedelta(days=1, hours=23) < left < timedelta(days=2, hours=1)
    assert {keys.manifest_key(RUN), keys.SETTINGS_KEY} <= set(found)
    for key in set(found) - set(objects):
        assert "ObjectLockMode" not in found[key], key
    with opened(s3_server, bucket) as store:
        assert store.run(RUN).load() == {"step": 2}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operators_lock_of_a_run_holds_from_the_next_save_on(s3_server: Server, engine: str) -> None:
    """And the later end counts, whether it is the client's or the operator's."""
    bucket = make_bucket(s3_server, lock=True)
    with opened(s3_server, bucket, engine=engine, lock="governance:3d") as store, store.run(RUN) as run:
        run.save({"step": 1})
        with opened(s3_server, bucket) as operator:
            operator.run(RUN).retain(Retention(lock="governance:1d"))
        run.save({"step": 2})
        with opened(s3_server, bucket) as operator:
            operator.run(RUN).retain(Retention(lock="governance:9d"))
        before = set(heads(s3_server, bucket))
        run.save({"step": 3})
    days: dict[bool, set[int]] = {True: set(), False: set()}
    for key, head in heads(s3_server, bucket).items():
        if key.startswith(keys.OBJECTS):
            left = head["ObjectLockRetainUntilDate"] - datetime.now(UTC) + timedelta(hours=1)
            days[key in before].add(left.days)
    # The last save's payload is put once by the rules that were known, and once by those that are.
    assert days[True] == {3}
    assert 9 in days[False]


@pytest.mark.parametrize("engine", [*ENGINES, "obstore"])
def test_objects_are_in_the_rules_storage_class_and_pointers_are_not(s3_server: Server, engine: str) -> None:
    if engine == "obstore":
        pytest.importorskip("obstore")
    bucket = make_bucket(s3_server)
    with opened(s3_server, bucket) as operator:
        operator.set_retention(Retention(keep_last=5, storage_class=CLASS))
    with StrippingProxy(s3_server.endpoint, strip=()) as proxy:
        options = s3_server.through(proxy.endpoint).storage_options()
        with cloudckpt.open(f"s3://{bucket}", storage_options=options, engine=engine) as store:
            store.run(RUN).save({"image": BODY})
        sent = {
            one.path.partition("?")[0].removeprefix(f"/{bucket}/"): one.headers.get("x-amz-storage-class")
            for one in proxy.requests
            if one.method == "PUT"
        }
    objects = {key for key in sent if key.startswith(keys.OBJECTS)}
    assert len(objects) == 1
    assert {sent[key] for key in objects} == {CLASS}
    assert {sent[key] for key in set(sent) - objects} <= {None, "STANDARD"}
    [head] = [head for key, head in heads(s3_server, bucket).items() if key in objects]
    assert head["StorageClass"] == CLASS


def test_an_engine_that_sends_no_locks_writes_nothing(moto_server: Server) -> None:
    pytest.importorskip("obstore")
    bucket = make_bucket(moto_server, lock=True)
    with opened(moto_server, bucket) as operator:
        operator.set_retention(Retention(lock="governance:2d"))
    with (
        opened(moto_server, bucket, engine="obstore") as store,
        pytest.raises(UnsupportedStoreError, match="obstore can't send a lock"),
    ):
        store.run(RUN).save({"image": BODY})
    assert not [key for key in heads(moto_server, bucket) if key.startswith(("objects/", "manifests/"))]


def test_a_bucket_without_object_lock_is_told(s3_server: Server) -> None:
    with opened(s3_server, make_bucket(s3_server), retention=Retention(lock="governance:1d")) as store:
        with pytest.raises(StorageError, match="of the rules") as caught:
            store.run(RUN).save({"step": 1})
        assert caught.value.kind == "no-object-lock"
        assert store.run(RUN).load() is None


def test_google_and_azure_are_sent_the_rules_with_each_object_alone(
    fake_gcs_server: Server, azurite_server: Server
) -> None:
    rules = Retention(lock="compliance:1y", storage_class="COLD")
    with StrippingProxy(fake_gcs_server.endpoint, strip=()) as proxy:
        server = fake_gcs_server.through(proxy.endpoint)
        url = f"{server.url}/rules-{uuid.uuid4().hex}"
        with cloudckpt.open(url, storage_options=server.storage_options(), retention=rules) as store:
            store.run(RUN).save({"step": 1})
        bodies = [one.body for one in proxy.requests if one.path.startswith("/upload")]
    objects = [body for body in bodies if b"/objects/" in body.partition(b"\r\n\r\n")[2][:300]]
    assert len(objects) == 1
    for body in bodies:
        about = body.partition(b"octet-stream")[0]
        assert (b'"mode": "Locked"' in about) == (b'"storageClass": "COLD"' in about) == (body in objects)
    with StrippingProxy(azurite_server.endpoint, strip=()) as proxy:
        server = azurite_server.through(proxy.endpoint)
        url = f"{server.url}/rules-{uuid.uuid4().hex}"
        with cloudckpt.open(url, storage_options=server.storage_options(), retention=rules) as store:
            store.run(RUN).save({"step": 1})
        sent = {
            "/objects/" in one.path: (
                one.headers.get("x-ms-immutability-policy-mode"),
                one.headers.get("x-ms-access-tier"),
            )
            for one in proxy.requests
            if one.method == "PUT"
        }
    assert sent == {True: ("Locked", "Cold"), False: (None, None)}
