"""A read that brings nothing while nothing has changed: what is asked, and what an answer means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cloudckpt.errors import PermissionDeniedError, StorageError
from cloudckpt.storage.answers import AbsentError
from cloudckpt.storage.azure import AzureStorage
from cloudckpt.storage.changed import Changes
from cloudckpt.storage.contract import Storage, Stored
from cloudckpt.storage.gcs import GCSStorage
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.testing.driver import by_hand
from tests.servers.canned import Asked, Canned

S3_OPTIONS = {
    "key": "k",
    "secret": "s",
    "client_kwargs": {"region_name": "us-east-1"},
    "config_kwargs": {"s3": {"addressing_style": "path"}},
}


@pytest.fixture
def server() -> Iterator[Canned]:
    with Canned() as canned:
        yield canned


def _s3(endpoint: str, make: Any) -> Storage:
    options = {**S3_OPTIONS, "client_kwargs": {**S3_OPTIONS["client_kwargs"], "endpoint_url": endpoint}}  # type: ignore[dict-item]
    storage: Storage = make(storage_options=options)
    return storage


def _azure(endpoint: str) -> Storage:
    account = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint={endpoint}/a;"
    return AzureStorage("box", "", storage_options={"connection_string": account})


ENGINES: dict[str, tuple[Callable[[str], Storage], Callable[[Asked], str | None]]] = {
    "boto3": (
        lambda endpoint: _s3(endpoint, lambda **options: Boto3Storage("box", "", **options)),
        lambda asked: asked.headers["If-None-Match"],
    ),
    "obstore": (
        lambda endpoint: _s3(endpoint, lambda **options: ObstoreStorage("s3", "box", "", **options)),
        lambda asked: asked.headers["If-None-Match"],
    ),
    "gcsfs": (
        lambda endpoint: GCSStorage("box", "", storage_options={"token": "anon", "endpoint_url": endpoint}),
        lambda asked: asked.path.partition("ifGenerationNotMatch=")[2].partition("&")[0],
    ),
    "adlfs": (_azure, lambda asked: asked.headers["If-None-Match"]),
}


def run(make: Callable[[str], Storage], server: Canned, token: str) -> Stored | None:
    async def ask() -> Stored | None:
        storage = make(server.endpoint)
        try:
            return await Changes(storage).since("k", token)
        finally:
            await storage.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_asked_on_condition_and_304_is_no_change(engine: str, server: Canned) -> None:
    make, condition = ENGINES[engine]
    server.say(304, x_ms_error_code="ConditionNotMet")  # as Azure words it, and a lost race
    assert run(make, server, "12") is None
    assert len(server.requests) == 1
    assert condition(server.requests[0]) == "12"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_that_is_gone_and_a_right_that_is_missing_are_told_apart(engine: str, server: Canned) -> None:
    """A watch that took a refusal for "no change" would never tell a fenced worker."""
    make, _ = ENGINES[engine]
    server.say(404, "NoSuchKey", x_ms_error_code="BlobNotFound")
    with pytest.raises(AbsentError):
        run(make, server, "12")
    server.say(403, "AccessDenied")
    with pytest.raises(PermissionDeniedError):
        run(make, server, "12")
    server.say(500)
    with pytest.raises(StorageError):
        run(make, server, "12")


def test_a_server_that_ignores_the_condition_shows_no_change_where_there_is_none(server: Canned) -> None:
    make, _ = ENGINES["gcsfs"]
    assert run(make, server, "7") is None
    assert run(make, server, "6") == Stored(b"", "7")


def test_an_engine_without_it_is_read_through_its_wrappers() -> None:
    class Slept:
        seconds = 0.0

        async def sleep(self, seconds: float) -> None:
            self.seconds += seconds

    memory, slept = MemoryStorage("changed"), Slept()
    late = LatencyStorage(memory, 2.0, slept)  # type: ignore[arg-type]
    storage = RetryingStorage(late, RetryPolicy(), slept)  # type: ignore[arg-type]
    token = by_hand(memory.create("k", b"1"))
    assert by_hand(Changes(storage).since("k", token)) is None
    assert by_hand(Changes(storage).since("k", "v0")) == Stored(b"1", token)
    assert slept.seconds == 4.0
