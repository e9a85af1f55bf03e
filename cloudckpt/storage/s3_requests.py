"""The contract as requests of S3, by whatever client sends them.

Owns: which request of S3 each method is, and how a client of botocore's kind is
made fit to send them. Invariant: one method is one request (a listing: one per
page), and each is sent once; no HEAD and no LIST where the contract reads or
writes a key. A value is one PutObject at any size, since a multipart upload has
no condition on its start. It holds no client: `s3.py` and `s3_boto3.py` do.
"""

from __future__ import annotations

import base64
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from cloudckpt.errors import AmbiguousError, CloudckptError, PreconditionFailedError, UnsupportedStoreError
from cloudckpt.storage.answers import (
    ELSEWHERE,
    RANGE_TRIES,
    REDIRECTS,
    AbsentError,
    OutOfRangeError,
    UnchangedError,
    no_range,
    part_of,
)
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.placing import NOWHERE, Placing, effective, lock_told
from cloudckpt.storage.s3_answers import raise_answer, raise_told
from cloudckpt.storage.s3_beside import GONE, S3Beside, placed
from cloudckpt.storage.words import refuse_unknown

DELETE_BATCH = 1000

_OPERATIONS = ("GetObject", "HeadObject", "ListObjectsV2", "DeleteObject", "DeleteObjects")


class S3Requests(S3Beside, ABC):
    """One bucket, or a prefix of it, by a client that a subclass has.

    Attributes:
        options: The storage options that it was made with; may have secrets in them.
    """

    blocking = False

    def __init__(
        self, bucket: str, prefix: str, options: Mapping[str, Any], placing: Placing = NOWHERE
    ) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self.options = options
        self._bucket = bucket
        self._placing = placing
        self._logged_in = False
        self._prefix = f"{prefix}/" if prefix else ""
        # A storage class is for payloads: a cold pointer could not be read, and a class for rare
        # access bills each pointer that was overwritten for a month.
        classed = (options.get("s3_additional_kwargs") or {}).get("StorageClass", "STANDARD") != "STANDARD"
        self._pointer = {"StorageClass": "STANDARD"} if classed else {}

    async def client(self) -> Any:
        """Return the client, of botocore's kind, that the requests go by.

        Raises:
            CloudckptError: There is none for these options.
        """
        try:
            return await self._connected()
        except CloudckptError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever botocore makes of the options
            raise_told(error, "")

    async def ask(self, method: str, key: str | None = None) -> Mapping[str, Any]:
        """Return the answer to a question that is none of the contract's, such as a bucket's settings.

        Args:
            method: As the client calls it; it takes a bucket, and a key if there is one.
            key: Relative to the store's root, like any other.

        Raises:
            AbsentError: There is nothing of what was asked for.
            CloudckptError: As in the contract.
        """
        answer: Mapping[str, Any] = await self._call(method, key)
        return answer

    @abstractmethod
    async def _connected(self) -> Any:
        """Return the client, made if need be."""

    @abstractmethod
    async def _send(self, method: str, **parameters: Any) -> Any:
        """Send one request, once; return the parsed answer."""

    @abstractmethod
    async def _body(self, answer: Any) -> bytes:
        """Read the body of an answer to its end and let go of the connection."""

    @abstractmethod
    async def close(self) -> None: ...

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        wanted: dict[str, str] = {}
        if offset or length is not None:
            last = "" if length is None else str(offset + max(length, 1) - 1)  # a range is at least a byte
            wanted["Range"] = f"bytes={offset}-{last}"
        try:
            answer = await self._get(key, offset, wanted)
        except AbsentError:
            return None
        if "Body" not in answer:
            return Stored(b"", _token(answer, key))
        stored = await self._stored(answer, key)
        is_part = "ContentRange" in answer or answer["ResponseMetadata"]["HTTPStatusCode"] == 206
        return Stored(part_of(stored.data, 0 if is_part else offset, length), stored.token)

    async def changed(self, key: str, token: Token) -> Stored | None:
        try:
            answer = await self._call("get_object", key, IfNoneMatch=token)
        except UnchangedError:
            return None
        return await self._stored(answer, key)

    async def _stored(self, answer: Any, key: str) -> Stored:
        try:
            data = await self._body(answer)
        except Exception as error:  # whatever breaks in mid-body is a broken answer
            raise AmbiguousError("the connection broke while reading", key=key) from error
        return Stored(data, _token(answer, key))

    async def _get(self, key: str, offset: int, wanted: Mapping[str, str]) -> Any:
        for _ in range(RANGE_TRIES):
            try:
                return await self._call("get_object", key, **wanted)
            except OutOfRangeError:  # nothing to get; but the caller wants the token
                answer = await self._call("head_object", key)
            if answer.get("ContentLength", 0) <= offset:  # else it has grown since
                return answer
        raise no_range(key)

    async def create(self, key: str, data: Data) -> Token:
        return await self._put(key, data, IfNoneMatch="*", **self._pointer)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        try:
            return await self._put(key, data, IfMatch=token, **self._pointer)
        except AbsentError as error:  # S3 answers 404 to If-Match on a missing key
            raise PreconditionFailedError("the key is missing", key=key) from error

    async def put(self, key: str, data: Data) -> None:
        placing = effective(self._placing)
        try:
            with lock_told(placing):
                await self._put(key, data, IfNoneMatch="*", **placed(placing))
        except PreconditionFailedError:
            return  # write-once: what is there was written by an earlier try

    async def _put(self, key: str, data: Data, **parameters: Any) -> Token:
        body = bytes(data)
        # A writer may be killed between the head and the body of its request. SeaweedFS 4.48 takes
        # what it has for the whole then, an empty pointer, unless it can see that it is not.
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        answer = await self._call("put_object", key, Body=body, ContentMD5=md5, **parameters)
        return _token(answer, key)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        more = {"ContinuationToken": cursor} if cursor else {}
        answer = await self._call("list_objects_v2", None, Prefix=self._prefix + prefix, **more)
        rows = tuple(
            Listed(row["Key"][len(self._prefix) :], row["Size"], row["LastModified"])
            for row in answer.get("Contents", ())
        )
        if not answer.get("IsTruncated"):
            return Page(rows, None)
        if not answer.get("NextContinuationToken"):
            raise AmbiguousError("the store cut the listing, and does not say how to go on", key=prefix)
        return Page(rows, answer["NextContinuationToken"])

    async def delete(self, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            with suppress(AbsentError):
                await self._call("delete_object", keys[0])
            return
        for start in range(0, len(keys), DELETE_BATCH):
            named = [{"Key": self._prefix + key} for key in keys[start : start + DELETE_BATCH]]
            answer = await self._call("delete_objects", None, Delete={"Objects": named, "Quiet": True})
            for failed in answer.get("Errors", ()):
                if failed.get("Code") not in GONE:  # how some stores answer for a key that is missing
                    raise_answer(failed.get("Code", ""), 0, failed.get("Key", "")[len(self._prefix) :], None)

    async def _call(self, method: str, key: str | None, **parameters: Any) -> Any:
        if key is not None:
            parameters["Key"] = self._prefix + key
        try:
            answer = await self._send(method, Bucket=self._bucket, **parameters)
        except CloudckptError:
            raise
        except Exception as error:  # noqa: BLE001 - s3fs, botocore and aiohttp share no base class
            raise_told(error, key or "", logged_in=self._logged_in)
        self._logged_in = True
        return answer


def _token(answer: Mapping[str, Any], key: str) -> Token:
    if not answer.get("ETag"):  # what stands between the store and us made this answer
        raise AmbiguousError("the answer names no ETag", key=key)
    return str(answer["ETag"])


def with_defaults(config: Mapping[str, Any] | None, patience: float) -> dict[str, Any]:
    """Return botocore's config with what a checkpoint store needs, where the user said nothing."""
    return {
        "retries": {"total_max_attempts": 1},  # one place retries: ours
        "max_pool_connections": 64,  # as many as there may be saves at once
        "connect_timeout": patience,
        "read_timeout": patience,
        **(config or {}),
    }


def make_fit(client: Any, config: Mapping[str, Any], always: Mapping[str, Any], install: str) -> None:
    """Make a client of botocore's kind fit for our requests.

    Args:
        client: The client.
        config: What it was configured with.
        always: What the caller wants in each request that knows the word.
        install: The command that brings a newer botocore.

    Raises:
        UnsupportedStoreError: This botocore would drop our conditions without a word.
        InvalidInputError: No request knows one of the caller's words, such as an encryption's.
    """
    known = {
        operation: set(client.meta.service_model.operation_model(operation).input_shape.members)
        for operation in ("PutObject", *(_OPERATIONS if always else ()))
    }
    refuse_unknown(always, set().union(*known.values()), "S3", "s3_additional_kwargs.")
    if not {"IfMatch", "IfNoneMatch"} <= known["PutObject"]:
        import botocore

        raise UnsupportedStoreError(
            f"this botocore does not know conditional writes and would drop the condition; {install} -U",
            botocore=botocore.__version__,
        )
    from botocore.handlers import add_expect_header

    # Send bodies at once: with `Expect: 100-continue` each PUT waits a round trip for nothing.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register_first("needs-retry.s3", _stay)
    if not is_amazons(client.meta.endpoint_url):
        # Checksum trailers, on by default since boto3 1.36, break many compatible stores.
        for option in ("request_checksum_calculation", "response_checksum_validation"):
            if option not in config:
                setattr(client.meta.config, option, "when_required")


def _stay(response: Any = None, **_more: Any) -> None:
    """Take no answer from elsewhere: aiohttp follows a redirect, and a page there looks like a success."""
    if response is None or response[0].status_code in REDIRECTS:  # that one was not followed
        return
    if not getattr(response[0].raw, "history", ()):
        return
    response[0].raw.close()
    raise AmbiguousError(ELSEWHERE[2], kind=ELSEWHERE[1])  # it was sent, to whoever is there


def is_amazons(endpoint: str) -> bool:
    """Whether an endpoint is one of Amazon's own."""
    from urllib.parse import urlsplit

    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
