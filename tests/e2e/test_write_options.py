"""What `s3_additional_kwargs` ask for reaches every PUT of the product, on the wire.

A key that is missing on one of them is found in production: a bucket policy that
demands a KMS key refuses just that write, or an auditor finds one object in clear.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import pytest

from cloudckpt import keys
from cloudckpt.storage.contract import Storage
from cloudckpt.store import Store
from tests.servers.base import Server
from tests.servers.canned import Asked
from tests.servers.strip_proxy import StrippingProxy

OPTIONS = {
    "ServerSideEncryption": "aws:kms",
    "SSEKMSKeyId": "arn:aws:kms:us-east-1:123456789012:key/one",
    "StorageClass": "STANDARD_IA",
    "Tagging": "team=agents",
}
ON_EVERY_WRITE = {
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:us-east-1:123456789012:key/one",
    "x-amz-tagging": "team=agents",
}


def make_engine(name: str, bucket: str, prefix: str, options: Mapping[str, Any]) -> Callable[[], Storage]:
    if name == "s3fs":
        from cloudckpt.storage.s3 import S3Storage

        return lambda: S3Storage(bucket, prefix, storage_options=options)
    if name == "boto3":
        from cloudckpt.storage.s3_boto3 import Boto3Storage

        return lambda: Boto3Storage(bucket, prefix, storage_options=options)
    pytest.importorskip("obstore")
    from cloudckpt.storage.obstore_engine import ObstoreStorage

    return lambda: ObstoreStorage("s3", bucket, prefix, storage_options=options)


def puts_of_a_run(server: Server, engine: str) -> dict[str, list[Asked]]:
    """Let a run write a bit of everything; return the PUTs by the first part of their key."""
    prefix = f"options-{uuid.uuid4().hex}"
    with StrippingProxy(server.endpoint, strip=()) as proxy:
        options = {
            **server.through(proxy.endpoint).storage_options(),
            "s3_additional_kwargs": OPTIONS,
        }
        with Store(make_engine(engine, server.bucket, prefix, options), keep_last=2) as store:
            run = store.run("r")
            run.save({"step": 1})
            run.save({"step": 2, "image": os.urandom(100_000)})
            run.save({"step": 3})
            assert run.load() == {"step": 3}
        requests = list(proxy.requests)
    root = f"/{server.bucket}/{prefix}/"
    found: dict[str, list[Asked]] = {}
    for request in requests:
        if request.method == "PUT":
            path = unquote(request.path.partition("?")[0])
            assert path.startswith(root)
            found.setdefault(path.removeprefix(root).partition("/")[0], []).append(request)
    return found


@pytest.mark.parametrize("engine", ["s3fs", "boto3", "obstore"])
def test_encryption_and_tags_reach_every_write(moto_server: Server, engine: str) -> None:
    puts = puts_of_a_run(moto_server, engine)
    assert set(puts) == {"manifests", "objects", "probe", keys.STORE_KEY}
    assert len(puts["manifests"]) >= 4, "a claim and three saves: created once, then replaced"
    for where, requests in puts.items():
        for request in requests:
            sent = {name: request.headers.get(name) for name in ON_EVERY_WRITE}
            assert sent == ON_EVERY_WRITE, where


@pytest.mark.parametrize("engine", ["s3fs", "boto3", "obstore"])
def test_a_storage_class_reaches_every_object_and_no_pointer(moto_server: Server, engine: str) -> None:
    puts = puts_of_a_run(moto_server, engine)
    pointers = [request for where, several in puts.items() if where != "objects" for request in several]
    assert {request.headers.get("x-amz-storage-class", "STANDARD") for request in pointers} == {"STANDARD"}
    objects = puts["objects"]
    assert {request.headers.get("x-amz-storage-class") for request in objects} == {"STANDARD_IA"}
