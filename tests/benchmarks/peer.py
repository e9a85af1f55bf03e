"""What a save and a load are measured against: s3fs without us, and SQLite.

Owns: the bare requests. `pipe` and `cat` are s3fs as it comes; `put_if` and
`get` are one request each on its client, without the handler that makes a PUT
wait for ``100 Continue``.
"""

from __future__ import annotations

import http.client
import socket
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import s3fs
from botocore.handlers import add_expect_header
from fsspec.asyn import sync

from tests.benchmarks.measure import medians
from tests.servers.base import Server


class Peer:
    """A bucket as s3fs writes and reads it. A context manager."""

    def __init__(self, server: Server) -> None:
        self._bucket = server.bucket
        self._etags: dict[str, str] = {}
        options = {**server.storage_options(), "skip_instance_cache": True, "use_listings_cache": False}
        self._plain = s3fs.S3FileSystem(**options)
        self._tuned = s3fs.S3FileSystem(**options)
        client = sync(self._tuned.loop, self._tuned.set_session)
        client.meta.events.unregister("before-call.s3", add_expect_header)

    def pipe(self, key: str, data: bytes) -> None:
        self._plain.pipe_file(f"{self._bucket}/{key}", data)

    def cat(self, key: str) -> bytes:
        found: bytes = self._plain.cat_file(f"{self._bucket}/{key}")
        return found

    def put_if(self, key: str, data: bytes) -> None:
        """Replace the value that the last call wrote, or create it."""
        etag = self._etags.get(key)
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        self._etags[key] = sync(self._tuned.loop, self._put, key, data, condition)

    async def _put(self, key: str, data: bytes, condition: dict[str, str]) -> str:
        answer = await self._tuned._call_s3(
            "put_object", Bucket=self._bucket, Key=key, Body=data, **condition
        )
        etag: str = answer["ETag"]
        return etag

    def get(self, key: str) -> bytes:
        found: bytes = sync(self._tuned.loop, self._get, key)
        return found

    async def _get(self, key: str) -> bytes:
        answer = await self._tuned._call_s3("get_object", Bucket=self._bucket, Key=key)
        async with answer["Body"] as body:
            found: bytes = await body.read()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Left to the garbage collector, s3fs may close them on a loop that is not theirs.
        for fs in (self._plain, self._tuned):
            if fs._s3 is not None:
                sync(fs.loop, fs._s3creator.__aexit__, None, None, None)


def smallest_request(server: Server) -> float:
    """Return the median seconds of a request that asks for next to nothing, over a raw connection."""
    parts = urlsplit(server.endpoint)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask() -> None:
        connection.request("HEAD", "/")
        connection.getresponse().read()

    took = medians({"ask": ask}, rounds=20, pause=0.01)
    connection.close()
    return took["ask"]


class Sqlite:
    """A table of states in a database with the default journal and ``synchronous=FULL``."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA synchronous=FULL")
        [mode] = self._db.execute("PRAGMA journal_mode").fetchone()
        if mode != "delete":
            raise RuntimeError(f"not the default journal: {mode}")
        self._db.execute("CREATE TABLE states (seq INTEGER PRIMARY KEY, run, state)")

    def save(self, run: str, state: bytes) -> None:
        self._db.execute("INSERT INTO states (run, state) VALUES (?, ?)", (run, state))

    def newest(self, run: str) -> bytes:
        query = "SELECT state FROM states WHERE run = ? ORDER BY seq DESC LIMIT 1"
        [state] = self._db.execute(query, (run,)).fetchone()
        found: bytes = state
        return found

    def size(self) -> int:
        """Return the bytes of all states."""
        [size] = self._db.execute("SELECT sum(length(state)) FROM states").fetchone()
        return int(size)

    def close(self) -> None:
        self._db.close()
