"""`file://path`: a folder, durable and safe between processes of one machine.

Owns: how a value becomes visible whole or not at all (a temporary file beside
the target, fsync, `os.replace`, fsync of the folder) and how a condition is
checked (under an flock per key). fsspec's own local ``mode="create"`` checks
and writes in two steps, so two processes can both win; that is why this engine
is ours. Network file systems are as safe as their flock is.

A token is the sha256 of the bytes: equal bytes have equal tokens, which the
manifest's nonce rules out for the one document where it would matter.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from cloudckpt.errors import (
    AmbiguousError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    UnsupportedStoreError,
)
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.file_leftovers import TEMPORARY, Leftovers, temporary_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # the constructor refuses to go on without it

PAGE_ROWS = 1000
LOCKS = ".locks"


class FileStorage(Leftovers):
    """A store in a folder, which is made on the first write.

    Args:
        path: The folder; a leading ``~`` is the user's home.
    """

    blocking = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if fcntl is None:
            raise UnsupportedStoreError("a folder store needs flock; use Linux or macOS, or an object store")
        self._root = Path(path).expanduser().absolute()
        self._prefix = f"{self._root}/".replace("//", "/")
        self.url = f"file://{self._root}"

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        with self._told(key):
            data = self._read(key)
        if data is None:
            return None
        token = _token(data)
        if offset or length is not None:
            data = data[offset : None if length is None else offset + length]
        return Stored(data, token)

    def _read(self, key: str) -> bytes | None:
        try:
            with open(f"{self._prefix}{key}", "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return None

    async def create(self, key: str, data: Data) -> Token:
        with self._told(key), self._locked(key):
            if os.path.lexists(f"{self._prefix}{key}"):
                raise PreconditionFailedError("the key exists", key=key)
            self._write(key, data)
        return _token(data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        with self._told(key), self._locked(key):
            found = self._read(key)
            if found is None or _token(found) != token:
                raise PreconditionFailedError("the key has another version or is missing", key=key)
            self._write(key, data)
        return _token(data)

    async def put(self, key: str, data: Data) -> None:
        with self._told(key):
            self._write(key, data)  # also over an earlier try, whose folder may not be flushed yet

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        with self._told(prefix):
            below = self._walk(prefix[: prefix.rfind("/") + 1], prefix, cursor or "")
            keys = list(islice(below, PAGE_ROWS + 1))
            rows = tuple(row for key in keys[:PAGE_ROWS] if (row := self._row(key)))
        return Page(rows, keys[PAGE_ROWS - 1] if len(keys) > PAGE_ROWS else None)

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[str]:
        """Yield in order the keys in a folder that start with `prefix` and come after `after`.

        A folder counts by its name with a slash, which is what its keys begin with. Of a large one
        only so many names are held at once, and what comes before `after` is not looked into.
        """
        while True:
            names = heapq.nsmallest(PAGE_ROWS + 1, self._names(folder, prefix, after))
            for name in names:
                if name.endswith("/"):
                    yield from self._walk(name, prefix, after)
                else:
                    yield name
            if len(names) <= PAGE_ROWS:
                return
            after = names[-1]

    def _names(self, folder: str, prefix: str, after: str) -> Iterator[str]:
        """Yield the files and folders in a folder, in any order, that `_walk` has to look at."""
        try:
            found = os.scandir(f"{self._prefix}{folder}")
        except FileNotFoundError:
            return
        except NotADirectoryError:
            if not self._root.is_dir():  # else it is only a key where a longer one is looked for
                raise
            return
        with found:
            for entry in found:
                name = f"{folder}{entry.name}"
                if entry.is_dir():
                    name += "/"
                    if entry.is_symlink() or entry.name == LOCKS or not _meet(name, prefix):
                        continue
                    if name > after or (after.startswith(name) and after != name):
                        yield name
                elif name > after and name.startswith(prefix) and not entry.name.startswith(TEMPORARY):
                    yield name

    def _row(self, key: str) -> Listed | None:
        try:
            found = (self._root / key).stat()
        except FileNotFoundError:  # deleted since the walk
            return None
        return Listed(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with self._told(key):
                (self._root / key).unlink(missing_ok=True)

    async def close(self) -> None:
        pass  # nothing is held open between calls

    def _write(self, key: str, data: Data) -> None:
        target = f"{self._prefix}{key}"
        folder = os.path.dirname(target)
        temporary = f"{folder}/{temporary_of(key)}{os.urandom(8).hex()}"
        descriptor = _opened(temporary, os.O_CREAT | os.O_EXCL)
        try:
            try:
                _write_all(descriptor, data)
                _sync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, target)
        except FileNotFoundError as error:
            raise AmbiguousError("the file was erased half written, as by a forget", key=key) from error
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        try:
            _sync_folder(folder)
        except OSError as error:
            raise AmbiguousError("the folder could not be flushed; the write may be lost", key=key) from error

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Hold the key's lock against other processes and threads. The lock file stays."""
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        descriptor = _opened(f"{self._prefix}{LOCKS}/{name}", os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # per open file, so threads exclude each other too
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Turn what the operating system says into the contract's failures."""
        try:
            yield
        except OSError as error:
            facts = {"path": str(self._root / key)}
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise PermissionDeniedError(
                    "this user can't read or write the folder; change its rights or use another",
                    kind="read-only" if error.errno == errno.EROFS else "no-permission",
                    **facts,
                ) from error
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageError(
                    "the disk is full; nothing was changed, free some space and save again",
                    kind="disk-full",
                    **facts,
                ) from error
            if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
                raise StorageError(
                    "a file is where the store needs a folder, or the reverse", kind="not-a-folder", **facts
                ) from error
            raise StorageError("the file system failed", kind="io", **facts) from error


def _meet(folder: str, prefix: str) -> bool:
    """Whether a folder may hold keys that start with `prefix`."""
    return folder.startswith(prefix) or prefix.startswith(folder)


def _token(data: Data) -> Token:
    return hashlib.sha256(data).hexdigest()


def _opened(path: str, flags: int) -> int:
    """Open a file for writing, making its folders durably where they are missing."""
    flags |= os.O_WRONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        _make_folder(os.path.dirname(path))
        return os.open(path, flags, 0o666)


def _write_all(descriptor: int, data: Data) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]  # one call writes 2 GiB at most


def _make_folder(folder: str) -> None:
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    with suppress(FileExistsError):  # somebody else made it since
        os.mkdir(folder)
    _sync_folder(parent)


def _sync(descriptor: int) -> None:
    # macOS's fsync leaves the bytes in the drive's cache (its own fsync(2) page).
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        fcntl.fcntl(descriptor, full)
    else:
        os.fsync(descriptor)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)
