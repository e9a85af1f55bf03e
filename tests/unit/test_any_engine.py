"""What no engine may take for an answer of the store's, and what each does alike.

The servers here say what a proxy says, a store that is half a store, or one that is in trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cloudckpt.errors import AmbiguousError, CloudckptError, PermissionDeniedError, StorageError
from cloudckpt.storage.azure import AzureStorage
from cloudckpt.storage.contract import Storage, Stored
from cloudckpt.storage.gcs import GCSStorage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.s3 import S3Storage
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.testing.driver import Client, Driver
from tests.servers.azurite import ACCOUNT, KEY
from tests.servers.scripted import Answer, scripted

TAG = {"ETag": '"7"', "X-Goog-Generation": "7", "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"}


def _amazons(endpoint: str) -> dict[str, Any]:
    return {"key": "KEY", "secret": "SECRET", "endpoint_url": endpoint}


def _googles(endpoint: str) -> dict[str, Any]:
    return {"token": "anon", "endpoint_url": endpoint}


def _azures(endpoint: str) -> dict[str, Any]:
    named = f"BlobEndpoint={endpoint}/{ACCOUNT};AccountName={ACCOUNT};AccountKey={KEY};"
    return {"connection_string": named}


ENGINES: dict[str, Callable[[str], Storage]] = {
    "s3fs": lambda at: S3Storage("bucket", "p", storage_options=_amazons(at)),
    "boto3": lambda at: Boto3Storage("bucket", "p", storage_options=_amazons(at)),
    "obstore-s3": lambda at: ObstoreStorage("s3", "bucket", "p", storage_options=_amazons(at)),
    "gcsfs": lambda at: GCSStorage("bucket", "p", storage_options=_googles(at)),
    "obstore-gs": lambda at: ObstoreStorage("gs", "bucket", "p", storage_options=_googles(at)),
    "adlfs": lambda at: AzureStorage("bucket", "p", storage_options=_azures(at)),
    "obstore-az": lambda at: ObstoreStorage("az", "bucket", "p", storage_options=_azures(at)),
}
S3 = ["s3fs", "boto3", "obstore-s3"]

CALLS: dict[str, Callable[[Client], object]] = {
    "read": lambda client: client.read("k"),
    "create": lambda client: client.create("k", b"x"),
    "replace": lambda client: client.replace("k", b"x", "7"),
    "put": lambda client: client.put("k", b"x"),
    "list": lambda client: client.keys("k"),
    "delete": lambda client: client.delete("k"),
    "delete of two": lambda client: client.delete("k", "l"),
}


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.close()


def told(driver: Driver, engine: str, call: str, *answers: Answer) -> CloudckptError:
    """Return what a call raises that gets these answers."""
    with scripted(*answers) as server:
        client = Client(driver, ENGINES[engine](server.endpoint))
        try:
            with pytest.raises(CloudckptError) as caught:
                CALLS[call](client)
        finally:
            client.close()
    return caught.value


def got(driver: Driver, engine: str, call: Callable[[Client], object], *answers: Answer) -> object:
    """Return what a call returns that gets these answers."""
    with scripted(*answers) as server:
        client = Client(driver, ENGINES[engine](server.endpoint))
        try:
            return call(client)
        finally:
            client.close()


PAGES = [b"404 page not found\n", b"<html><h1>404 Not Found</h1></html>", b""]


@pytest.mark.parametrize(
    ("engine", "body"),
    # Saying nothing is an emulator's way on Google.
    [(engine, body) for engine in ENGINES for body in PAGES if body or engine != "gcsfs"],
)
def test_a_404_that_is_not_the_stores_tells_nothing(driver: Driver, engine: str, body: bytes) -> None:
    """A proxy says it while the store behind it restarts.

    As the store's own it would be a run that never was, an object that is gone, so that a load
    goes back to an older one, and a deletion that was done.
    """
    for call in CALLS:
        error = told(driver, engine, call, Answer(404, body, {"Content-Type": "text/html"}))
        assert (type(error), error.kind) == (AmbiguousError, "not-the-store"), call


@pytest.mark.parametrize("call", ["create", "replace", "put", "read"])
@pytest.mark.parametrize("engine", ["s3fs", "boto3", "adlfs"])
def test_a_success_that_names_no_token_is_doubtful(driver: Driver, engine: str, call: str) -> None:
    """Who stands before the store may answer a write with a page of its own: was it written?"""
    error = told(driver, engine, call, Answer(200, b"<html></html>", {"Content-Type": "text/html"}))
    assert type(error) is AmbiguousError


@pytest.mark.parametrize("engine", ["s3fs", "boto3", "gcsfs"])
def test_a_range_that_the_store_overlooks_is_cut_out_here(driver: Driver, engine: str) -> None:
    """Else the first bytes would be taken for those in the middle."""
    whole = Answer(200, b"0123456789", TAG)
    found = got(driver, engine, lambda client: client.read("k", offset=3, length=4), whole)
    assert isinstance(found, Stored)
    assert found.data == b"3456"
    found = got(driver, engine, lambda client: client.read("k", offset=3), whole)
    assert isinstance(found, Stored)
    assert found.data == b"3456789"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_range_that_is_refused_for_ever_is_told_in_the_end(driver: Driver, engine: str) -> None:
    """A store that contradicts itself was asked again and again, as fast as it answered."""

    def contradiction() -> Iterator[Answer]:
        there = Answer(200, b'{"generation": "7", "size": "5"}', {**TAG, "x-ms-blob-type": "BlockBlob"})
        while True:
            yield Answer(
                416, b"<Error><Code>InvalidRange</Code></Error>", {"x-ms-error-code": "InvalidRange"}
            )
            yield there

    answers = contradiction()
    error = told(driver, engine, "read", *(next(answers) for _ in range(40)), Answer(404, b"", TAG))
    assert type(error) is AmbiguousError
    assert error.kind is None


@pytest.mark.parametrize("code", ["RequestTimeout", "IncompleteBody", "BadDigest"])
@pytest.mark.parametrize("call", ["create", "put"])
@pytest.mark.parametrize("engine", [*S3, "obstore-gs"])
def test_a_body_that_broke_off_on_its_way_may_be_sent_again(
    driver: Driver, engine: str, call: str, code: str
) -> None:
    """S3 says so with 400, like what is wrong for good. Its libraries send it again; here that is off."""
    error = told(driver, engine, call, Answer(400, f"<Error><Code>{code}</Code></Error>".encode()))
    assert type(error) is AmbiguousError


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_that_a_proxy_gave_up_is_doubtful(driver: Driver, engine: str) -> None:
    assert type(told(driver, engine, "create", Answer(499))) is AmbiguousError


@pytest.mark.parametrize("engine", S3)
def test_keys_that_were_missing_among_several_are_deleted_in_peace(driver: Driver, engine: str) -> None:
    """Amazon says nothing of them, and some stores call each an error of its own."""
    row = b"<Error><Key>p/k</Key><Code>NoSuchKey</Code><Message>no</Message></Error>"
    gone = Answer(200, b"<DeleteResult>" + row + b"</DeleteResult>")
    done = Answer(200, b"<DeleteResult><Deleted><Key>p/k</Key></Deleted></DeleteResult>")
    got(driver, engine, lambda client: client.delete("k", "l"), gone, done)


@pytest.mark.parametrize("engine", ["s3fs", "boto3"])
def test_one_key_of_several_that_could_not_be_deleted_is_named(driver: Driver, engine: str) -> None:
    row = b"<Error><Key>p/k</Key><Code>InternalError</Code><Message>no</Message></Error>"
    error = told(driver, engine, "delete of two", Answer(200, b"<DeleteResult>" + row + b"</DeleteResult>"))
    assert type(error) is AmbiguousError
    assert error.facts["key"] == "k"


@pytest.mark.parametrize("engine", ["s3fs", "boto3"])
def test_a_listing_that_is_cut_off_is_not_the_end(driver: Driver, engine: str) -> None:
    """Without a word on how to go on, what was left out would look as if it were not there."""
    row = b"<Key>p/k</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
    cut = b"<ListBucketResult><IsTruncated>true</IsTruncated><Contents>%b</Contents></ListBucketResult>" % row
    assert type(told(driver, engine, "list", Answer(200, cut))) is AmbiguousError


@pytest.mark.parametrize("engine", ["adlfs", "obstore-az"])
def test_a_container_that_takes_no_anonymous_requests_is_no_missing_blob(driver: Driver, engine: str) -> None:
    """Azure hides a private container from who names no credentials: 404, by another code than a blob's."""
    body = b"<?xml version='1.0'?><Error><Code>ResourceNotFound</Code></Error>"
    hidden = Answer(404, body, {"x-ms-error-code": "ResourceNotFound"})
    for call in ("read", "create", "list"):
        error = told(driver, engine, call, hidden)
        assert (type(error), error.kind) == (PermissionDeniedError, "no-credentials")


def test_a_blob_with_snapshots_is_told_as_such(driver: Driver) -> None:
    error = told(driver, "adlfs", "delete", Answer(409, b"", {"x-ms-error-code": "SnapshotsPresent"}))
    assert (type(error), error.kind) == (StorageError, "snapshots")


def test_what_azure_says_of_one_blob_among_several_is_told(driver: Driver) -> None:
    """By a status alone, and of a deletion without a condition: 412 is somebody's lease, and no lost race."""

    def parts(status: int) -> Answer:
        head = b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n"
        one = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n\r\n--b--\r\n" % status
        return Answer(202, head + one, {"Content-Type": "multipart/mixed; boundary=b"})

    assert told(driver, "obstore-az", "delete", parts(412)).kind == "leased"
    assert told(driver, "obstore-az", "delete", parts(409)).kind == "refused"
    assert type(told(driver, "obstore-az", "delete", parts(503))) is AmbiguousError
    got(driver, "obstore-az", CALLS["delete"], parts(404))


@pytest.mark.parametrize("status", [301, 302, 307])
def test_an_endpoint_that_sends_elsewhere_is_told_as_such(driver: Driver, status: int) -> None:
    """As a proxy does from http to https. botocore asks where the bucket is until the stack is full."""
    moved = Answer(status, b"<html>moved</html>", {"Location": "https://127.0.0.1:9/bucket"})
    for call in ("create", "read"):
        error = told(driver, "boto3", call, moved)
        assert (type(error), error.kind) == (StorageError, "redirected")


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("engine", ["s3fs", "boto3", "gcsfs", "adlfs"])
def test_an_answer_from_where_the_store_sent_us_is_none_of_the_stores(
    driver: Driver, engine: str, status: int
) -> None:
    """As of a login page. Libraries go there, with the state, and take its 200 for a write or a deletion."""
    page = Answer(200, b"<html></html>", {**TAG, "Content-Type": "text/html"})
    for call in CALLS:
        with scripted(page) as portal:
            error = told(driver, engine, call, Answer(status, b"", {"Location": f"{portal.endpoint}/login"}))
            assert error.kind == "redirected", call
            assert engine == "s3fs" or not portal.requests
