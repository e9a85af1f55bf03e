"""What the answers of Google Cloud Storage mean, and how often it is asked.

The server here says what the real one says and the emulator can't: who is
refused and why, that it is asked too often, and half an answer.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("gcsfs")

from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError, TransportError
from google.oauth2.credentials import Credentials

from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedStoreError,
)
from cloudckpt.storage.answers import UNSENT
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.gcs import GCSStorage
from tests.servers.base import free_ports
from tests.servers.scripted import CUT, Answer, scripted

T = TypeVar("T")

WRITTEN = Answer(200, b'{"generation": "7"}')


def on(endpoint: str, work: Callable[[GCSStorage], Awaitable[T]], **options: Any) -> T:
    """Return what `work` returns on a storage of this endpoint, which is closed then."""
    options = {"token": "anon", "endpoint_url": endpoint, **options}

    async def run() -> T:
        storage = GCSStorage("bucket", "pre fix", storage_options=options)
        try:
            return await work(storage)
        finally:
            await storage.close()

    return asyncio.run(run())


def refusal(status: int, reason: str = "", message: str = "no") -> Answer:
    error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    return Answer(status, json.dumps({"error": error}).encode())


METHODS: dict[str, Callable[[GCSStorage], Awaitable[Any]]] = {
    "read": lambda storage: storage.read("k/1"),
    "create": lambda storage: storage.create("k/1", b"value"),
    "replace": lambda storage: storage.replace("k/1", b"value", "6"),
    "put": lambda storage: storage.put("k/1", b"value"),
    "list": lambda storage: storage.list("k/"),
    "delete": lambda storage: storage.delete(["k/1"]),
}

MEANINGS: list[tuple[Answer, type[CloudckptError], str | None]] = [
    (refusal(400, "invalid"), StorageError, "refused"),
    (refusal(401, "required"), PermissionDeniedError, "no-credentials"),
    (refusal(403, "forbidden"), PermissionDeniedError, "denied"),
    (refusal(403, "rateLimitExceeded"), ThrottledError, None),
    (refusal(403, "retentionPolicyNotMet"), PermissionDeniedError, "retained"),
    (refusal(403, "objectUnderActiveHold"), PermissionDeniedError, "retained"),
    (refusal(408), AmbiguousError, None),
    (refusal(409, "conflict"), AmbiguousError, None),
    (refusal(412, "conditionNotMet"), PreconditionFailedError, None),
    (refusal(429, "rateLimitExceeded"), ThrottledError, None),
    (Answer(429, b"<html>too many</html>"), ThrottledError, None),
    (refusal(500, "backendError"), AmbiguousError, None),
    (Answer(502, b"<html>bad gateway</html>"), AmbiguousError, None),
    (refusal(503, "backendError"), AmbiguousError, None),
    (Answer(501), UnsupportedStoreError, "not-implemented"),
    (CUT, AmbiguousError, None),
]


@pytest.mark.parametrize(("answer", "error", "kind"), MEANINGS, ids=lambda x: str(getattr(x, "status", x)))
@pytest.mark.parametrize("method", ["create", "replace"])
def test_a_conditional_write_is_sent_once_whatever_the_answer(
    method: str, answer: Answer, error: type[CloudckptError], kind: str | None
) -> None:
    """Gcsfs would send it up to six times, and be refused by its own success."""
    with scripted(answer) as server:
        with pytest.raises(error) as caught:
            on(server.endpoint, METHODS[method])
        assert len(server.requests) == 1
    assert type(caught.value) is error
    assert caught.value.kind == kind


@pytest.mark.parametrize("status", [429, 503, 401, 403])
@pytest.mark.parametrize("method", ["read", "put", "list", "delete"])
def test_what_may_be_repeated_is_not_repeated_here_either(method: str, status: int) -> None:
    """The wrapper repeats, within a deadline; gcsfs's own waits would add to it, up to a minute each."""
    with scripted(refusal(status)) as server:
        with pytest.raises(StorageError):
            on(server.endpoint, METHODS[method])
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("method", "answer", "asked"),
    [
        ("read", Answer(200, b"value", {"X-Goog-Generation": "6"}), ("GET", "/storage/v1/b/bucket/o/")),
        ("create", WRITTEN, ("POST", "/upload/storage/v1/b/bucket/o")),
        ("replace", WRITTEN, ("POST", "/upload/storage/v1/b/bucket/o")),
        ("put", WRITTEN, ("POST", "/upload/storage/v1/b/bucket/o")),
        ("list", Answer(200, b"{}"), ("GET", "/storage/v1/b/bucket/o?")),
        ("delete", Answer(204), ("DELETE", "/storage/v1/b/bucket/o/")),
    ],
)
def test_one_method_is_one_request(method: str, answer: Answer, asked: tuple[str, str]) -> None:
    """No look at the bucket, no listing, and nothing by gRPC before it."""
    with scripted(answer) as server:
        on(server.endpoint, METHODS[method])
        [request] = server.requests
    assert request.method == asked[0]
    assert request.path.startswith(asked[1])


def test_a_write_names_its_condition_and_its_object() -> None:
    with scripted(WRITTEN) as server:
        assert on(server.endpoint, METHODS["create"]) == "7"
        assert on(server.endpoint, METHODS["replace"]) == "7"
        create, replace = server.requests
    assert parse_qs(urlsplit(create.path).query)["ifGenerationMatch"] == ["0"]
    assert parse_qs(urlsplit(replace.path).query)["ifGenerationMatch"] == ["6"]
    assert b'"name": "pre fix/k/1"' in create.body
    assert b"\r\n\r\nvalue\r\n" in create.body


def test_what_is_written_is_kept_by_no_cache() -> None:
    """Objects that everybody may read are cached for an hour otherwise, pointers too."""
    with scripted(WRITTEN) as server:
        on(server.endpoint, METHODS["create"])
        assert b'"cacheControl": "no-store"' in server.requests[0].body


def test_who_pays_is_named_in_each_request() -> None:
    with scripted(WRITTEN) as server:
        on(server.endpoint, METHODS["create"], requester_pays="payer")
        assert "userProject=payer" in server.requests[0].path


# What is missing.


@pytest.mark.parametrize("method", ["create", "replace", "put", "list"])
def test_a_missing_bucket_is_told_as_such(method: str) -> None:
    """An upload and a listing name no object, so 404 can only be the bucket; it is no lost race."""
    with scripted(refusal(404, "notFound", "Not Found")) as server, pytest.raises(StorageError) as caught:
        on(server.endpoint, METHODS[method])
    assert caught.value.kind == "no-such-bucket"


@pytest.mark.parametrize("method", ["read", "delete"])
def test_a_missing_bucket_is_no_missing_object(method: str) -> None:
    """Else a mistyped bucket looks like a run that never was, and the agent starts over."""
    answer = refusal(404, "notFound", "The specified bucket does not exist.")
    with scripted(answer) as server, pytest.raises(StorageError) as caught:
        on(server.endpoint, METHODS[method])
    assert caught.value.kind == "no-such-bucket"


def test_a_missing_object_reads_as_none_and_is_deleted_in_peace() -> None:
    with scripted(Answer(404, b"No such object: bucket/pre fix/k/1")) as server:
        assert on(server.endpoint, METHODS["read"]) is None
        on(server.endpoint, METHODS["delete"])


def test_a_delete_goes_on_after_a_failure_and_tells_it() -> None:
    keys = [f"k/{n}" for n in range(40)]
    with scripted(refusal(403, "forbidden"), Answer(204)) as server:
        with pytest.raises(PermissionDeniedError):
            on(server.endpoint, lambda storage: storage.delete(keys))
        assert len(server.requests) > 20


# Half an answer.


def test_a_body_that_is_cut_short_is_no_value() -> None:
    answer = Answer(200, b"val", {"X-Goog-Generation": "6", "Content-Length": "100"})
    with scripted(answer) as server, pytest.raises(AmbiguousError):
        on(server.endpoint, METHODS["read"])


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"generation": "7"'])
def test_a_success_that_can_not_be_read_is_doubtful(body: bytes) -> None:
    """A proxy's own page with status 200 must not pass for a commit."""
    with scripted(Answer(200, body)) as server, pytest.raises(AmbiguousError):
        on(server.endpoint, METHODS["create"])


def test_a_store_without_generations_is_refused() -> None:
    with scripted(Answer(200, b"value")) as server, pytest.raises(UnsupportedStoreError):
        on(server.endpoint, METHODS["read"])
    with scripted(Answer(200, b"{}")) as server, pytest.raises(UnsupportedStoreError):
        on(server.endpoint, METHODS["create"])


def test_a_range_behind_the_end_never_pairs_old_bytes_with_a_new_token() -> None:
    """The value grows between the refused range and the question for its token."""
    grown = Answer(200, b'{"generation": "7", "size": "5"}')
    whole = Answer(206, b"e", {"X-Goog-Generation": "7"})
    with scripted(Answer(416), grown, whole) as server:
        assert on(server.endpoint, lambda storage: storage.read("k", offset=4)) == Stored(b"e", "7")
    short = Answer(200, b'{"generation": "7", "size": "4"}')
    with scripted(Answer(416), short) as server:
        assert on(server.endpoint, lambda storage: storage.read("k", offset=4)) == Stored(b"", "7")
    with scripted(Answer(416), refusal(404, "notFound")) as server:
        assert on(server.endpoint, lambda storage: storage.read("k", offset=4)) is None


def test_a_silent_store_is_given_up_in_time() -> None:
    """Gcsfs by itself waits for ever."""
    started = time.monotonic()
    with scripted(Answer(200, b"{}", seconds=30)) as server, pytest.raises(AmbiguousError):
        on(server.endpoint, METHODS["create"], requests_timeout=0.2)
    assert time.monotonic() - started < 10


def test_an_endpoint_where_nobody_listens_is_told_as_such() -> None:
    [port] = free_ports(1)
    with pytest.raises(AmbiguousError) as caught:
        on(f"http://127.0.0.1:{port}", METHODS["create"])
    assert caught.value.kind == "unreachable"


# Credentials.


def test_refused_credentials_are_told_from_missing_ones() -> None:
    with scripted(refusal(401, "authError")) as server, pytest.raises(PermissionDeniedError) as caught:
        on(server.endpoint, METHODS["create"], token=Credentials("stale"))
    assert caught.value.kind == "credentials"


def test_credentials_that_can_not_be_renewed_are_told_before_anything_is_sent() -> None:
    expired = Credentials("stale", expiry=datetime(2020, 1, 1))
    with scripted(WRITTEN) as server:
        with pytest.raises(PermissionDeniedError) as caught:
            on(server.endpoint, METHODS["create"], token=expired)
        assert server.requests == []
    assert caught.value.kind == "credentials"


class Renewable(Credentials):
    """A token of a given time, renewed once, with an error if there is one to raise."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        super().__init__("old", expiry=naive_now() + timedelta(seconds=seconds))
        self.error = error
        self.renewed_in: list[threading.Thread] = []

    def refresh(self, request: object) -> None:
        self.renewed_in.append(threading.current_thread())
        if self.error is not None:
            raise self.error
        self.token, self.expiry = "new", naive_now() + timedelta(hours=1)


def naive_now() -> datetime:
    """Return the time as google.auth keeps it: in UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


@pytest.mark.parametrize("seconds", [-10, 60, 290])
def test_credentials_are_renewed_before_they_expire_and_off_the_loop(seconds: float) -> None:
    """A renewal is a blocking request of some 100 ms; on the loop it would hold up every run."""
    credentials = Renewable(seconds)
    with scripted(WRITTEN) as server:
        on(server.endpoint, METHODS["create"], token=credentials)
        assert server.requests[0].headers["Authorization"] == "Bearer new"
    assert len(credentials.renewed_in) == 1
    assert credentials.renewed_in[0] is not threading.main_thread()


def test_credentials_that_last_are_left_alone() -> None:
    credentials = Renewable(3000)
    with scripted(WRITTEN) as server:
        on(server.endpoint, METHODS["create"], token=credentials)
        assert server.requests[0].headers["Authorization"] == "Bearer old"
    assert credentials.renewed_in == []


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (TransportError("no network"), UNSENT),
        (RefreshError("try later", retryable=True), UNSENT),
        (RefreshError("revoked"), "credentials"),
    ],
)
def test_a_renewal_that_failed_in_passing_may_be_tried_again(cause: Exception, kind: str) -> None:
    with scripted(WRITTEN) as server:
        with pytest.raises(PermissionDeniedError) as raised:
            on(server.endpoint, METHODS["create"], token=Renewable(-10, cause))
        assert raised.value.kind == kind
        assert server.requests == []


@pytest.mark.parametrize("token", [{"type": "nonsense"}, 17, "/"], ids=str)
def test_unusable_options_are_told_as_such(token: object) -> None:
    with pytest.raises(StorageError) as caught:
        on("http://127.0.0.1:9", METHODS["read"], token=token)
    assert caught.value.kind == "bad-options"


def test_anonymous_credentials_of_the_caller_are_taken() -> None:
    with scripted(WRITTEN) as server:
        assert on(server.endpoint, METHODS["create"], token=AnonymousCredentials()) == "7"
