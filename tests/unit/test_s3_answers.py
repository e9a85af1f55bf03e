"""What S3 answers means the same by every library, and each sends a request once."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from cloudckpt.errors import (
    AmbiguousError,
    ArchivedError,
    CloudckptError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedStoreError,
)
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.s3 import S3Storage
from cloudckpt.storage.s3_answers import raise_answer
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.testing.driver import Client, Driver
from tests.servers.canned import Canned
from tests.until import until

ENGINES: dict[str, Callable[[dict[str, Any]], Storage]] = {
    "s3fs": lambda options: S3Storage("bucket", "p", storage_options=options),
    "boto3": lambda options: Boto3Storage("bucket", "p", storage_options=options),
    "obstore": lambda options: ObstoreStorage("s3", "bucket", "p", storage_options=options),
}

Connect = Callable[..., Client]


@pytest.fixture
def store() -> Iterator[Canned]:
    with Canned() as canned:
        yield canned


@pytest.fixture(params=ENGINES)
def connect(request: pytest.FixtureRequest, store: Canned) -> Iterator[Connect]:
    driver = Driver()
    clients: list[Client] = []

    def one(**options: Any) -> Client:
        named = {"key": "KEY", "secret": "SECRET", "endpoint_url": store.endpoint, **options}
        clients.append(Client(driver, ENGINES[request.param](named)))
        return clients[-1]

    yield one
    for client in clients:
        client.close()
    driver.close()


CALLS: Mapping[str, Callable[[Client], object]] = {
    "create": lambda client: client.create("k", b"x"),
    "replace": lambda client: client.replace("k", b"x", '"token"'),
    "read": lambda client: client.read("k"),
    "list": lambda client: client.keys("k/"),
}

MEANINGS: list[tuple[str, int, str, type[CloudckptError], str | None]] = [
    ("create", 412, "PreconditionFailed", PreconditionFailedError, None),
    ("create", 409, "ConditionalRequestConflict", AmbiguousError, None),
    ("create", 404, "NoSuchBucket", StorageError, "no-such-bucket"),
    ("create", 501, "NotImplemented", UnsupportedStoreError, "not-implemented"),
    ("create", 500, "InternalError", AmbiguousError, None),
    ("create", 503, "SlowDown", ThrottledError, None),
    ("create", 503, "", AmbiguousError, None),
    ("create", 429, "TooManyRequests", ThrottledError, None),
    ("create", 403, "AccessDenied", PermissionDeniedError, "denied"),
    ("create", 400, "ExpiredToken", PermissionDeniedError, "credentials-expired"),
    ("create", 403, "RequestTimeTooSkewed", PermissionDeniedError, "clock"),
    ("create", 400, "EntityTooLarge", StorageError, "refused"),
    ("replace", 412, "PreconditionFailed", PreconditionFailedError, None),
    ("replace", 412, "", PreconditionFailedError, None),
    ("replace", 404, "NoSuchKey", PreconditionFailedError, None),
    ("replace", 404, "NoSuchBucket", StorageError, "no-such-bucket"),
    ("replace", 409, "ConditionalRequestConflict", AmbiguousError, None),
    ("replace", 503, "SlowDown", ThrottledError, None),
    ("read", 403, "InvalidObjectState", ArchivedError, None),
    ("read", 404, "NoSuchBucket", StorageError, "no-such-bucket"),
    ("read", 403, "SignatureDoesNotMatch", PermissionDeniedError, "credentials"),
    ("list", 404, "NoSuchBucket", StorageError, "no-such-bucket"),
    ("list", 500, "InternalError", AmbiguousError, None),
]


def test_an_answer_means_the_same_by_every_library(connect: Connect, store: Canned) -> None:
    """A 409 is "try again" and not a lost race; a bucket that is missing is no lost race either.

    A library that sends the request again by itself would report its own success as a lost race.
    """
    client = connect()
    found = []
    for call, status, code, _, _ in MEANINGS:
        store.say(status, code)
        store.requests.clear()
        with pytest.raises(CloudckptError) as raised:
            CALLS[call](client)
        assert len(store.requests) == 1, f"{call} {status} {code}"
        found.append((call, status, code, type(raised.value), raised.value.kind))
    assert found == MEANINGS


@pytest.mark.parametrize("connect", ["boto3", "obstore"], indirect=True)
@pytest.mark.parametrize("call", ["create", "replace"])
def test_a_broken_connection_is_doubtful(connect: Connect, store: Canned, call: str) -> None:
    """Not by s3fs: aiohttp sends the request again by itself, and nothing can stop it."""
    store.say(0)
    with pytest.raises(AmbiguousError):
        CALLS[call](connect())
    assert len(store.requests) == 1


def test_a_missing_key_is_absent(connect: Connect, store: Canned) -> None:
    store.say(404, "NoSuchKey")
    assert connect().read("k") is None


def test_the_condition_is_on_the_wire(connect: Connect, store: Canned) -> None:
    """An old botocore drops it without a word."""
    client = connect()
    assert client.create("k", b"x") == '"fine"'
    assert client.replace("k", b"y", '"token"') == '"fine"'
    create, replace = store.requests
    assert (create.method, create.path, create.body) == ("PUT", "/bucket/p/k", b"x")
    assert (create.headers["If-None-Match"], create.headers["If-Match"]) == ("*", None)
    assert (replace.headers["If-None-Match"], replace.headers["If-Match"]) == (None, '"token"')


def test_a_put_is_one_round_trip(connect: Connect, store: Canned) -> None:
    """`Expect: 100-continue` makes it two."""
    connect().put("k", bytes(100_000))
    assert store.requests[0].headers["Expect"] is None


def trails(headers: Iterable[str]) -> list[str]:
    """Return the headers that announce what many stores refuse: a checksum behind the body."""
    return [name for name in headers if "trailer" in name.lower() or "sdk-checksum" in name.lower()]


def test_no_checksum_trails_a_body_on_a_store_that_is_not_amazons(connect: Connect, store: Canned) -> None:
    connect().create("k", b"x")
    connect(config_kwargs={"request_checksum_calculation": "when_supported"}).create("k", b"x")
    without, having = (asked.headers for asked in store.requests)
    assert not trails(without)
    assert [name for name in having if "checksum" in name.lower()]


def test_every_write_says_the_digest_of_its_body(connect: Connect, store: Canned) -> None:
    """SeaweedFS takes the request of a writer that was killed in the middle for an empty value otherwise."""
    client = connect()
    client.create("k", b"x")
    client.replace("k", b"x", '"token"')
    client.put("k", b"x")
    for asked in store.requests:
        said = {name.lower() for name in asked.headers}
        assert said & {"content-md5", "x-amz-checksum-sha256"}


def test_encryption_and_tags_reach_every_write_and_a_storage_class_the_payloads(
    connect: Connect, store: Canned
) -> None:
    """A bucket policy refuses the one write that lacks them, and a pointer in a cold class can't be read."""
    client = connect(
        s3_additional_kwargs={
            "ServerSideEncryption": "aws:kms",
            "SSEKMSKeyId": "the-key",
            "StorageClass": "STANDARD_IA",
            "Tagging": "team=agents&kind=checkpoint",
        }
    )
    client.create("k", b"x")
    client.replace("k", b"x", '"token"')
    client.put("k", b"x")
    classes = [asked.headers.get("x-amz-storage-class", "STANDARD") for asked in store.requests]
    assert classes == ["STANDARD", "STANDARD", "STANDARD_IA"]
    for asked in store.requests:
        assert asked.headers["x-amz-server-side-encryption"] == "aws:kms"
        assert asked.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "the-key"
        assert set(asked.headers["x-amz-tagging"].split("&")) == {"team=agents", "kind=checkpoint"}


def test_an_anonymous_client_signs_nothing(connect: Connect, store: Canned) -> None:
    connect(anon=True).create("k", b"x")
    assert store.requests[0].headers["Authorization"] is None


def test_the_named_keys_are_not_mixed_with_the_environment(
    connect: Connect, store: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session token that is left in the environment belongs to other keys, and every request would fail."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "OTHER")
    connect().create("k", b"x")
    headers = store.requests[0].headers
    assert "Credential=KEY/" in headers["Authorization"]
    assert headers["x-amz-security-token"] is None


def test_the_environment_is_enough(connect: Connect, store: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    connect(key=None, secret=None, endpoint_url=None).create("k", b"x")
    assert "Credential=ENV/" in store.requests[0].headers["Authorization"]
    assert "/eu-central-1/s3/" in store.requests[0].headers["Authorization"]


@pytest.mark.parametrize("chosen", ["by option", "by environment", "as default"])
def test_a_profile_brings_keys_region_and_endpoint(
    connect: Connect, store: Canned, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, chosen: str
) -> None:
    """An endpoint that is dropped sends a user's states to another store."""
    name = "default" if chosen == "as default" else "agents"
    head = "default" if chosen == "as default" else "profile agents"
    (tmp_path / "credentials").write_text(
        f"[{name}]\naws_access_key_id = FILE\naws_secret_access_key = S\naws_session_token = T\n"
    )
    (tmp_path / "config").write_text(f"[{head}]\nregion = eu-west-3\nendpoint_url = {store.endpoint}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options: dict[str, Any] = {"profile": "agents"} if chosen == "by option" else {}
    if chosen == "by environment":
        monkeypatch.setenv("AWS_PROFILE", "agents")
    connect(key=None, secret=None, endpoint_url=None, **options).create("k", b"x")
    headers = store.requests[0].headers
    assert "Credential=FILE/" in headers["Authorization"]
    assert "/eu-west-3/s3/" in headers["Authorization"]
    assert headers["x-amz-security-token"] == "T"
    assert not trails(headers)


def test_a_profile_that_is_missing_is_told(connect: Connect) -> None:
    with pytest.raises(StorageError) as raised:
        connect(key=None, secret=None, profile="nobody").read("k")
    assert raised.value.kind == "bad-options"
    assert "nobody" in str(raised.value)


def test_a_connection_that_the_store_closed_is_replaced_in_silence(connect: Connect, store: Canned) -> None:
    """Stores close idle connections after some seconds, and agents save every minute."""
    store.hangs_up = True
    client = connect()
    for n in range(1, 4):
        client.create("k", b"x")
        until(lambda n=n: store.closed >= n)
    assert len(store.requests) == 3


def test_a_store_that_is_not_there_is_told_in_no_time(connect: Connect) -> None:
    started = time.monotonic()
    with pytest.raises(AmbiguousError) as raised:
        connect(endpoint_url="http://127.0.0.1:9").create("k", b"x")
    assert raised.value.kind == "unreachable"
    assert time.monotonic() - started < 5


def test_a_store_that_does_not_answer_in_time_is_doubtful(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(
            endpoint_url=f"http://127.0.0.1:{silent.getsockname()[1]}", config_kwargs={"read_timeout": 0.3}
        )
        with pytest.raises(AmbiguousError):
            client.create("k", b"x")


def test_one_key_that_may_not_be_deleted_among_several_is_denied() -> None:
    """It comes without a status; taken for a passing failure it would be tried again for a minute."""
    with pytest.raises(PermissionDeniedError, match="denies"):
        raise_answer("AccessDenied", 0, "objects/r/1", None)
