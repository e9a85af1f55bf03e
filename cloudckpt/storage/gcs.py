"""`gs://bucket/prefix` through gcsfs.

Owns: which request of Google's JSON API each method of the contract is, and what
each answer means. Invariant: one method is one request (a listing: one per page,
a delete: one per key), and each is sent once. gcsfs brings the endpoint, the
credentials and the HTTP session, so `storage_options` work as they do for it;
its own methods are passed by: they send a conditional write again without
saying so, and turn answers into `OSError`s that no longer tell them apart.

A token is a generation. Google allows about one write a second to one object
and answers 429 to more, which is a `ThrottledError`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from urllib.parse import quote

from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedStoreError,
)
from cloudckpt.storage.answers import Answer
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.pieces import in_pieces

PAGE_ROWS = 1000
DELETES_AT_ONCE = 16
INSTALL = 'pip install "cloudckpt[gcs]"'

_CONNECT_SECONDS = 20.0
_READ_SECONDS = 60.0
_REFRESH_BEFORE = timedelta(seconds=330)
"""gcsfs renews a token that has 300 s left, and blocks the loop meanwhile; we come first, in a thread."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class GCSStorage:
    """One bucket, or a prefix of it.

    Args:
        bucket: The bucket's name.
        prefix: Key prefix without a trailing slash, or "" for the whole bucket.
        storage_options: Passed to `gcsfs.GCSFileSystem`.
    """

    blocking = False

    def __init__(self, bucket: str, prefix: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
        try:
            # What `gcsfs` itself exports asks for the kind of each bucket by gRPC, up to a minute long.
            from gcsfs.core import GCSFileSystem
        except ImportError as error:
            raise UnsupportedStoreError(f"gs:// needs gcsfs; {INSTALL}") from error
        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._objects = f"b/{quote(bucket, safe='')}/o"
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = _with_defaults(dict(storage_options or {}))
        self._make = GCSFileSystem
        self._fs: Any = None
        self._opening = asyncio.Lock()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        wanted = {}
        if offset or length is not None:
            last = "" if length is None else str(offset + max(length, 1) - 1)  # a range is at least a byte
            wanted["Range"] = f"bytes={offset}-{last}"
        while True:
            answer = await self._ask("GET", self._path(key), key, headers=wanted, alt="media")
            if answer.status != 416:
                break
            # Nothing to get; but the caller wants the token.
            answer = await self._ask("GET", self._path(key), key, fields="generation,size")
            if _is_absent(answer):
                return None
            found = _document(answer, key)
            if int(found.get("size", 0)) <= offset:  # else it has grown since
                return Stored(b"", _generation(found, key))
        if _is_absent(answer):
            return None
        _check(answer, key)
        token = _generation({"generation": answer.headers.get("x-goog-generation")}, key)
        return Stored(answer.body if length is None else answer.body[:length], token)

    async def create(self, key: str, data: Data) -> Token:
        return await self._upload(key, data, "0")

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._upload(key, data, token)

    async def put(self, key: str, data: Data) -> None:
        try:
            await self.create(key, data)
        except PreconditionFailedError:
            return  # write-once: what is there was written by an earlier try

    async def _upload(self, key: str, data: Data, generation: str) -> Token:
        kind, body = _multipart(self._prefix + key, data)
        answer = await self._ask(
            "POST",
            f"/upload/storage/v1/{self._objects}",
            key,
            headers={"Content-Type": kind, "Content-Length": str(len(body))},
            body=body,
            uploadType="multipart",
            ifGenerationMatch=generation,
            fields="generation",
        )
        if answer.status == 404:  # an upload names no object that could be missing
            raise _no_bucket()
        return _generation(_document(answer, key), key)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        answer = await self._ask(
            "GET",
            f"/storage/v1/{self._objects}",
            prefix,
            prefix=self._prefix + prefix,
            pageToken=cursor,
            maxResults=str(PAGE_ROWS),
            fields="items(name,size,timeCreated),nextPageToken",
        )
        if answer.status == 404:
            raise _no_bucket()
        document = _document(answer, prefix)
        rows = (
            (row["name"][len(self._prefix) :], int(row["size"]), datetime.fromisoformat(row["timeCreated"]))
            for row in document.get("items", ())
        )
        return Page(tuple(Listed(*row) for row in rows), document.get("nextPageToken") or None)

    async def delete(self, keys: Sequence[str]) -> None:
        async def some(keys: Sequence[str]) -> None:
            for key in keys:
                answer = await self._ask("DELETE", self._path(key), key)
                if not _is_absent(answer):
                    _check(answer, key)

        lanes = [keys[n::DELETES_AT_ONCE] for n in range(min(DELETES_AT_ONCE, len(keys)))]
        outcomes = await asyncio.gather(*map(some, lanes), return_exceptions=True)
        for failed in filter(None, outcomes):
            raise failed

    async def close(self) -> None:
        fs, self._fs = self._fs, None
        if fs is not None:
            await fs.session.close()

    def _path(self, key: str) -> str:
        return f"/storage/v1/{self._objects}/{quote(self._prefix + key, safe='')}"

    async def _ask(
        self,
        method: str,
        path: str,
        key: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        **parameters: str | None,
    ) -> _Answer:
        """Send one request and return its answer, whatever it says."""
        try:
            fs = await self._session()
            async with fs.session.request(
                method,
                f"{fs._location}{path}",
                params=fs._get_params(parameters),  # drops None, adds who pays
                headers=fs._get_headers(headers),
                data=None if body is None else in_pieces(body),
            ) as answer:
                found = _Answer(answer.status, answer.headers, await answer.read())
        except CloudckptError:
            raise
        except Exception as error:  # noqa: BLE001 - gcsfs, google.auth and aiohttp share no base class
            _told(error, key)
        if found.status == 401 and fs.credentials.credentials is None:
            raise _no_credentials()
        return found

    async def _session(self) -> Any:
        """Return the file system with an open session and credentials that last for this request."""
        if self._fs is None:
            async with self._opening:
                if self._fs is None:
                    # In a thread: it looks for credentials, on the network too, and blocks.
                    fs = await asyncio.to_thread(_made, self._make, self._options)
                    await fs._set_session()
                    self._fs = fs
        if not _lasts(self._fs.credentials.credentials):
            await asyncio.to_thread(self._fs.credentials.maybe_refresh)
        return self._fs


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return storage options with what a checkpoint store needs, where the user said nothing."""
    from aiohttp import ClientTimeout

    session = dict(options.get("session_kwargs") or {})
    # gcsfs waits for ever, and aiohttp by itself five minutes, which a big object on a thin line may need.
    session.setdefault(
        "timeout",
        ClientTimeout(
            total=options.get("requests_timeout"), sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
        ),
    )
    options["session_kwargs"] = session
    # A stale listing would hide another machine's write.
    return {**options, "asynchronous": True, "skip_instance_cache": True, "use_listings_cache": False}


class _UnusableError(Exception):
    """gcsfs can't make anything of the options."""


def _made(make: Any, options: Mapping[str, Any]) -> Any:
    try:
        return make(**options)
    except (ValueError, TypeError, LookupError, OSError) as error:
        raise _UnusableError from error


def _lasts(credentials: Any) -> bool:
    if credentials is None:  # anonymous
        return True
    expiry = credentials.expiry  # in UTC, without saying so
    return bool(
        credentials.valid
        and (expiry is None or expiry.replace(tzinfo=UTC) - datetime.now(UTC) > _REFRESH_BEFORE)
    )


def _multipart(name: str, data: Data) -> tuple[str, bytes]:
    """Return the content type and the body of an upload."""
    boundary = secrets.token_hex(16)  # a fixed one may occur in the data
    # What everybody may read Google lets caches keep for an hour; a pointer's reader needs the newest.
    document = json.dumps({"name": name, "cacheControl": "no-store"})
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{document}\r\n"
        f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    body = b"".join((head.encode(), data, f"\r\n--{boundary}--".encode()))
    return f'multipart/related; boundary="{boundary}"', body


# ---- what an answer means


def _document(answer: _Answer, key: str) -> dict[str, Any]:
    _check(answer, key)
    try:
        document = json.loads(answer.body)
    except ValueError as error:
        raise AmbiguousError("the store's answer is damaged", key=key) from error
    if not isinstance(document, dict):
        raise AmbiguousError("the store's answer is damaged", key=key)
    return document


def _generation(found: Mapping[str, Any], key: str) -> Token:
    generation = found.get("generation")
    if generation is None:
        raise UnsupportedStoreError("the store does not tell an object's generation", key=key)
    return str(generation)


def _is_absent(answer: _Answer) -> bool:
    """Whether the object does not exist.

    Raises:
        StorageError: The bucket does not exist either.
    """
    if answer.status == 404 and b"bucket does not exist" in answer.body:
        raise _no_bucket()
    return answer.status == 404


def _no_bucket() -> StorageError:
    return StorageError("the bucket does not exist; create it or correct the URL", kind="no-such-bucket")


def _no_credentials() -> PermissionDeniedError:
    return PermissionDeniedError(
        "no usable credentials; run `gcloud auth application-default login`, set "
        "GOOGLE_APPLICATION_CREDENTIALS, or pass storage_options={'token': ...}",
        kind="no-credentials",
    )


_SLOWER = (ThrottledError, None, "the store asks to slow down")
_AGAIN = (AmbiguousError, None, "the store could not answer now")

ANSWERS: dict[int | str, Answer] = {
    # by the reason that the JSON API names, then by HTTP status
    "rateLimitExceeded": _SLOWER,
    "userRateLimitExceeded": _SLOWER,
    "retentionPolicyNotMet": (
        PermissionDeniedError,
        "retained",
        "a retention policy of the bucket forbids it; keep pointers out of it, or wait",
    ),
    "objectUnderActiveHold": (
        PermissionDeniedError,
        "retained",
        "a hold on the object forbids it; release it first",
    ),
    401: (
        PermissionDeniedError,
        "credentials",
        "the store does not accept the credentials; they may have expired, renew them",
    ),
    403: (
        PermissionDeniedError,
        "denied",
        "the store denies the request; grant the role Storage Object User on the bucket",
    ),
    412: (PreconditionFailedError, None, "the condition of the write did not hold"),
    429: _SLOWER,
    408: _AGAIN,
    409: _AGAIN,
    501: (UnsupportedStoreError, "not-implemented", "the store does not implement the request"),
}


def _check(answer: _Answer, key: str) -> None:
    """Raise the contract's exception unless the answer is a success."""
    if answer.status < 400:
        return
    reason, why = _reason(answer.body)
    known = ANSWERS.get(reason) or ANSWERS.get(answer.status)
    if known is None and answer.status >= 500:
        known = _AGAIN
    error, kind, message = known or (StorageError, "refused", "the store refused the request")
    raise error(
        message, kind=kind, key=key or None, status=answer.status, reason=reason or None, why=why or None
    )


def _reason(body: bytes) -> tuple[str, str]:
    """Return Google's word for an error, and its sentence."""
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        return str(error["errors"][0]["reason"]), str(error.get("message", ""))[:200]
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", text.strip()[:200]


def _told(error: Exception, key: str) -> NoReturn:
    """Raise the contract's exception for a request that got no answer."""
    import aiohttp
    from google.auth import exceptions as auth
    from requests import RequestException

    def is_one(*kinds: type[BaseException]) -> bool:
        return any(isinstance(one, kinds) for one in chain)

    chain = [error]
    while isinstance(chain[-1].__cause__, Exception):
        chain.append(chain[-1].__cause__)  # gcsfs wraps a failed renewal into errors of its own
    passing = any(getattr(one, "retryable", False) for one in chain)
    if passing or is_one(auth.TransportError, aiohttp.ClientConnectorError, RequestException):
        raise AmbiguousError(
            "the store can't be reached; check the endpoint and the network", kind="unreachable", key=key
        ) from error
    if is_one(auth.DefaultCredentialsError):
        raise _no_credentials() from error
    if is_one(auth.GoogleAuthError):
        raise PermissionDeniedError(
            "the credentials could not be renewed; log in again or replace them", kind="credentials"
        ) from error
    if is_one(aiohttp.InvalidURL, _UnusableError):
        raise StorageError(
            "the store's options are not usable", kind="bad-options", why=str(chain[-1])
        ) from error
    raise AmbiguousError("the request got no usable answer", key=key, why=type(error).__name__) from error
