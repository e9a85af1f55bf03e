"""Objects in an archive on real servers: written there, refused, asked for, read."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

import cloudckpt
from cloudckpt.errors import ArchivedError, StorageError, UnsupportedStoreError
from cloudckpt.storage.cold import Warmth
from cloudckpt.store import Store
from tests.servers.base import Server
from tests.servers.strip_proxy import StrippingProxy

RUN = "r"
BODY = random.Random(0).randbytes(50_000)  # so large that it does not ride
STATE = {"image": BODY}


def opened(server: Server, **options: Any) -> Store:
    url = f"{server.url}/cold-{uuid.uuid4().hex}"
    return cloudckpt.open(url, storage_options=server.storage_options(), **options)


@pytest.mark.parametrize("engine", ["s3fs", "boto3"])
@pytest.mark.parametrize("storage_class", ["GLACIER", "DEEP_ARCHIVE"])
def test_a_checkpoint_in_glacier_is_asked_for_and_read(
    moto_server: Server, engine: str, storage_class: str
) -> None:
    with opened(moto_server, engine=engine, storage_class=storage_class) as store:
        run = store.run(RUN)
        run.save(STATE)
        with pytest.raises(ArchivedError) as caught:
            store.run(RUN).load()
        assert (caught.value.facts["run"], caught.value.facts["seq"]) == (RUN, 1)
        assert "objects/r/1-" in caught.value.facts["key"]
        found = run.restore(seq=1, days=1, wait=True)
        assert found.ready
        assert set(found.objects.values()) == {Warmth.WARM}
        assert store.run(RUN).load() == STATE


def test_obstore_reads_what_was_asked_for_by_another_engine(moto_server: Server) -> None:
    pytest.importorskip("obstore")
    with opened(moto_server, engine="obstore", storage_class="GLACIER") as store:
        store.run(RUN).save(STATE)
        with pytest.raises(ArchivedError) as caught:
            store.run(RUN).load()
        assert caught.value.facts["seq"] == 1
        with pytest.raises(UnsupportedStoreError, match="boto3"):
            store.run(RUN).restore()
        with cloudckpt.open(store.url, storage_options=moto_server.storage_options()) as other:
            assert other.run(RUN).restore(wait=True).ready
        assert store.run(RUN).load() == STATE


@pytest.mark.parametrize("engine", ["adlfs", "obstore"])
def test_a_checkpoint_in_azures_archive_is_told(azurite_server: Server, engine: str) -> None:
    with opened(azurite_server, engine=engine, storage_class="Archive") as store:
        store.run(RUN).save(STATE)
        with pytest.raises(ArchivedError) as caught:
            store.run(RUN).load()
        assert (caught.value.facts["run"], caught.value.facts["seq"]) == (RUN, 1)
        with cloudckpt.open(store.url, storage_options=azurite_server.storage_options()) as other:
            assert other.run(RUN).restore(tier="expedited", wait=True).ready
        assert store.run(RUN).load() == STATE


def test_google_needs_no_restore(fake_gcs_server: Server) -> None:
    with opened(fake_gcs_server, storage_class="ARCHIVE") as store:
        store.run(RUN).save(STATE)
        assert store.run(RUN).restore().ready
        assert store.run(RUN).load() == STATE


# ---- what is sent


@pytest.mark.parametrize(
    ("kind", "engine", "word", "storage_class"),
    [
        ("moto", "s3fs", "x-amz-storage-class", "STANDARD_IA"),
        ("moto", "boto3", "x-amz-storage-class", "STANDARD_IA"),
        ("moto", "obstore", "x-amz-storage-class", "STANDARD_IA"),
        ("azurite", "adlfs", "x-ms-access-tier", "Cool"),
        ("azurite", "obstore", "x-ms-access-tier", "Cool"),
    ],
)
def test_a_class_is_sent_with_each_object_and_with_no_pointer(
    request: pytest.FixtureRequest, kind: str, engine: str, word: str, storage_class: str
) -> None:
    if engine == "obstore":
        pytest.importorskip("obstore")
    server: Server = request.getfixturevalue(f"{kind}_server")
    with (
        StrippingProxy(server.endpoint, strip=()) as proxy,
        opened(server.through(proxy.endpoint), engine=engine, storage_class=storage_class) as store,
    ):
        store.run(RUN).save(STATE)
        sent = [(one.path, one.headers.get(word)) for one in proxy.requests if one.method == "PUT"]
    objects = [given for path, given in sent if "/objects/" in path]
    assert objects
    assert set(objects) == {storage_class}
    others = {given for path, given in sent if "/objects/" not in path}
    assert others <= {None, "STANDARD"}


def test_googles_class_and_lock_are_in_the_document_of_each_object_alone(fake_gcs_server: Server) -> None:
    with (
        StrippingProxy(fake_gcs_server.endpoint, strip=()) as proxy,
        opened(
            fake_gcs_server.through(proxy.endpoint), storage_class="NEARLINE", lock="compliance:1y"
        ) as store,
    ):
        store.run(RUN).save({"small": 1})
        uploads = [one.body for one in proxy.requests if one.path.startswith("/upload")]
    objects = [body for body in uploads if b"/objects/" in body.partition(b"\r\n\r\n")[2][:300]]
    assert len(objects) == 1, "a small payload is an object too, since what rides is not locked"
    assert b'"storageClass": "NEARLINE"' in objects[0]
    assert b'"mode": "Locked"' in objects[0]
    for body in uploads:
        assert (b"retention" in body.partition(b"octet-stream")[0]) == (body in objects)


def test_azures_lock_is_sent_with_each_object_alone(azurite_server: Server) -> None:
    with (
        StrippingProxy(azurite_server.endpoint, strip=()) as proxy,
        opened(azurite_server.through(proxy.endpoint), lock="governance:10d") as store,
    ):
        store.run(RUN).save({"small": 1})
        sent = [one for one in proxy.requests if one.method == "PUT"]
    modes = {"/objects/" in one.path: one.headers.get("x-ms-immutability-policy-mode") for one in sent}
    assert modes == {True: "Unlocked", False: None}


@pytest.mark.parametrize("engine", ["s3fs", "boto3"])
def test_a_bucket_without_object_lock_is_told(s3_server: Server, engine: str) -> None:
    with (
        opened(s3_server, engine=engine, lock="governance:1d") as store,
        pytest.raises(StorageError) as caught,
    ):
        store.run(RUN).save(STATE)
    assert caught.value.kind == "no-object-lock"
    assert "leave lock= out" in str(caught.value)
