"""What a durable save costs on a slow wire, in round trips.

MinIO answers through a proxy in a process of its own that delays each direction
by half a round trip. The peers are one PUT by s3fs as it comes, and one
conditional PUT by its client when it does not wait for ``100 Continue``: the
least that a durable write can cost with this library.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import cloudckpt
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, Work, medians
from tests.benchmarks.peer import Peer, smallest_request
from tests.servers.base import Server
from tests.servers.http_heads import Request
from tests.servers.proxy import Proxy, separate

KIB = 1024
SMALL = 2 * KIB
INLINE = 32 * KIB - 256
"""Just rides in the manifest, with what the codec puts around random bytes."""

LARGE = 1024 * KIB
METHODS = ("PUT", "GET", "DELETE", "POST", "HEAD", "LIST")


def run(lab: Lab) -> Iterator[Table]:
    server = lab.server()
    for rtt in lab.round_trips:
        with separate(server.endpoint, rtt=rtt) as endpoint, Peer(server.through(endpoint)) as peer:
            table = _times(lab, server.through(endpoint), peer, rtt)
        yield table
    yield _requests(lab, server)


def _times(lab: Lab, server: Server, peer: Peer, rtt: float) -> Table:
    table = Table(
        f"durable save through a wire of {rtt * 1e3:.0f} ms, in round trips",
        ("save", "s3fs PUT", "conditional PUT", "save / s3fs PUT", "save / conditional PUT"),
        (
            "MinIO, random bytes; s3fs PUT: pipe_file as it comes; conditional PUT: no Expect header",
            "alone: with a pause after each; back to back: in bursts of 8",
            f"the smallest request through this wire takes {smallest_request(server) / rtt:.2f} round trips",
        ),
    )
    sizes = {"2 KiB": (SMALL, 1.2, 0.6), "32 KiB": (INLINE, 1.2, 0.6), "1 MiB": (LARGE, 2.6, None)}
    for size, (count, most, most_ratio) in sizes.items():
        state = os.urandom(count)
        name = lab.name()
        url = f"{server.url}/{name}"
        with (
            cloudckpt.open(url, storage_options=server.storage_options()) as store,
            store.run("bench") as run,
        ):
            contestants: dict[str, Work] = {
                "save": partial(run.save, state),
                "pipe": partial(peer.pipe, f"{name}/piped", state),
                "put_if": partial(peer.put_if, f"{name}/put", state),
            }
            pause = rtt + 0.02
            alone = medians(contestants, rounds=lab.rounds(12), pause=pause)
            burst = medians(contestants, rounds=lab.rounds(4), burst=8, pause=pause)
        for how, took in {"alone": alone, "back to back": burst}.items():
            table.add(
                f"{size} {how}",
                Figure(took["save"] / rtt, "", most),
                Figure(took["pipe"] / rtt),
                Figure(took["put_if"] / rtt),
                Figure(took["save"] / took["pipe"], "x", most_ratio),
                Figure(took["save"] / took["put_if"], "x"),
            )
    return table


def _requests(lab: Lab, server: Server) -> Table:
    table = Table(
        "requests of a save and of a load, as a proxy counts them",
        METHODS,
        ("means of 20 calls each, with what a save leaves to be done behind it",),
    )
    with Proxy(server.endpoint) as proxy:
        options = server.through(proxy.endpoint).storage_options()
        url = f"{server.url}/{lab.name()}"

        def counted(label: str, calls: int, work: Callable[[], object], pause: float = 0.0) -> None:
            time.sleep(0.1)  # let what went on before come to its end
            start = len(proxy.requests)
            for _ in range(calls):
                work()
                time.sleep(pause)
            time.sleep(0.1)
            table.add(label, *_means(proxy.requests[start:], calls))

        with cloudckpt.open(url, storage_options=options) as store:
            counted("first save on a new store", 1, lambda: store.run("first").save(b""))
            for name, count in {"2 KiB": SMALL, "32 KiB": INLINE, "1 MiB": LARGE}.items():
                state, run = os.urandom(count), store.run(name)
                counted(f"become the writer of a new run, {name}", 1, run.acquire)
                for _ in range(12):  # until each save drops a checkpoint
                    run.save(state)
                counted(f"save {name} alone", 20, partial(run.save, state), 0.03)
                counted(f"save {name} back to back", 20, partial(run.save, state))
                counted(f"load {name}", 20, partial(_load, store, name))
    return table


def _load(store: cloudckpt.Store, run: str) -> None:
    store.run(run).load()


def _means(requests: Sequence[Request], calls: int) -> list[Figure]:
    """Return the requests a call; a target of none for those that a save or load must not make."""
    found = Counter("LIST" if "list-type=" in each.path else each.method for each in requests)
    unknown = found.keys() - set(METHODS)
    if unknown:
        raise RuntimeError(f"requests of another kind: {unknown}")
    return [
        Figure(found[method] / calls, "", 0 if method in ("HEAD", "LIST") else None) for method in METHODS
    ]
