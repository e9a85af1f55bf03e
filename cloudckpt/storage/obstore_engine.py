"""`s3://`, `gs://` and `az://` through obstore: no hop, a tenth of the client's time, little to import.

Owns: which call of obstore's each method of the contract is. Invariant: one
method is one request (a listing: one per page), sent once: obstore's own
retries are off, since it would send a conditional write again and report its
own success as a lost race. Its calls block without holding the interpreter, so
the coroutines never suspend.

A token is an ETag, and on Google a generation. obstore lists by folder, so the
rest of a prefix is sifted here.

obstore's threads don't survive a fork, and a call in the child would wait for
them for ever; so a child whose parent has used it is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from cloudckpt.errors import (
    CloudckptError,
    InvalidInputError,
    PreconditionFailedError,
    UnsupportedStoreError,
)
from cloudckpt.storage.answers import RANGE_TRIES, AbsentError, OutOfRangeError, UnchangedError, no_range
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.obstore_answers import INSTALL, raise_made, raise_told
from cloudckpt.storage.obstore_options import Profile, Recipe, recipe_for
from cloudckpt.storage.placing import NOWHERE, Placing, check_cant, effective
from cloudckpt.storage.retry import PATIENCE

PAGE_ROWS = 1000
SMALL_BYTES = 2**20
LARGE_PATIENCE = 6
"""To obstore an upload is waiting for its answer, so a large one is waited for that much longer."""

_STORES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_ONCE = {"max_retries": 0}  # repeating is the wrapper's, and the protocol's for conditional writes


class ObstoreStorage:
    """One bucket, or a prefix of it.

    Args:
        scheme: ``s3``, ``gs`` or ``az``.
        bucket: The bucket's or container's name.
        prefix: Key prefix without a trailing slash, or "" for the whole bucket.
        storage_options: The words of s3fs, gcsfs or adlfs, see `obstore_options.py`.
        patience: Seconds without a sign of life after which a request is given up, where the
            options don't say.
        placing: What objects are written with; obstore can send a storage class and no lock.

    Attributes:
        options: The storage options that it was made with; may have secrets in them.
    """

    blocking = True

    def __init__(
        self,
        scheme: str,
        bucket: str,
        prefix: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        patience: float = PATIENCE,
        placing: Placing = NOWHERE,
    ) -> None:
        if scheme not in _STORES:
            raise UnsupportedStoreError(
                "obstore has no conditional replace for this kind of store; leave the engine out",
                scheme=scheme,
            )
        try:
            import obstore
        except ImportError as error:
            raise UnsupportedStoreError(f"engine='obstore' needs obstore; {INSTALL}") from error
        if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
            raise InvalidInputError("obstore takes no empty, '.' or '..' part in a path", prefix=prefix)
        self.check_placing(placing)
        self.url = f"{scheme}://{bucket}/{prefix}".rstrip("/")
        self._obstore = obstore
        self._scheme = scheme
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._token = "version" if scheme == "gs" else "e_tag"
        self.options = dict(storage_options or {})
        self._recipe = recipe_for(scheme, bucket, self.options)
        self._placing = placing
        self._patience = patience
        self._login: tuple[Recipe, Any] | None = None
        self._stores: dict[bool, Any] = {}  # for large uploads, and for all else
        self._logged_in = False
        self._opening = threading.Lock()

    @property
    def checksum(self) -> str | None:
        """The algorithm of the checksum that each write to S3 carries, None for none."""
        return self._recipe.config.get("checksum_algorithm")

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        options: Any = {}
        if length is not None:
            options["range"] = (offset, offset + max(length, 1))  # a range is at least a byte
        elif offset:
            options["range"] = {"offset": offset}
        try:
            for _ in range(RANGE_TRIES):
                try:
                    return self._read(key, options, length)
                except OutOfRangeError:  # nothing to get; but the caller wants the token
                    with self._told(key) as store:
                        found = self._obstore.head(store, self._prefix + key)
                if found["size"] <= offset:  # else it has grown since
                    return Stored(b"", self._token_of(found, key))
            raise no_range(key)
        except AbsentError:
            return None

    async def changed(self, key: str, token: Token) -> Stored | None:
        if self._scheme == "gs":  # whose tokens are no ETags
            with self._told(key) as store:
                found = self._obstore.head(store, self._prefix + key)
            return None if self._token_of(found, key) == token else self._read(key, {}, None)
        try:
            return self._read(key, {"if_none_match": token}, None)
        except UnchangedError:
            return None

    def _read(self, key: str, options: Any, length: int | None) -> Stored:
        with self._told(key) as store:
            answer = self._obstore.get(store, self._prefix + key, options=options or None)
            data = bytes(answer.bytes())
            token = self._token_of(answer.meta, key)
        return Stored(data if length is None else data[:length], token)

    async def create(self, key: str, data: Data) -> Token:
        return self._put(key, data, "create", self._pointer)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        try:
            return self._put(key, data, {self._token: token}, self._pointer)
        except AbsentError as error:
            raise PreconditionFailedError("the key is missing", key=key) from error

    async def put(self, key: str, data: Data) -> None:
        try:
            self._put(key, data, "create", _placed(self._recipe.put, effective(self._placing)))
        except PreconditionFailedError:
            return  # write-once: what is there was written by an earlier try

    def check_placing(self, placing: Placing) -> None:
        check_cant(placing, lock="obstore can't send a lock: use the engine s3fs, boto3, gcsfs or adlfs")

    @property
    def _pointer(self) -> dict[str, Any]:
        """What a pointer is written with: a storage class is for payloads, see `S3Requests`."""
        put = dict(self._recipe.put)
        attributes = {k: v for k, v in put.pop("attributes", {}).items() if k != "Storage-Class"}
        return {**put, "attributes": attributes} if attributes else put

    def _put(self, key: str, data: Data, mode: Any, always: Mapping[str, Any]) -> Token:
        with self._told(key, large=len(data) > SMALL_BYTES) as store:
            answer = self._obstore.put(
                store,
                self._prefix + key,
                bytes(data),
                mode=mode,
                use_multipart=False,  # parts have no condition
                **always,
            )
            return self._token_of(answer, key)

    def _token_of(self, found: Mapping[str, Any], key: str) -> Token:
        token = found[self._token]
        if not token:
            raise UnsupportedStoreError("the store does not tell an object's version", key=key)
        return str(token)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        whole = self._prefix + prefix
        start = _before(whole) if cursor is None else self._prefix + cursor
        with self._told(prefix) as store:
            pages = self._obstore.list(
                store, whole.rpartition("/")[0] or None, offset=start, chunk_size=PAGE_ROWS
            )
            for found in pages:  # one request each; another only while there is nothing to show
                names = [row["path"] for row in found]
                rows = tuple(
                    Listed(row["path"][len(self._prefix) :], row["size"], row["last_modified"])
                    for row in found
                    if row["path"].startswith(whole)
                )
                if self._scheme == "az" and cursor is not None:
                    # An Azure that does not know `startFrom` begins from the beginning.
                    rows = tuple(row for row in rows if row.key > cursor)
                if len(found) < PAGE_ROWS or _is_past(names[-1], whole):
                    return Page(rows, None)
                if rows:
                    return Page(rows, names[-1][len(self._prefix) :])
        return Page((), None)

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._prefix + key for key in dict.fromkeys(keys)]  # MinIO answers a double one with rubbish
        try:
            if paths:
                self._delete(paths)
        except AbsentError:  # Google and Azure stop at the first that is missing
            for path in paths:
                with suppress(AbsentError):
                    self._delete([path])

    def _delete(self, paths: Sequence[str]) -> None:
        with self._told("") as store:
            self._obstore.delete(store, paths)

    async def close(self) -> None:
        self._stores, self._login = {}, None

    @contextmanager
    def _told(self, key: str, *, large: bool = False) -> Iterator[Any]:
        """Give the store, and turn what obstore raises into the contract's failures."""
        _process.check()
        store = self._stores.get(large) or self._opened(large=large)
        try:
            yield store
        except CloudckptError:
            raise
        except BaseException as error:
            # A panic in obstore is no `Exception`, as an interrupt is none.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise_told(error, self._scheme, key, logged_in=self._logged_in)
        self._logged_in = True

    def _opened(self, *, large: bool) -> Any:
        with self._opening:
            if self._login is None:
                self._login = self._logged(self._recipe)
            if large not in self._stores:
                patience = self._patience * (LARGE_PATIENCE if large else 1)
                self._stores[large] = _make(self._scheme, *self._login, patience)
            return self._stores[large]

    def _logged(self, recipe: Recipe) -> tuple[Recipe, Any]:
        """Return the recipe, with what a profile adds to it, and the credentials beside it."""
        if not isinstance(recipe.login, Profile):
            return recipe, recipe.login
        from cloudckpt.storage.obstore_login import log_in

        login = log_in(recipe.login)
        # What the caller or the environment says goes first.
        open_ = {"region_name": "region", "endpoint_url": "aws_endpoint_url_s3"}
        more = {word: value for word, value in login.client.items() if open_[word] not in recipe.config}
        client = {**(self.options.get("client_kwargs") or {}), **more}
        recipe = recipe_for(self._scheme, self._bucket, {**self.options, "client_kwargs": client})
        return recipe, login.provider


def _make(scheme: str, recipe: Recipe, login: Any, patience: float = PATIENCE) -> Any:
    from obstore import store

    more = {} if login is None else {"credential_provider": login}
    # To obstore connecting is waiting for the answer too, and would be told as that.
    client: Any = {
        "connect_timeout": timedelta(seconds=patience / 2),
        "read_timeout": timedelta(seconds=patience),
    }
    try:
        return getattr(store, _STORES[scheme])(
            config=dict(recipe.config), client_options=client | recipe.client, retry_config=_ONCE, **more
        )
    except Exception as error:  # noqa: BLE001 - nothing was sent yet, so it is the options
        raise_made(error)


def _placed(put: Mapping[str, Any], placing: Placing) -> Mapping[str, Any]:
    """Return what an object is written with."""
    if placing.storage_class is None:
        return put
    return {**put, "attributes": {**put.get("attributes", {}), "Storage-Class": placing.storage_class}}


def _before(prefix: str) -> str | None:
    """Return a name that sorts before all that start with `prefix`, and after nearly all others.

    It must not be the name of a key or of a folder: SeaweedFS goes on behind a folder of that name.
    """
    last = prefix[-1:]
    if last in ("", "/") or not " " < last < "~":
        return None
    return f"{prefix[:-1]}{chr(ord(last) - 1).replace('/', '.')}~"


def _is_past(name: str, prefix: str) -> bool:
    """Whether no name after this one starts with `prefix`, in order of whole names or folder by folder."""
    return not name.startswith(prefix) and name > prefix and name.split("/") > prefix.split("/")


class _Process:
    """The process whose threads serve obstore: the first one that made a request."""

    def __init__(self) -> None:
        self._pid: int | None = None

    def check(self) -> None:
        """Note that obstore is used here.

        Raises:
            UnsupportedStoreError: It was used before this process was forked.
        """
        pid = os.getpid()
        if self._pid != pid:
            if self._pid is not None:
                raise UnsupportedStoreError(
                    "obstore can't be used in a process that was forked after its first use; start processes "
                    "by spawn or forkserver, or use the engine 's3fs', 'gcsfs' or 'adlfs'"
                )
            self._pid = pid


_process = _Process()
