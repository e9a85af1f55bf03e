"""`az://container/prefix` through adlfs.

Owns: which request of Azure's Blob service each method of the contract is.
Invariant: one method is one request (a listing: one per page, a delete: one per
key), and Azure's library repeats none; above `UPLOAD_BYTES` and `READ_BYTES` it
cuts a value into parts, whose whole appears, or is read, under one condition.
adlfs turns `storage_options` into a client, so they work as they do for it; its
own methods know no condition but "create". aiohttp below sends a PUT again, once,
when its connection breaks, so a write may be refused by its own success.

A token is an ETag. An existing blob answers 409 to a create: here that is the
lost race, and not "try again" as on S3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    PreconditionFailedError,
    StorageError,
    UnsupportedStoreError,
)
from cloudckpt.storage import idle
from cloudckpt.storage.answers import (
    RANGE_TRIES,
    AbsentError,
    OutOfRangeError,
    UnchangedError,
    no_range,
    shown,
)
from cloudckpt.storage.azure_answers import no_credentials, raise_told
from cloudckpt.storage.azure_beside import AzureBeside, check_tier, placed
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.pieces import in_pieces
from cloudckpt.storage.placing import NOWHERE, Placing, effective, lock_told
from cloudckpt.storage.retry import PATIENCE
from cloudckpt.storage.words import AZURES, check_words

PAGE_ROWS = 1000
DELETES_AT_ONCE = 16
PARTS_AT_ONCE = 4
UPLOAD_BYTES = 64 * 2**20
READ_BYTES = 32 * 2**20
INSTALL = 'pip install "cloudckpt[azure]"'

_TIMEOUTS = ("timeout", "connection_timeout", "read_timeout")


class AzureStorage(AzureBeside):
    """One container, or a prefix of it.

    Args:
        container: The container's name.
        prefix: Key prefix without a trailing slash, or "" for the whole container.
        storage_options: Passed to `adlfs.AzureBlobFileSystem` as they are.
        patience: Seconds without a sign of life after which a request is given up, where the
            options don't say.
        placing: What objects are written with.
    """

    blocking = False

    def __init__(
        self,
        container: str,
        prefix: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        patience: float = PATIENCE,
        placing: Placing = NOWHERE,
    ) -> None:
        try:
            import adlfs
        except ImportError as error:
            raise UnsupportedStoreError(f"az:// needs adlfs; {INSTALL}") from error
        self.url = f"az://{container}/{prefix}".rstrip("/")
        self._name = container
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = dict(storage_options or {})
        check_words(self._options, adlfs.AzureBlobFileSystem, "adlfs", AZURES)
        check_tier(placing)
        self._placing = placing
        self._adlfs = adlfs
        timeouts = {"connection_timeout": patience, "read_timeout": patience}
        timeouts |= {name: self._options[name] for name in _TIMEOUTS if self._options.get(name) is not None}
        # Repeating is the wrapper's, and the protocol's.
        self._each = {"retry_total": 0, "permit_redirects": False, **timeouts}
        self._service: Any = None
        self._credential: Any = None
        self._container: Any = None
        self._opening = asyncio.Lock()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        try:
            for _ in range(RANGE_TRIES):
                try:
                    return await self._read(key, offset, length)
                except OutOfRangeError:  # nothing to get, as always of an empty blob; the token is wanted
                    with self._told(key):
                        found = await (await self._blob(key)).get_blob_properties(**self._each)
                if found.size <= offset:  # else it has grown since
                    return Stored(b"", _token(found.etag, key))
            raise no_range(key)
        except AbsentError:
            return None
        except PreconditionFailedError as error:
            raise AmbiguousError("the blob changed while it was read", key=key) from error

    async def changed(self, key: str, token: Token) -> Stored | None:
        from azure.core import MatchConditions

        try:
            return await self._read(key, 0, None, etag=token, match_condition=MatchConditions.IfModified)
        except UnchangedError:
            return None

    async def _read(self, key: str, offset: int, length: int | None, **condition: Any) -> Stored:
        with self._told(key):
            # With an offset always: without one Azure's library takes an empty blob that was
            # written meanwhile for empty, and names the token of what was written.
            stream = await (await self._blob(key)).download_blob(
                offset=offset,
                length=None if length is None else max(length, 1),  # a range is at least a byte
                max_concurrency=PARTS_AT_ONCE,
                **condition,
                **self._each,
            )
            data = await stream.readall()
        return Stored(data if length is None else data[:length], _token(stream.properties.etag, key))

    async def create(self, key: str, data: Data) -> Token:
        return await self._upload(key, data, overwrite=False)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        from azure.core import MatchConditions

        condition = {"etag": token, "match_condition": MatchConditions.IfNotModified}
        try:
            return await self._upload(key, data, overwrite=True, **condition)
        except AbsentError as error:
            raise PreconditionFailedError("the key is missing", key=key) from error

    async def put(self, key: str, data: Data) -> None:
        placing = effective(self._placing)
        try:
            with lock_told(placing):
                await self._upload(key, data, overwrite=False, **placed(placing))
        except PreconditionFailedError:
            return  # write-once: what is there was written by an earlier try

    async def _upload(self, key: str, data: Data, **how: Any) -> Token:
        body = bytes(data)
        with self._told(key):
            blob = await self._blob(key)
            answer = await blob.upload_blob(
                body,
                length=len(body),
                max_concurrency=PARTS_AT_ONCE,
                raw_request_hook=_send_in_pieces,
                **how,
                **self._each,
            )
        return _token(answer["etag"], key)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        with self._told(prefix):
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
                with suppress(AbsentError), self._told(key):
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
                    loop = asyncio.get_running_loop()
                    service, found = await asyncio.to_thread(_connect, self._adlfs, self._options, loop)
                    if self._options.get("credential") is None:  # else it is the caller's to close
                        self._credential = found
                    transport = service._pipeline._transport
                    await transport.open()
                    idle.limit_idle(transport.session)
                    self._service, self._container = service, service.get_container_client(self._name)
        return self._container

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Turn what Azure's library raises into the contract's failures."""
        try:
            yield
        except CloudckptError:
            raise
        except Exception as error:  # noqa: BLE001 - Azure's and aiohttp's errors share no base class
            raise_told(error, key)


def _connect(adlfs: Any, options: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> tuple[Any, Any]:
    """Return the service client that adlfs makes of its options, and the credential that it found.

    Its constructor is left at that point. What comes next would tie the client to fsspec's
    own loop until the interpreter ends, and make a forked child wait for that loop for ever.
    """

    class Connected(Exception):  # noqa: N818 - it is the way out
        pass

    class FileSystem(adlfs.AzureBlobFileSystem):  # type: ignore[misc]
        def do_connect(self) -> None:
            if self.connection_string is None and self.account_name is None:
                raise no_credentials("the options name no account")
            super().do_connect()
            raise Connected(self.service_client, self.credential)

    # With a loop, which nothing uses then: else fsspec starts a thread with one.
    own = {"asynchronous": True, "loop": loop, "skip_instance_cache": True}
    try:
        FileSystem(**{**options, **own})
    except Connected as found:
        service, credential = found.args
        return service, credential if hasattr(credential, "close") else None
    except (ValueError, TypeError, LookupError) as error:
        raise StorageError(
            "the store's options are not usable", kind="bad-options", why=shown(str(error))
        ) from error
    raise UnsupportedStoreError(f"this adlfs can't be used; {INSTALL} -U", adlfs=adlfs.__version__)


def _send_in_pieces(request: Any) -> None:
    if isinstance(request.http_request.data, bytes):
        request.http_request.data = in_pieces(request.http_request.data)


def _is_folder(blob: Any) -> bool:
    """Whether it only stands for a folder, as accounts with a hierarchical namespace list them."""
    return (blob.metadata or {}).get("hdi_isfolder") == "true"


def _token(etag: str | None, key: str) -> Token:
    if not etag:  # what stands between the store and us made this answer
        raise AmbiguousError("the answer names no ETag", key=key)
    return str(etag)
