"""`az://container/prefix` through adlfs.

Owns: which request of Azure's Blob service each method of the contract is, and
what each answer means. Invariant: one method is one request (a listing: one per
page, a delete: one per key), and each is sent once; above `UPLOAD_BYTES` and
`READ_BYTES` Azure's library cuts a value into parts, whose whole appears, or is
read, under one condition. adlfs turns `storage_options` into a client, so they
work as they do for it; its own methods know no condition but "create".

A token is an ETag. An existing blob answers 409 to a create: here that is the
lost race, and not "try again" as on S3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, TypeAlias

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

PAGE_ROWS = 1000
DELETES_AT_ONCE = 16
PARTS_AT_ONCE = 4
UPLOAD_BYTES = 64 * 2**20
READ_BYTES = 32 * 2**20
INSTALL = 'pip install "cloudckpt[azure]"'

_TIMEOUTS = ("timeout", "connection_timeout", "read_timeout")


class AzureStorage:
    """One container, or a prefix of it.

    Args:
        container: The container's name.
        prefix: Key prefix without a trailing slash, or "" for the whole container.
        storage_options: Passed to `adlfs.AzureBlobFileSystem` as they are.
    """

    blocking = False

    def __init__(
        self, container: str, prefix: str, *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        try:
            import adlfs
        except ImportError as error:
            raise UnsupportedStoreError(f"az:// needs adlfs; {INSTALL}") from error
        self.url = f"az://{container}/{prefix}".rstrip("/")
        self._name = container
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = dict(storage_options or {})
        self._adlfs = adlfs
        timeouts = {name: self._options[name] for name in _TIMEOUTS if self._options.get(name) is not None}
        self._each = {"retry_total": 0, **timeouts}  # repeating is the wrapper's, and the protocol's
        self._service: Any = None
        self._credential: Any = None
        self._container: Any = None
        self._opening = asyncio.Lock()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        part = {}
        if offset or length is not None:
            # A range is at least a byte.
            part = {"offset": offset, "length": None if length is None else max(length, 1)}
        try:
            async with self._told(key):
                blob = await self._blob(key)
                stream = await blob.download_blob(**part, max_concurrency=PARTS_AT_ONCE, **self._each)
                data = await stream.readall()
            token = stream.properties.etag
        except _AbsentError:
            return None
        except _OutOfRangeError:  # nothing to get; but the caller wants the token
            return await self._nothing(key)
        except PreconditionFailedError as error:
            raise AmbiguousError("the blob changed while it was read", key=key) from error
        return Stored(data if length is None else data[:length], str(token))

    async def _nothing(self, key: str) -> Stored | None:
        try:
            async with self._told(key):
                properties = await (await self._blob(key)).get_blob_properties(**self._each)
        except _AbsentError:  # deleted since
            return None
        return Stored(b"", str(properties.etag))

    async def create(self, key: str, data: Data) -> Token:
        return await self._upload(key, data, overwrite=False)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        from azure.core import MatchConditions

        return await self._upload(
            key, data, overwrite=True, etag=token, match_condition=MatchConditions.IfNotModified
        )

    async def put(self, key: str, data: Data) -> None:
        try:
            await self.create(key, data)
        except PreconditionFailedError:
            return  # write-once: what is there was written by an earlier try

    async def _upload(self, key: str, data: Data, **condition: Any) -> Token:
        body = bytes(data)
        async with self._told(key):
            blob = await self._blob(key)
            answer = await blob.upload_blob(
                body, length=len(body), max_concurrency=PARTS_AT_ONCE, **condition, **self._each
            )
        return str(answer["etag"])

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        async with self._told(prefix):
            container = await self._opened()
            pages = container.list_blobs(
                name_starts_with=self._prefix + prefix,
                include=["metadata"],
                results_per_page=PAGE_ROWS,
                **self._each,
            ).by_page(cursor)
            blobs = [blob async for blob in await anext(pages)]
        rows = tuple(
            Listed(blob.name[len(self._prefix) :], blob.size, blob.last_modified)
            for blob in blobs
            if not _is_folder(blob)
        )
        return Page(rows, pages.continuation_token or None)

    async def delete(self, keys: Sequence[str]) -> None:
        async def some(keys: Sequence[str]) -> None:
            for key in keys:
                with suppress(_AbsentError):
                    async with self._told(key):
                        await (await self._blob(key)).delete_blob(**self._each)

        lanes = [keys[n::DELETES_AT_ONCE] for n in range(min(DELETES_AT_ONCE, len(keys)))]
        outcomes = await asyncio.gather(*map(some, lanes), return_exceptions=True)
        for failed in filter(None, outcomes):
            raise failed

    async def close(self) -> None:
        service, credential = self._service, self._credential
        self._service = self._credential = self._container = None
        if service is not None:
            await service.close()
        if credential is not None:
            await credential.close()

    async def _blob(self, key: str) -> Any:
        return (await self._opened()).get_blob_client(self._prefix + key)

    async def _opened(self) -> Any:
        if self._container is None:
            async with self._opening:
                if self._container is None:
                    # In a thread: what looks for credentials takes a while to import.
                    service, found = await asyncio.to_thread(_connect, self._adlfs, self._options)
                    if self._options.get("credential") is None:  # else it is the caller's to close
                        self._credential = found
                    self._service, self._container = service, service.get_container_client(self._name)
        return self._container

    @asynccontextmanager
    async def _told(self, key: str) -> AsyncIterator[None]:
        """Turn what adlfs and Azure's library raise into the contract's failures."""
        try:
            yield
        except CloudckptError:
            raise
        except Exception as error:  # noqa: BLE001 - Azure's, aiohttp's and adlfs's errors share no base class
            _raise(error, key)


def _connect(adlfs: Any, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the service client that adlfs makes of its options, and the credential that it found.

    Its constructor is left at that point. What comes next would tie the client to fsspec's
    own loop until the interpreter ends, and make a forked child wait for that loop for ever.
    """

    class Connected(Exception):  # noqa: N818 - it is the way out
        pass

    class FileSystem(adlfs.AzureBlobFileSystem):  # type: ignore[misc, name-defined]
        def do_connect(self) -> None:
            if self.connection_string is None and self.account_name is None:
                raise _no_credentials("the options name no account")
            super().do_connect()
            raise Connected(self.service_client, self.credential)

    # Asynchronous, with a loop that is never used: else fsspec starts a thread with one.
    own = {"asynchronous": True, "loop": asyncio.new_event_loop(), "skip_instance_cache": True}
    try:
        FileSystem(**{**options, **own})
    except Connected as found:
        service, credential = found.args
        return service, credential if hasattr(credential, "close") else None
    finally:
        own["loop"].close()
    raise UnsupportedStoreError(f"this adlfs can't be used; {INSTALL} -U", adlfs=adlfs.__version__)


def _is_folder(blob: Any) -> bool:
    """Whether it only stands for a folder, as accounts with a hierarchical namespace list them."""
    return (blob.metadata or {}).get("hdi_isfolder") == "true"
