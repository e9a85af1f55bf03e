"""What the answers of Azure's Blob service mean, and how often it is asked.

The server here says what the real one says and the emulator can't: who is
refused and why, that it is asked too often, and half an answer.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("adlfs")

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
from cloudckpt.storage.azure import AzureStorage
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.pieces import WHOLE_BYTES
from tests.servers.azurite import ACCOUNT
from tests.servers.base import free_ports
from tests.servers.scripted import CUT, Answer, scripted
from tests.unit.azure_lab import METHODS, WRITTEN, T, named, with_options

EMPTY = Answer(416, headers={"x-ms-error-code": "InvalidRange"})


def on(endpoint: str, work: Callable[[AzureStorage], Awaitable[T]], **options: Any) -> T:
    return with_options({"connection_string": named(endpoint), **options}, work)


def refusal(status: int, code: str = "") -> Answer:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>no</Message></Error>'
    headers = {"Content-Type": "application/xml"}
    return Answer(status, body.encode(), headers | ({"x-ms-error-code": code} if code else {}))


def whole(value: bytes, tag: str) -> Answer:
    """Return the answer to a GET of a range that holds all of a value."""
    where = {"Content-Range": f"bytes 0-{len(value) - 1}/{len(value)}", "x-ms-blob-type": "BlockBlob"}
    return Answer(206, value, {"ETag": tag, **where})


MEANINGS: list[tuple[Answer, type[CloudckptError], str | None]] = [
    (refusal(400, "InvalidHeaderValue"), StorageError, "refused"),
    (refusal(401, "NoAuthenticationInformation"), PermissionDeniedError, "no-credentials"),
    (refusal(401, "InvalidAuthenticationInfo"), PermissionDeniedError, "credentials"),
    (refusal(403, "AuthenticationFailed"), PermissionDeniedError, "credentials"),
    (refusal(403, "AuthorizationPermissionMismatch"), PermissionDeniedError, "denied"),
    (refusal(403, "AuthorizationFailure"), PermissionDeniedError, "denied"),
    (refusal(404, "ContainerNotFound"), StorageError, "no-such-bucket"),
    (refusal(409, "ContainerBeingDeleted"), StorageError, "no-such-bucket"),
    (refusal(409, "BlobAlreadyExists"), PreconditionFailedError, None),
    (refusal(409, "BlobImmutableDueToPolicy"), PermissionDeniedError, "retained"),
    (refusal(409, "PublicAccessNotPermitted"), PermissionDeniedError, "no-credentials"),
    (refusal(412, "ConditionNotMet"), PreconditionFailedError, None),
    (refusal(412, "LeaseIdMissing"), StorageError, "leased"),
    (refusal(429, "TooManyRequests"), ThrottledError, None),
    (refusal(503, "ServerBusy"), ThrottledError, None),
    (refusal(503), AmbiguousError, None),
    (refusal(500, "OperationTimedOut"), AmbiguousError, None),
    (refusal(500, "InternalError"), AmbiguousError, None),
    (Answer(502, b"<html>bad gateway</html>"), AmbiguousError, None),
    (refusal(501, "NotImplemented"), UnsupportedStoreError, "not-implemented"),
    (Answer(201), AmbiguousError, None),
    (Answer(200, b"<html>welcome</html>", {"Content-Type": "text/html"}), AmbiguousError, None),
]


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    MEANINGS,
    ids=[f"{answer.status}-{answer.headers.get('x-ms-error-code', '')}" for answer, _, _ in MEANINGS],
)
@pytest.mark.parametrize("method", ["create", "replace"])
def test_a_conditional_write_is_sent_once_whatever_the_answer(
    method: str, answer: Answer, error: type[CloudckptError], kind: str | None
) -> None:
    """Azure's library would send it up to four times, and be refused by its own success."""
    with scripted(answer) as server:
        with pytest.raises(error) as caught:
            on(server.endpoint, METHODS[method])
        assert len(server.requests) == 1
    assert type(caught.value) is error
    assert caught.value.kind == kind


@pytest.mark.parametrize("status", [429, 503, 500, 403])
@pytest.mark.parametrize("method", ["read", "put", "list", "delete"])
def test_what_may_be_repeated_is_not_repeated_here_either(method: str, status: int) -> None:
    """The wrapper repeats, within a deadline; the library's own waits would add to it, up to two minutes."""
    with scripted(refusal(status)) as server:
        with pytest.raises(StorageError):
            on(server.endpoint, METHODS[method])
        assert len(server.requests) == 1


@pytest.mark.parametrize("method", ["create", "replace"])
def test_a_write_without_an_answer_is_doubtful(method: str) -> None:
    """Azure's library calls it a failed request; aiohttp may have sent it twice."""
    with scripted(CUT) as server:
        with pytest.raises(AmbiguousError) as caught:
            on(server.endpoint, METHODS[method])
        assert len(server.requests) <= 2
    assert caught.value.kind is None


LISTED = b"""<?xml version="1.0" encoding="utf-8"?>
<EnumerationResults ServiceEndpoint="http://x/" ContainerName="box"><Blobs>%s</Blobs><NextMarker/>
</EnumerationResults>"""

ROW = b"""<Blob><Name>pre fix/k%s</Name><Properties><Content-Length>3</Content-Length>
<BlobType>BlockBlob</BlobType>
<Last-Modified>Sun, 29 Nov 2026 23:27:52 GMT</Last-Modified><Etag>0x1</Etag></Properties>
<Metadata>%s</Metadata></Blob>"""


def listing(*rows: bytes) -> Answer:
    return Answer(200, LISTED % b"".join(rows), {"Content-Type": "application/xml"})


@pytest.mark.parametrize(
    ("method", "answer", "asked"),
    [
        ("read", whole(b"value", '"0x6"'), ("GET", f"/{ACCOUNT}/box/pre%20fix/k/1")),
        ("create", WRITTEN, ("PUT", f"/{ACCOUNT}/box/pre%20fix/k/1")),
        ("replace", WRITTEN, ("PUT", f"/{ACCOUNT}/box/pre%20fix/k/1")),
        ("put", WRITTEN, ("PUT", f"/{ACCOUNT}/box/pre%20fix/k/1")),
        ("list", listing(), ("GET", f"/{ACCOUNT}/box?")),
        ("delete", Answer(202), ("DELETE", f"/{ACCOUNT}/box/pre%20fix/k/1")),
    ],
)
def test_one_method_is_one_request(method: str, answer: Answer, asked: tuple[str, str]) -> None:
    """No look at the container, and no HEAD before a read or after a write."""
    with scripted(answer) as server:
        on(server.endpoint, METHODS[method])
        [request] = server.requests
    assert request.method == asked[0]
    assert request.path.startswith(asked[1])


def test_a_write_carries_its_condition() -> None:
    with scripted(WRITTEN) as server:
        assert on(server.endpoint, METHODS["create"]) == '"0x7"'
        assert on(server.endpoint, METHODS["replace"]) == '"0x7"'
        create, replace = server.requests
    assert (create.headers["If-None-Match"], create.headers["If-Match"]) == ("*", None)
    assert (replace.headers["If-None-Match"], replace.headers["If-Match"]) == (None, '"0x6"')
    assert create.body == b"value"


def test_a_big_body_is_never_sent_in_part() -> None:
    """A PUT may be sent again by aiohttp when its connection breaks; a file-like body is then at its end."""
    big = bytes(range(256)) * (WHOLE_BYTES // 256 + 1)

    async def until_written(storage: AzureStorage) -> None:
        await storage.create("small", b"opens the connection")
        for _ in range(3):
            with suppress(AmbiguousError):
                await storage.create("big", big)
                return

    with scripted(WRITTEN, CUT, CUT, WRITTEN) as server:
        on(server.endpoint, until_written)
        assert [request.body == big for request in server.requests] == [False, True, True, True]


# What is missing.


@pytest.mark.parametrize("method", ["read", "list", "delete", "put"])
def test_a_missing_container_is_no_missing_blob(method: str) -> None:
    """Else a mistyped container looks like a run that never was, and the agent starts over."""
    with scripted(refusal(404, "ContainerNotFound")) as server, pytest.raises(StorageError) as caught:
        on(server.endpoint, METHODS[method])
    assert caught.value.kind == "no-such-bucket"


def test_a_replace_of_a_missing_blob_is_refused_whatever_its_code() -> None:
    with scripted(refusal(404, "BlobNotFound")) as server, pytest.raises(PreconditionFailedError):
        on(server.endpoint, METHODS["replace"])


def test_a_missing_blob_reads_as_none_and_is_deleted_in_peace() -> None:
    with scripted(refusal(404, "BlobNotFound")) as server:
        assert on(server.endpoint, METHODS["read"]) is None
        on(server.endpoint, METHODS["delete"])


def test_a_delete_goes_on_after_a_failure_and_tells_it() -> None:
    keys = [f"k/{n}" for n in range(40)]
    with scripted(refusal(403, "AuthorizationPermissionMismatch"), Answer(202)) as server:
        with pytest.raises(PermissionDeniedError):
            on(server.endpoint, lambda storage: storage.delete(keys))
        assert len(server.requests) > 20


def test_a_folder_of_a_hierarchical_account_is_no_row() -> None:
    """Such an account lists its folders among the blobs; deleting one as an object fails."""
    rows = ROW % (b"/1", b""), ROW % (b"", b"<hdi_isfolder>true</hdi_isfolder>")
    with scripted(listing(*rows)) as server:
        page = on(server.endpoint, METHODS["list"])
    assert [row.key for row in page.rows] == ["k/1"]


# Reads.


def test_an_empty_blob_that_is_written_meanwhile_never_pairs_no_bytes_with_the_new_token() -> None:
    """Azure's own library does: it asks again for the token only, so one's update would undo another's."""
    grown = Answer(200, headers={"ETag": '"0x2"', "Content-Length": "5", "x-ms-blob-type": "BlockBlob"})
    with scripted(EMPTY, grown, whole(b"value", '"0x2"')) as server:
        assert on(server.endpoint, METHODS["read"]) == Stored(b"value", '"0x2"')


def test_a_range_behind_the_end_gives_the_token() -> None:
    head = Answer(200, headers={"ETag": '"0x2"', "Content-Length": "4", "x-ms-blob-type": "BlockBlob"})
    with scripted(EMPTY, head) as server:
        assert on(server.endpoint, lambda storage: storage.read("k", offset=4)) == Stored(b"", '"0x2"')
    with scripted(EMPTY, refusal(404, "BlobNotFound")) as server:
        assert on(server.endpoint, lambda storage: storage.read("k", offset=4)) is None


def test_a_big_blob_that_changes_between_its_parts_is_read_again_and_no_lost_race() -> None:
    """Above 32 MiB Azure's library reads in parts, each on the condition that nothing changed."""
    size = 2**26
    part = b"x" * 2**25
    first = Answer(206, part, {"ETag": '"0x1"', "Content-Range": f"bytes 0-{2**25 - 1}/{size}"})
    with scripted(first, refusal(412, "ConditionNotMet")) as server, pytest.raises(AmbiguousError):
        on(server.endpoint, METHODS["read"])


@pytest.mark.parametrize("code", ["BlobArchived", "BlobBeingRehydrated"])
def test_a_blob_in_the_archive_tier_is_told_as_such(code: str) -> None:
    with scripted(refusal(409, code)) as server, pytest.raises(ArchivedError):
        on(server.endpoint, METHODS["read"])


def test_a_silent_store_is_given_up_in_time() -> None:
    started = time.monotonic()
    with scripted(Answer(201, seconds=30)) as server, pytest.raises(AmbiguousError):
        on(server.endpoint, METHODS["create"], read_timeout=0.2)
    assert time.monotonic() - started < 10


def test_an_endpoint_where_nobody_listens_is_told_as_such() -> None:
    [port] = free_ports(1)
    with pytest.raises(AmbiguousError) as caught:
        on(f"http://127.0.0.1:{port}", METHODS["create"])
    assert caught.value.kind == "unreachable"
