"""Erasing a run on real servers: with versions, delete markers, snapshots, locks and legal holds.

What is there is looked at by the server's own client, never by the product.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

import cloudckpt
from cloudckpt import keys
from cloudckpt.errors import RunDeletedError
from cloudckpt.storage import s3_beside
from cloudckpt.store import Store
from tests.servers import fake_gcs
from tests.servers.base import Server

RUN, WHY = "r", "a request under the law"
BODY = random.Random(0).randbytes(50_000)  # so large that it does not ride
ENGINES = ["s3fs", "boto3"]


def fill(store: Store) -> None:
    """Let a run write small and large payloads, of which some expire."""
    with store.run(RUN) as run:
        for step in range(4):
            run.save({"step": step, "image": BODY if step % 2 else b"small"})


def make_bucket(server: Server, *, lock: bool = False) -> str:
    """Return a new bucket that keeps versions."""
    bucket, client = f"kept-{uuid.uuid4().hex[:12]}", server.client()
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=lock)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket


def s3_rows(server: Server, bucket: str) -> list[dict[str, Any]]:
    """Return every version and marker of a bucket, the store's own documents aside."""
    answer = server.client().list_object_versions(Bucket=bucket)
    rows = answer.get("Versions", []) + answer.get("DeleteMarkers", [])
    return [row for row in rows if row["Key"].partition("/")[0] in ("manifests", "objects")]


@pytest.mark.parametrize("engine", ENGINES)
def test_s3_keeps_no_version_but_the_tombstone(s3_server: Server, engine: str) -> None:
    bucket = make_bucket(s3_server)
    options = s3_server.storage_options()
    with cloudckpt.open(f"s3://{bucket}", storage_options=options, engine=engine, keep_last=1) as store:
        fill(store)
        store.delete(RUN)
        before = s3_rows(s3_server, bucket)
        assert any(row["Size"] > 50_000 for row in before if "Size" in row), "or there is nothing to erase"
        assert len([row for row in before if row["Key"] == keys.manifest_key(RUN)]) > 4
        receipt = store.forget(RUN, why=WHY)
        with pytest.raises(RunDeletedError):
            store.run(RUN).save({})
    [row] = s3_rows(s3_server, bucket)
    assert (row["Key"], row["IsLatest"]) == (keys.manifest_key(RUN), True)
    assert BODY not in s3_server.client().get_object(Bucket=bucket, Key=row["Key"])["Body"].read()
    assert receipt.complete
    assert receipt.versions == "looked at"
    assert receipt.values + receipt.markers == len(before) - 1
    assert receipt.size == sum(one.get("Size", 0) for one in before) - row["Size"]


@pytest.mark.parametrize("engine", ENGINES)
def test_s3_without_versions_is_erased_too(s3_server: Server, engine: str) -> None:
    url = f"{s3_server.url}/forget-{uuid.uuid4().hex}"
    options = s3_server.storage_options()
    with cloudckpt.open(url, storage_options=options, engine=engine, keep_last=1) as store:
        fill(store)
        receipt = store.forget(RUN, why=WHY)
    assert receipt.complete
    assert receipt.left == ()
    assert receipt.values >= 1
    prefix = url.removeprefix(f"{s3_server.url}/")
    rows = s3_server.client().list_objects_v2(Bucket=s3_server.bucket, Prefix=prefix)["Contents"]
    kept = [row["Key"].removeprefix(f"{prefix}/") for row in rows]
    assert [key for key in kept if key.partition("/")[0] != keys.STORE_KEY] == [keys.manifest_key(RUN)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["governance", "compliance"])
def test_the_receipt_names_what_object_lock_keeps(s3_server: Server, engine: str, mode: str) -> None:
    bucket = make_bucket(s3_server, lock=True)
    options = s3_server.storage_options()
    url = f"s3://{bucket}"
    with cloudckpt.open(url, storage_options=options, engine=engine, keep_last=1, lock=f"{mode}:2d") as store:
        fill(store)
        before = s3_rows(s3_server, bucket)
        receipt = store.forget(RUN, why=WHY)
        again = store.forget(RUN, why=WHY)
    locked = {row["Key"] for row in before if row["Key"].startswith("objects/")}
    assert len(locked) == 4, "each payload is an object, however small: what rides is not locked"
    assert not receipt.complete
    assert {one.row.key for one in receipt.left} == locked
    for one in receipt.left:
        assert one.kind == "retained"
        assert mode in one.why
        assert one.until is not None
        assert timedelta(days=1, hours=23) < one.until - datetime.now(UTC) < timedelta(days=2, hours=1)
    assert {one.row.version for one in again.left} == {one.row.version for one in receipt.left}
    after = s3_rows(s3_server, bucket)
    assert {row["VersionId"] for row in after if row["Key"].startswith("objects/") and "Size" in row} == {
        one.row.version for one in receipt.left
    }
    pointers = [row for row in after if row["Key"].startswith("manifests/")]
    assert len(pointers) == 1, "old pointers are not locked, and are gone"
    current = s3_server.client().list_objects_v2(Bucket=bucket, Prefix="objects/")
    assert current["KeyCount"] == 0, "what stays is hidden from readers by a marker"
    markers = [row for row in after if "Size" not in row]
    assert len(markers) == len(locked), "one each, and not one more for each call"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_legal_hold_of_the_stores_is_named(s3_server: Server, engine: str) -> None:
    bucket, client = make_bucket(s3_server, lock=True), s3_server.client()
    options = s3_server.storage_options()
    with cloudckpt.open(f"s3://{bucket}", storage_options=options, engine=engine) as store:
        fill(store)
        [key, *_] = sorted(row["Key"] for row in s3_rows(s3_server, bucket) if "objects/" in row["Key"])
        client.put_object_legal_hold(Bucket=bucket, Key=key, LegalHold={"Status": "ON"})
        receipt = store.forget(RUN, why=WHY)
        assert [(one.row.key, one.kind) for one in receipt.left] == [(key, "retained")]
        assert "legal hold" in receipt.left[0].why
        version = receipt.left[0].row.version
        client.put_object_legal_hold(Bucket=bucket, Key=key, VersionId=version, LegalHold={"Status": "OFF"})
        assert store.forget(RUN, why=WHY).complete
    assert [row["Key"] for row in s3_rows(s3_server, bucket)] == [keys.manifest_key(RUN)]


def test_more_versions_than_a_page_holds(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing goes on behind its first page, whose rows are being erased."""
    monkeypatch.setattr(s3_beside, "PAGE_ROWS", 3)
    monkeypatch.setattr(s3_beside, "ERASE_BATCH", 2)
    bucket, options = make_bucket(s3_server), s3_server.storage_options()
    with cloudckpt.open(f"s3://{bucket}", storage_options=options, keep_last=1) as store:
        fill(store)
        store.delete(RUN)
        before = s3_rows(s3_server, bucket)
        receipt = store.forget(RUN, why=WHY)
    assert len(before) > 7
    assert receipt.complete
    assert receipt.values + receipt.markers == len(before) - 1
    assert len(s3_rows(s3_server, bucket)) == 1


def test_a_default_retention_of_the_bucket_is_told(minio_server: Server) -> None:
    """It keeps old pointers as well, with the payloads that rode in them."""
    bucket, client = make_bucket(minio_server, lock=True), minio_server.client()
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}
    client.put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    with cloudckpt.open(f"s3://{bucket}", storage_options=minio_server.storage_options()) as store:
        fill(store)
        receipt = store.forget(RUN, why=WHY)
    kept = [one for one in receipt.left if one.row.key == keys.manifest_key(RUN)]
    assert len(kept) >= 4
    assert not receipt.complete
    tombstone = client.get_object(Bucket=bucket, Key=keys.manifest_key(RUN))["Body"].read()
    assert b'"status":"deleted"' in tombstone


def test_obstore_says_that_it_did_not_look(minio_server: Server) -> None:
    pytest.importorskip("obstore")
    bucket, options = make_bucket(minio_server), minio_server.storage_options()
    with cloudckpt.open(f"s3://{bucket}", storage_options=options, engine="obstore") as store:
        fill(store)
        receipt = store.forget(RUN, why=WHY)
    assert not receipt.complete
    assert "not looked at" in receipt.versions
    assert "s3fs" in receipt.versions
    with cloudckpt.open(f"s3://{bucket}", storage_options=options) as store:
        assert store.forget(RUN, why=WHY).complete
    assert len(s3_rows(minio_server, bucket)) == 1


# ---- Google and Azure


def gcs_rows(server: Server, bucket: str) -> list[dict[str, Any]]:
    answer = requests.get(f"{server.endpoint}/storage/v1/b/{bucket}/o?versions=true", timeout=10).json()
    return [
        row for row in answer.get("items", []) if row["name"].partition("/")[0] in ("manifests", "objects")
    ]


@pytest.fixture
def newer_gcs() -> Iterator[Server]:
    """fake-gcs-server 1.56: an older one deletes the newest generation whichever is named."""
    if not fake_gcs.built().exists():
        pytest.skip("no fake-gcs-server 1.56 was built here; Google's answers are scripted elsewhere")
    server = fake_gcs.start(fake_gcs.built())
    yield server
    server.stop()


def test_google_keeps_no_generation_but_the_tombstone(newer_gcs: Server) -> None:
    bucket = f"kept-{uuid.uuid4().hex[:12]}"
    body = {"name": bucket, "versioning": {"enabled": True}}
    made = requests.post(f"{newer_gcs.endpoint}/storage/v1/b", json=body, timeout=10)
    assert made.ok
    options = newer_gcs.storage_options()
    with cloudckpt.open(f"gs://{bucket}", storage_options=options, keep_last=2) as store:
        fill(store)
        before = gcs_rows(newer_gcs, bucket)
        assert len([row for row in before if "timeDeleted" in row]) >= 4
        receipt = store.forget(RUN, why=WHY)
    after = gcs_rows(newer_gcs, bucket)
    assert [(row["name"], "timeDeleted" in row) for row in after] == [(keys.manifest_key(RUN), False)]
    assert receipt.complete
    assert receipt.versions == "looked at"
    assert receipt.values == len(before)  # the tombstone is one more, and stays


def test_azure_keeps_no_snapshot(azurite_server: Server) -> None:
    """Azurite keeps no versions, so of those the answers are scripted elsewhere; snapshots it has."""
    prefix = f"forget-{uuid.uuid4().hex}"
    container = azurite_server.client().get_container_client(azurite_server.bucket)
    with cloudckpt.open(
        f"{azurite_server.url}/{prefix}", storage_options=azurite_server.storage_options(), keep_last=2
    ) as store:
        fill(store)
        for blob in list(container.list_blobs(name_starts_with=f"{prefix}/objects/")):
            container.get_blob_client(blob.name).create_snapshot()
        container.get_blob_client(f"{prefix}/{keys.manifest_key(RUN)}").create_snapshot()
        receipt = store.forget(RUN, why=WHY)
    rows = list(container.list_blobs(name_starts_with=f"{prefix}/", include=["snapshots", "versions"]))
    kept = [row for row in rows if keys.STORE_KEY not in row.name]
    assert [(row.name, row.snapshot) for row in kept] == [(f"{prefix}/{keys.manifest_key(RUN)}", None)]
    assert receipt.complete
    assert receipt.versions == "looked at"


# ---- locks while a run lives


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lock_is_on_each_object_and_on_no_pointer(s3_server: Server, engine: str) -> None:
    """What expired is deleted by key, which on a bucket with versions leaves a marker: saves go on."""
    bucket, client = make_bucket(s3_server, lock=True), s3_server.client()
    options = s3_server.storage_options()
    with cloudckpt.open(
        f"s3://{bucket}", storage_options=options, engine=engine, keep_last=1, lock="governance:30d"
    ) as store:
        fill(store)
        assert store.run(RUN).load() == {"step": 3, "image": BODY}
        assert len(store.run(RUN).history()) == 1
    for row in s3_rows(s3_server, bucket):
        if "Size" not in row:
            continue
        head = client.head_object(Bucket=bucket, Key=row["Key"], VersionId=row["VersionId"])
        if row["Key"].startswith("objects/"):
            assert head["ObjectLockMode"] == "GOVERNANCE"
            left = head["ObjectLockRetainUntilDate"] - datetime.now(UTC)
            assert timedelta(days=29) < left <= timedelta(days=30)
        else:
            assert "ObjectLockMode" not in head
    values = [row for row in s3_rows(s3_server, bucket) if "Size" in row and "objects/" in row["Key"]]
    assert len({row["Key"] for row in values}) == 4, "those that expired are still there"
