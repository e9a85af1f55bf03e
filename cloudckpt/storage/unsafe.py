"""Any other fsspec protocol, for one writer that its user promises to be the only one.

Owns: the contract's methods over fsspec's plain calls. There is no invariant to
rely on: a condition is checked and then written in two steps, so a second
writer can overwrite the first. `open` refuses this engine unless it is told
``unsafe_single_writer=True``; the probe is not asked.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    UnsupportedStoreError,
)
from cloudckpt.storage.answers import shown
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token


class UnsafeStorage:
    """One root of an fsspec file system."""

    blocking = True

    def __init__(self, scheme: str, root: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
        import fsspec

        url = f"{scheme}://{root}".rstrip("/")
        self.url = shown(url)
        own = {"use_listings_cache": False, "skip_instance_cache": True}
        try:
            make = fsspec.get_filesystem_class(scheme)
            with _told(""):
                self._fs = _made(make, {**make._get_kwargs_from_urls(url), **(storage_options or {}), **own})
        except ImportError as error:
            raise UnsupportedStoreError(
                "fsspec needs another package for this protocol; install it", scheme=scheme, why=str(error)
            ) from error
        self._root = str(self._fs._strip_protocol(url)).rstrip("/")
        self._lock = threading.Lock()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        with _told(key):
            try:
                data: bytes = self._fs.cat_file(self._path(key))
            except FileNotFoundError:
                return None
        end = None if length is None else offset + length
        return Stored(data[offset:end], _token(data))

    async def create(self, key: str, data: Data) -> Token:
        with self._lock:
            if await self.read(key) is not None:
                raise PreconditionFailedError("the key exists", key=key)
            return self._write(key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        with self._lock:
            found = await self.read(key)
            if found is None or found.token != token:
                raise PreconditionFailedError("the key has another version or is missing", key=key)
            return self._write(key, data)

    async def put(self, key: str, data: Data) -> None:
        self._write(key, data)

    def _write(self, key: str, data: Data) -> Token:
        with _told(key):
            self._fs.makedirs(self._path(key).rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(self._path(key), bytes(data))
        return _token(data)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:  # noqa: ARG002 - one page
        with _told(prefix):
            try:
                found = self._fs.find(self._path(prefix).rpartition("/")[0], detail=True)
            except FileNotFoundError:
                found = {}
        rows = [
            Listed(path.removeprefix(self._root).lstrip("/"), info.get("size") or 0, _modified(info))
            for path, info in sorted(found.items())
        ]
        return Page(tuple(row for row in rows if row.key.startswith(prefix)), None)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with _told(key):
                try:
                    self._fs.rm_file(self._path(key))
                except FileNotFoundError:
                    continue

    async def close(self) -> None:
        pass  # fsspec's file systems close themselves

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


def _made(make: Any, options: Mapping[str, Any]) -> Any:
    try:
        return make(**options)
    except (TypeError, ValueError) as error:
        raise StorageError(
            "the store's options are not usable", kind="bad-options", why=shown(str(error))
        ) from error


def _token(data: Data) -> Token:
    return hashlib.sha256(data).hexdigest()


def _modified(info: Mapping[str, Any]) -> datetime:
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
    return datetime.fromtimestamp(0, UTC)


@contextmanager
def _told(key: str) -> Iterator[None]:
    try:
        yield
    except (CloudckptError, FileNotFoundError, ImportError):
        raise
    except PermissionError as error:
        raise PermissionDeniedError("the store denies the request", kind="denied", key=key) from error
    except Exception as error:  # each fsspec backend has its own
        raise AmbiguousError("the store failed", key=key or None, why=type(error).__name__) from error
