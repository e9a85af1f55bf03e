"""`s3://bucket/prefix` through s3fs.

Owns: which S3 request each method of the contract is, and what each answer of
S3 means. Invariant: one method is one request (a listing: one per page), no
HEAD and no LIST where the contract reads or writes a key. s3fs brings the
session, so credentials, profiles, roles, endpoints and `storage_options` work
as they do for s3fs; its `cat_file` and `pipe_file` are passed by, since the
first may read a stale listing and the second drops `IfMatch` on multipart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias
from urllib.parse import urlsplit

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
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token

DELETE_BATCH = 1000
INSTALL = 'pip install "cloudckpt[s3]"'


class S3Storage:
    """One bucket, or a prefix of it.

    Args:
        bucket: The bucket's name.
        prefix: Key prefix without a trailing slash, or "" for the whole bucket.
        storage_options: Passed to `s3fs.S3FileSystem` as they are.
    """

    blocking = False

    def __init__(self, bucket: str, prefix: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
        try:
            import s3fs
        except ImportError as error:
            raise UnsupportedStoreError(f"s3:// needs s3fs; {INSTALL}") from error
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = _with_defaults(dict(storage_options or {}))
        self._make = s3fs.S3FileSystem
        self._fs: Any = None
        self._clients: dict[int, Any] = {}
        self._opening: asyncio.Lock | None = None

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        wanted: dict[str, str] = {}
        if offset or length is not None:
            last = "" if length is None else str(offset + max(length, 1) - 1)  # a range is at least a byte
            wanted["Range"] = f"bytes={offset}-{last}"
        try:
            answer = await self._get(key, wanted)
        except _AbsentError:
            return None
        if "Body" not in answer:
            return Stored(b"", answer["ETag"])
        try:
            async with answer["Body"] as body:
                data = await body.read()
        except Exception as error:  # whatever breaks in mid-body is a broken answer
            raise AmbiguousError("the connection broke while reading", key=key) from error
        return Stored(data if length is None else data[:length], answer["ETag"])

    async def _get(self, key: str, wanted: Mapping[str, str]) -> Any:
        try:
            return await self._call("get_object", key, **wanted)
        except _OutOfRangeError:  # nothing to get; but the caller wants the token
            return await self._call("head_object", key)

    async def create(self, key: str, data: Data) -> Token:
        answer = await self._call("put_object", key, Body=bytes(data), IfNoneMatch="*")
        return str(answer["ETag"])

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        try:
            answer = await self._call("put_object", key, Body=bytes(data), IfMatch=token)
        except _AbsentError as error:  # S3 answers 404 to If-Match on a missing key
            raise PreconditionFailedError("the key is missing", key=key) from error
        return str(answer["ETag"])

    async def put(self, key: str, data: Data) -> None:
        try:
            await self.create(key, data)
        except PreconditionFailedError:
            return  # write-once: what is there was written by an earlier try

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        more = {"ContinuationToken": cursor} if cursor else {}
        answer = await self._call("list_objects_v2", None, Prefix=self._prefix + prefix, **more)
        rows = tuple(
            Listed(row["Key"][len(self._prefix) :], row["Size"], row["LastModified"])
            for row in answer.get("Contents", ())
        )
        return Page(rows, answer.get("NextContinuationToken") if answer.get("IsTruncated") else None)

    async def delete(self, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            with suppress(_AbsentError):
                await self._call("delete_object", keys[0])
            return
        for start in range(0, len(keys), DELETE_BATCH):
            named = [{"Key": self._prefix + key} for key in keys[start : start + DELETE_BATCH]]
            answer = await self._call("delete_objects", None, Delete={"Objects": named, "Quiet": True})
            for failed in answer.get("Errors", ()):
                _raise(failed.get("Code", ""), 0, failed.get("Key", ""), None)

    async def close(self) -> None:
        fs, self._fs = self._fs, None
        self._clients.clear()
        if fs is not None and fs._s3 is not None:
            await fs._s3creator.__aexit__(None, None, None)

    async def _call(self, method: str, key: str | None, **parameters: Any) -> Any:
        if key is not None:
            parameters["Key"] = self._prefix + key
        try:
            fs = await self._session()
            return await fs._call_s3(method, Bucket=self._bucket, **parameters)
        except CloudckptError:
            raise
        except Exception as error:  # noqa: BLE001 - s3fs, botocore and aiohttp share no base class
            _told(error, key or "")

    async def _session(self) -> Any:
        """Return the file system with a client for this bucket that is fit for our requests."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._fs is None:
                self._fs = self._make(**self._options)
                # Older s3fs closes its session in whatever loop the garbage collector strikes.
                self._fs.close_session = _leave_open
                self._fs.retries = 1  # repeating is the wrapper's, and the protocol's for conditional writes
            await self._fs.set_session()
            client = await self._fs.get_s3(self._bucket)
            if id(client) not in self._clients:
                _check_conditions(client)
                _tune(client, self._options["config_kwargs"])
                self._clients[id(client)] = client
        return self._fs


def _leave_open(*_: object) -> None:
    """Close nothing: `S3Storage.close` does, on the loop that the session belongs to."""


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return storage options with what a checkpoint store needs, where the user said nothing."""
    config = dict(options.get("config_kwargs") or {})
    config.setdefault("retries", {"total_max_attempts": 1})  # one place retries: ours
    config.setdefault("max_pool_connections", 64)
    options["config_kwargs"] = config
    # A stale listing would hide another machine's write even from a read.
    return {**options, "asynchronous": True, "skip_instance_cache": True, "use_listings_cache": False}


def _check_conditions(client: Any) -> None:
    """Refuse a botocore whose PutObject would drop our conditions without a word."""
    known = client.meta.service_model.operation_model("PutObject").input_shape.members
    if not {"IfMatch", "IfNoneMatch"} <= set(known):
        import botocore

        raise UnsupportedStoreError(
            f"this botocore does not know conditional writes and would drop the condition; {INSTALL} -U",
            botocore=botocore.__version__,
        )


def _tune(client: Any, config: Mapping[str, Any]) -> None:
    from botocore.handlers import add_expect_header

    # Send bodies at once: with `Expect: 100-continue` each PUT waits a round trip for nothing.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    if not urlsplit(client.meta.endpoint_url).hostname.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        # Checksum trailers, on by default since boto3 1.36, break many compatible stores.
        for option in ("request_checksum_calculation", "response_checksum_validation"):
            if option not in config:
                setattr(client.meta.config, option, "when_required")


class _AbsentError(StorageError):
    """The key does not exist."""


class _OutOfRangeError(StorageError):
    """The range begins behind the value's end."""


_Answer: TypeAlias = tuple[type[StorageError] | type[UnsupportedStoreError], str | None, str]

_FAILED: _Answer = (PreconditionFailedError, None, "the condition of the write did not hold")
_ABSENT: _Answer = (_AbsentError, None, "the key does not exist")
_BEHIND: _Answer = (_OutOfRangeError, None, "the range begins behind the end")
_SLOWER: _Answer = (ThrottledError, None, "the store asks to slow down")
# 409 ConditionalRequestConflict says "try again"; it is no lost race.
_AGAIN: _Answer = (AmbiguousError, None, "the store could not answer now")
_REGION: _Answer = (
    StorageError,
    "wrong-region",
    "the bucket is in another region; set AWS_DEFAULT_REGION or client_kwargs={'region_name': ...}",
)
_EXPIRED: _Answer = (PermissionDeniedError, "credentials", "the credentials have expired; renew them")
_COLD: _Answer = (ArchivedError, None, "the object is in a cold tier; restore it first")
_NO_CONDITIONS: _Answer = (
    UnsupportedStoreError,
    "not-implemented",
    "the store does not implement what conditional writes need",
)

_ANSWERS: dict[str, _Answer] = {
    # by S3's error code (its API reference, "Error responses"), then by HTTP status
    "PreconditionFailed": _FAILED,
    "412": _FAILED,
    "NoSuchBucket": (
        StorageError,
        "no-such-bucket",
        "the bucket does not exist; create it or correct the URL",
    ),
    "NoSuchKey": _ABSENT,
    "NotFound": _ABSENT,
    "404": _ABSENT,
    "InvalidRange": _BEHIND,
    "416": _BEHIND,
    "SlowDown": _SLOWER,
    "Throttling": _SLOWER,
    "ThrottlingException": _SLOWER,
    "RequestLimitExceeded": _SLOWER,
    "TooManyRequests": _SLOWER,
    "429": _SLOWER,
    "408": _AGAIN,
    "409": _AGAIN,
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "301": _REGION,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": (PermissionDeniedError, "credentials", "the session token is not valid; renew it"),
    "InvalidAccessKeyId": (
        PermissionDeniedError,
        "credentials",
        "the store does not know this access key; check the credentials",
    ),
    "SignatureDoesNotMatch": (
        PermissionDeniedError,
        "credentials",
        "the store refuses the signature; check the secret key and the endpoint",
    ),
    "RequestTimeTooSkewed": (
        PermissionDeniedError,
        "clock",
        "this machine's clock differs too much from the store's; set the clock",
    ),
    "403": (
        PermissionDeniedError,
        "denied",
        (
            "the store denies the request; grant the right, and s3:ListBucket too, "
            "since without it a missing key is answered as denied"
        ),
    ),
    "InvalidObjectState": _COLD,
    "NotImplemented": _NO_CONDITIONS,
    "501": _NO_CONDITIONS,
}


def _told(error: Exception, key: str) -> NoReturn:
    """Raise the contract's exception for what s3fs, botocore or aiohttp raised."""
    from botocore import exceptions as aws

    cause: BaseException = error
    while cause.__cause__ is not None and not hasattr(cause, "response"):
        cause = cause.__cause__  # s3fs translates to OSError; the truth is its cause
    response = getattr(cause, "response", None)
    if isinstance(response, Mapping):
        code = str(response.get("Error", {}).get("Code", ""))
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        _raise(code, status, key, cause)
    if isinstance(cause, aws.NoCredentialsError | aws.PartialCredentialsError | aws.CredentialRetrievalError):
        raise PermissionDeniedError(
            "no usable credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, "
            "or pass storage_options",
            kind="no-credentials",
        ) from cause
    bad = (aws.ProfileNotFound, aws.NoRegionError, aws.ParamValidationError, ValueError, TypeError)
    if isinstance(cause, bad):
        raise StorageError(
            "the store's options are not usable", kind="bad-options", why=str(cause)
        ) from cause
    if isinstance(cause, aws.EndpointConnectionError):
        raise AmbiguousError(
            "the store can't be reached; check the endpoint and the network", kind="unreachable", key=key
        ) from cause
    raise AmbiguousError("the request got no usable answer", key=key, why=type(cause).__name__) from cause


def _raise(code: str, status: int, key: str, cause: BaseException | None) -> NoReturn:
    known = _ANSWERS.get(code) or _ANSWERS.get(str(status))
    if known is None and (status >= 500 or status == 0):
        known = _AGAIN
    error, kind, message = known or (StorageError, "refused", "the store refused the request")
    raise error(message, kind=kind, key=key or None, code=code or None, status=status or None) from cause
