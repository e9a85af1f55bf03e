"""`gs://bucket/prefix` through gcsfs.

Owns: which request of Google's JSON API each method of the contract is. Invariant:
one method is one request (a listing: one per page, a delete: one per key), and
each is sent once, unless it was refused for its credentials. gcsfs brings the endpoint, the
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
from typing import Any
from urllib.parse import quote

from cloudckpt.errors import (
    CloudckptError,
    PreconditionFailedError,
    UnsupportedStoreError,
)
from cloudckpt.storage import idle
from cloudckpt.storage.answers import RANGE_TRIES, AbsentError, no_range, part_of
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.gcs_answers import (
    UnusableError,
    check,
    document,
    is_absent,
    no_bucket,
    no_credentials,
    raise_told,
)
from cloudckpt.storage.gcs_beside import GCSBeside, placed
from cloudckpt.storage.pieces import in_pieces
from cloudckpt.storage.placing import NOWHERE, Placing, effective, lock_told
from cloudckpt.storage.retry import PATIENCE
from cloudckpt.storage.words import check_words

PAGE_ROWS = 1000
NOT_PLACED: Mapping[str, Any] = {}
DELETES_AT_ONCE = 16
INSTALL = 'pip install "cloudckpt[gcs]"'

_REFRESH_BEFORE = timedelta(seconds=330)
"""gcsfs renews a token that has 300 s left, and blocks the loop meanwhile; we come first, in a thread."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class GCSStorage(GCSBeside):
    """One bucket, or a prefix of it.

    Args:
        bucket: The bucket's name.
        prefix: Key prefix without a trailing slash, or "" for the whole bucket.
        storage_options: Passed to `gcsfs.GCSFileSystem`.
        patience: Seconds without a sign of life after which a request is given up, where the
            options don't say.
        placing: What objects are written with.
    """

    blocking = False

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        patience: float = PATIENCE,
        placing: Placing = NOWHERE,
    ) -> None:
        try:
            # What `gcsfs` itself exports asks for the kind of each bucket by gRPC, up to a minute long.
            from gcsfs.core import GCSFileSystem
        except ImportError as error:
            raise UnsupportedStoreError(f"gs:// needs gcsfs; {INSTALL}") from error
        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._objects = f"b/{quote(bucket, safe='')}/o"
        self._prefix = f"{prefix}/" if prefix else ""
        check_words(storage_options or {}, GCSFileSystem, "gcsfs")
        self._options = _with_defaults(dict(storage_options or {}), patience)
        self._placing = placing
        self._make = GCSFileSystem
        self._fs: Any = None
        self._opening = asyncio.Lock()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        wanted = {}
        if offset or length is not None:
            last = "" if length is None else str(offset + max(length, 1) - 1)  # a range is at least a byte
            wanted["Range"] = f"bytes={offset}-{last}"
        for _ in range(RANGE_TRIES):
            answer = await self._ask("GET", self._path(key), key, headers=wanted, alt="media")
            if answer.status != 416:
                break
            # Nothing to get; but the caller wants the token.
            answer = await self._ask("GET", self._path(key), key, fields="generation,size")
            if is_absent(answer.status, answer.body, key):
                return None
            found = _document(answer, key)
            if int(found.get("size", 0)) <= offset:  # else it has grown since
                return Stored(b"", _generation(found, key))
        else:
            raise no_range(key)
        if is_absent(answer.status, answer.body, key):
            return None
        stored = _stored(answer, key)
        return Stored(part_of(stored.data, 0 if answer.status == 206 else offset, length), stored.token)

    async def changed(self, key: str, token: Token) -> Stored | None:
        answer = await self._ask("GET", self._path(key), key, alt="media", ifGenerationNotMatch=token)
        if answer.status == 304:
            return None
        if is_absent(answer.status, answer.body, key):
            raise AbsentError("the object does not exist", key=key)
        return _stored(answer, key)

    async def create(self, key: str, data: Data) -> Token:
        return await self._upload(key, data, "0")

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._upload(key, data, token)

    async def put(self, key: str, data: Data) -> None:
        placing = effective(self._placing)
        try:
            with lock_told(placing):
                await self._upload(key, data, "0", placed(placing))
        except PreconditionFailedError:
            return  # write-once: what is there was written by an earlier try

    async def _upload(
        self, key: str, data: Data, generation: str, placed: Mapping[str, Any] = NOT_PLACED
    ) -> Token:
        kind, body = _multipart(self._prefix + key, data, placed)
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
        if is_absent(answer.status, answer.body, key):  # an upload names no object that could be missing
            raise no_bucket()
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
        if is_absent(answer.status, answer.body, prefix):
            raise no_bucket()
        found = _document(answer, prefix)
        rows = (
            (row["name"][len(self._prefix) :], int(row["size"]), datetime.fromisoformat(row["timeCreated"]))
            for row in found.get("items", ())
        )
        return Page(tuple(Listed(*row) for row in rows), found.get("nextPageToken") or None)

    async def delete(self, keys: Sequence[str]) -> None:
        async def some(keys: Sequence[str]) -> None:
            for key in keys:
                answer = await self._ask("DELETE", self._path(key), key)
                if not is_absent(answer.status, answer.body, key):
                    check(answer.status, answer.body, key)

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
        again: bool = False,
        **parameters: str | None,
    ) -> _Answer:
        """Send one request and return its answer, whatever it says.

        A second time after a 401: it was not done, and renewed credentials may be taken.
        """
        try:
            fs = await self._session()
            token = getattr(fs.credentials.credentials, "token", None)
            async with fs.session.request(
                method,
                f"{fs._location}{path}",
                params=fs._get_params(parameters),  # drops None, adds who pays
                headers=fs._get_headers(headers),
                data=None if body is None else in_pieces(body),
                allow_redirects=False,
            ) as answer:
                found = _Answer(answer.status, answer.headers, await answer.read())
        except CloudckptError:
            raise
        except Exception as error:  # noqa: BLE001 - gcsfs, google.auth and aiohttp share no base class
            raise_told(error, key)
        if found.status == 401:
            if fs.credentials.credentials is None:
                raise no_credentials()
            if not again and _drop(fs.credentials.credentials, token):
                return await self._ask(
                    method, path, key, headers=headers, body=body, again=True, **parameters
                )
        return found

    async def _session(self) -> Any:
        """Return the file system with an open session and credentials that last for this request."""
        if self._fs is None:
            async with self._opening:
                if self._fs is None:
                    # In a thread: it looks for credentials, on the network too, and blocks.
                    fs = await asyncio.to_thread(_made, self._make, self._options)
                    await fs._set_session()
                    if "connector" not in self._options["session_kwargs"]:  # else it is the caller's
                        idle.limit_idle(fs.session)
                    self._fs = fs
        if not _lasts(self._fs.credentials.credentials):
            await asyncio.to_thread(self._fs.credentials.maybe_refresh)
        return self._fs


def _with_defaults(options: dict[str, Any], patience: float) -> dict[str, Any]:
    """Return storage options with what a checkpoint store needs, where the user said nothing."""
    from aiohttp import ClientTimeout

    session = dict(options.get("session_kwargs") or {})
    # gcsfs waits for ever, and aiohttp by itself five minutes, which a big object on a thin line may need.
    session.setdefault(
        "timeout",
        ClientTimeout(total=options.get("requests_timeout"), sock_connect=patience, sock_read=patience),
    )
    options["session_kwargs"] = session
    # A stale listing would hide another machine's write.
    return {**options, "asynchronous": True, "skip_instance_cache": True, "use_listings_cache": False}


def _made(make: Any, options: Mapping[str, Any]) -> Any:
    try:
        return make(**options)
    except (ValueError, TypeError, LookupError, OSError) as error:
        raise UnusableError from error


def _lasts(credentials: Any) -> bool:
    if credentials is None:  # anonymous
        return True
    expiry = credentials.expiry  # in UTC, without saying so
    return bool(
        credentials.valid
        and (expiry is None or expiry.replace(tzinfo=UTC) - datetime.now(UTC) > _REFRESH_BEFORE)
    )


def _drop(credentials: Any, token: str | None) -> bool:
    """Let go of a token that the store does not take, unless it was renewed since; False if it can't be."""
    if getattr(credentials, "refresh_token", "") is None:  # the bare token that the user gave
        return False
    if credentials.token == token:
        credentials.token = None
    return True


def _multipart(name: str, data: Data, placed: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the content type and the body of an upload."""
    boundary = secrets.token_hex(16)  # a fixed one may occur in the data
    # What everybody may read Google lets caches keep for an hour; a pointer's reader needs the newest.
    about = json.dumps({"name": name, "cacheControl": "no-store", **placed})
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{about}\r\n"
        f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    body = b"".join((head.encode(), data, f"\r\n--{boundary}--".encode()))
    return f'multipart/related; boundary="{boundary}"', body


# ---- what is in an answer


def _document(answer: _Answer, key: str) -> dict[str, Any]:
    return document(answer.status, answer.body, key)


def _stored(answer: _Answer, key: str) -> Stored:
    check(answer.status, answer.body, key)
    return Stored(answer.body, _generation({"generation": answer.headers.get("x-goog-generation")}, key))


def _generation(found: Mapping[str, Any], key: str) -> Token:
    generation = found.get("generation")
    if generation is None:
        raise UnsupportedStoreError("the store does not tell an object's generation", key=key)
    return str(generation)
