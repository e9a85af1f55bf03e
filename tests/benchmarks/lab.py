"""What the benchmarks run on: a folder on a real disk, MinIO and fake-gcs-server.

Owns: all three, started when first asked for and gone at the end. Invariant: nothing
of the user's (accounts, settings, stores) is touched, and all traffic stays on
the loopback.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import fake_gcs, minio
from tests.servers.base import Server, Unavailable

ROUND_TRIPS = (0.02, 0.05)
"""Seconds of a round trip that stand for a near and a far region."""

_MEMORY = Path("/dev/shm")  # Linux's
_ENOUGH = 4 << 30


class Lab:
    """The benchmarks' resources.

    Args:
        folder: Where files are written; its disk is what the file benchmarks measure.
        quick: Fewer rounds, and the near region only.
    """

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.quick = quick
        self.round_trips = ROUND_TRIPS[:1] if quick else ROUND_TRIPS
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
        self._numbers = itertools.count(1)
        self._servers: dict[str, Server | Unavailable] = {}
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        _isolate()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
        shutil.rmtree(self._folder)
        with contextlib.suppress(OSError):  # another run's folder is in it
            self._folder.parent.rmdir()

    def rounds(self, count: int) -> int:
        """Return how many rounds to do where a full run does `count`."""
        return max(2, count // 4) if self.quick else count

    def folder(self) -> Path:
        """Return a new empty folder."""
        found = self._folder / str(next(self._numbers))
        found.mkdir()
        return found

    def name(self) -> str:
        """Return a name that no other call returns."""
        return f"bench-{next(self._numbers)}"

    def server(self) -> Server:
        """Return MinIO, whose data is in memory where there is enough of it.

        Raises:
            Unavailable: It can't run here.
        """
        return self._started("minio", minio.prepare, minio.start)

    def google(self) -> Server:
        """Return fake-gcs-server.

        Raises:
            Unavailable: It can't run here.
        """
        return self._started("fake_gcs", fake_gcs.prepare, fake_gcs.start)

    def _started(
        self, name: str, prepare: Callable[[Callable[[str], None]], None], start: Callable[[], Server]
    ) -> Server:
        """Return the server of that name, started when first asked for."""
        if name not in self._servers:
            try:
                prepare(print)
                with _temporary_files_in_memory():
                    server = self._servers[name] = start()
                self._ends.callback(server.stop)
            except Unavailable as error:
                self._servers[name] = error
        found = self._servers[name]
        if isinstance(found, Unavailable):
            raise found
        return found


@contextlib.contextmanager
def _temporary_files_in_memory() -> Iterator[None]:
    """Make temporary folders in memory, where there is enough of it.

    So the server's own disk, which another process may keep busy, is no part of what a
    request costs.
    """
    before = tempfile.tempdir
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ENOUGH:
        tempfile.tempdir = str(_MEMORY)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _isolate() -> None:
    for name in list(os.environ):
        if name.startswith("AWS_") or name == "CLOUDCKPT_URL":
            del os.environ[name]
    os.environ |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
