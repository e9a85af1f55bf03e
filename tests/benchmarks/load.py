"""What loading the newest checkpoint costs on a slow wire, whatever the length of the history.

Each load is by a store object that has just been opened, as after a crash; one
read of another run goes before, so the time is the load's and not that of
importing a library or opening a connection.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import cloudckpt
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, medians
from tests.benchmarks.peer import Peer
from tests.servers.base import Server
from tests.servers.proxy import separate

SIZES = {"inline": (2048, 1.2), "100 KB": (100_000, 2.4)}
"""Bytes of the state, and the target in round trips."""


class FreshLoad:
    """A load by a store that was opened for it."""

    def __init__(self, server: Server, url: str, run: str, wanted: bytes) -> None:
        self._server, self._url, self._run, self._wanted = server, url, run, wanted
        self._store: cloudckpt.Store | None = None

    def prepare(self) -> None:
        self.close()
        self._store = cloudckpt.open(self._url, storage_options=self._server.storage_options())
        self._store.run("another run").load()

    def load(self) -> None:
        if self._store is None or self._store.run(self._run).load() != self._wanted:
            raise RuntimeError("this is not what was saved")

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def run(lab: Lab) -> Iterator[Table]:
    server = lab.server()
    histories = (10, 100 if lab.quick else 1000)
    url = f"{server.url}/{lab.name()}"
    saved = {
        (size, history): _history(server, url, f"{size} {history}", count, history)
        for size, (count, _) in SIZES.items()
        for history in histories
    }
    for rtt in lab.round_trips:
        table = Table(
            f"load of the newest through a wire of {rtt * 1e3:.0f} ms, in round trips",
            ("load", "s3fs cat_file", "bare GET", "load / bare GET"),
            (
                "MinIO, keep_last=10; a store opened for each load, after one read of another run",
                "cat_file: s3fs as it comes; bare GET: one request of its client; both of the same bytes",
            ),
        )
        with (
            separate(server.endpoint, rtt=rtt) as endpoint,
            Peer(server.through(endpoint)) as peer,
            ExitStack() as ends,
        ):
            for (size, history), state in saved.items():
                key = lab.name()
                peer.put_if(key, state)
                fresh = FreshLoad(server.through(endpoint), url, f"{size} {history}", state)
                ends.callback(fresh.close)
                took = medians(
                    {"load": fresh.load, "cat": partial(peer.cat, key), "get": partial(peer.get, key)},
                    rounds=lab.rounds(12),
                    before={"load": fresh.prepare},
                )
                table.add(
                    f"{size}, history of {history}",
                    Figure(took["load"] / rtt, "", SIZES[size][1]),
                    Figure(took["cat"] / rtt),
                    Figure(took["get"] / rtt),
                    Figure(took["load"] / took["get"], "x"),
                )
        yield table


def _history(server: Server, url: str, run_id: str, count: int, history: int) -> bytes:
    """Save `history` states; return the last."""
    state = b""
    with cloudckpt.open(url, storage_options=server.storage_options()) as store, store.run(run_id) as run:
        for _ in range(history):
            state = os.urandom(count)
            run.save(state)
    return state
