"""A TCP proxy on the loopback that stands for a far store: it delays, counts, and breaks on request.

Owns: half a round trip of delay in each direction, for every chunk from its own
arrival on, so order and throughput are kept and a second request of a call
shows as a second round trip. The TCP handshake is not delayed.

    with Proxy(server.endpoint, rtt=0.02) as proxy:
        store = cloudckpt.open(url, storage_options=server.through(proxy.endpoint).storage_options())
        proxy.arm(Fault(Effect.DROP_ANSWER, "PUT", "manifests/"))
        ...
        assert not [request for request in proxy.requests if request.method in ("HEAD", "LIST")]

`Proxy` runs in a thread and shares the interpreter with what it delays; for
measurements use `separate`, or the program: ``python -m tests.servers.proxy
--listen PORT --target HOST:PORT --rtt SECONDS``.
"""

from __future__ import annotations

import argparse
import asyncio
import selectors
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import urlsplit

from tests.servers.base import Unavailable, new_folder, spawn
from tests.servers.http_heads import Request
from tests.servers.late import Late
from tests.servers.links import Cut, Link, Shared
from tests.servers.wire_faults import Fault

CHUNK = 2**18
QUEUED = 256
"""Chunks under way in one direction of a connection before its sender is held back."""

STUCK = 60.0
"""Seconds after which a late request counts as never answered."""

_Line: TypeAlias = asyncio.Queue[tuple[float, bytes]]
"""Chunks under way, each with its arrival; an empty one is the end."""


class Proxy:
    """A proxy in a thread of its own, from `with` to its end.

    Attributes:
        endpoint: ``http://127.0.0.1:PORT``, inside the block.
        requests: Every HTTP request so far, in the order in which their heads arrived.
    """

    def __init__(self, target: str, *, rtt: float = 0.0, listen: int = 0) -> None:
        """Aim it.

        Args:
            target: ``http://HOST:PORT`` or ``HOST:PORT``.
            rtt: Seconds there and back.
            listen: The port, or 0 for a free one.
        """
        parts = urlsplit(target if "://" in target else f"http://{target}")
        if not parts.hostname or not parts.port:
            raise ValueError(f"a target is HOST:PORT, not {target!r}")
        self.endpoint = ""
        self._target = (parts.hostname, parts.port)
        self._delay = rtt / 2
        self._listen = listen
        self._shared = Shared(Late(*self._target))
        self.requests: list[Request] = self._shared.requests
        self._connections: set[asyncio.Task[None] | None] = set()
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def arm(self, *faults: Fault) -> None:
        """Let each fault happen to the next request that it is for."""
        self._shared.armed.add(*faults)

    @property
    def armed(self) -> tuple[Fault, ...]:
        """The faults that have not happened yet."""
        return self._shared.armed.left()

    def disarm(self) -> None:
        """Forget the faults that have not happened yet."""
        self._shared.armed.clear()

    def deliver_late(self) -> list[int]:
        """Let every request that is still held back reach the server.

        Returns:
            The status of each late answer since the last call; `late.BROKEN` for none.
        """
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._shared.late.rest(), self._loop).result(STUCK)

    def count(self, method: str, path: str = "") -> int:
        """Return how many requests so far had this method and this text in their path."""
        return sum(request.method == method and path in request.path for request in list(self.requests))

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        if self._shared.broken and kind is None:
            raise self._shared.broken[0]

    def wait(self) -> None:
        """Wait until it ends, for good when nobody ends it."""
        self._thread.join()

    def _run(self) -> None:
        # epoll and poll round a wait up to a whole millisecond, a tenth of the delay; select doesn't.
        with asyncio.Runner(
            loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())
        ) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            server = await asyncio.start_server(self._connection, "127.0.0.1", self._listen, limit=CHUNK)
        except OSError as error:
            self._failure = error
            self._ready.set()
            return
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio forgets a connection whose client has sent its end, and the garbage
        # collector would take this task while the server is still at it.
        task = asyncio.current_task()
        self._connections.add(task)
        # The end of the proxy cancels this task; asyncio's streams log one that is left cancelled.
        with suppress(asyncio.CancelledError):
            await self._relay(reader, writer)
        self._connections.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._target, limit=CHUNK)
        except OSError:
            writer.transport.abort()
            return
        link = Link(self._shared)
        there: _Line = asyncio.Queue(QUEUED)
        back: _Line = asyncio.Queue(QUEUED)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_receive(reader, there, link, link.from_client, link.client_left))
                tasks.create_task(_deliver(there, to_server, self._delay))
                tasks.create_task(_receive(from_server, back, link, link.from_server, link.server_left))
                tasks.create_task(_deliver(back, writer, self._delay))
        except* (ConnectionError, Cut):
            pass  # what is broken on one side is broken on the other, below
        finally:
            link.let_go()
            to_server.transport.abort()
            writer.transport.abort()


async def _receive(
    reader: asyncio.StreamReader,
    line: _Line,
    link: Link,
    take: Callable[[bytes], Awaitable[bytes]],
    left: Callable[[], Awaitable[None]],
) -> None:
    loop = asyncio.get_running_loop()
    while not link.over and (data := await reader.read(CHUNK)):
        arrival = loop.time()
        passed = await take(data)
        if passed:
            await line.put((arrival, passed))
    await left()
    await line.put((loop.time(), b""))


async def _deliver(line: _Line, writer: asyncio.StreamWriter, delay: float) -> None:
    """Write each chunk when its delay is over. asyncio has set TCP_NODELAY on the socket."""
    loop = asyncio.get_running_loop()
    while True:
        arrival, data = await line.get()
        left = arrival + delay - loop.time()
        if left > 0:
            await asyncio.sleep(left)
        if not data:
            writer.write_eof()
            return
        writer.write(data)
        await writer.drain()


@contextmanager
def separate(target: str, *, rtt: float) -> Iterator[str]:
    """Run a proxy in a process of its own; give its endpoint."""
    process = spawn(
        [sys.executable, "-m", "tests.servers.proxy", "--target", target, "--rtt", str(rtt)],
        new_folder("proxy"),
    )
    try:
        deadline = time.monotonic() + 30
        while not process.last_words().startswith("http://"):
            process.check()
            if time.monotonic() > deadline:
                raise Unavailable("the proxy did not start")
            time.sleep(0.02)
        yield process.last_words()
    finally:
        process.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Delay a TCP service by a round trip.")
    parser.add_argument("--listen", type=int, default=0, help="port on the loopback, 0 for a free one")
    parser.add_argument("--target", required=True, help="HOST:PORT or http://HOST:PORT")
    parser.add_argument("--rtt", type=float, default=0.02, help="seconds there and back")
    options = parser.parse_args()
    with Proxy(options.target, rtt=options.rtt, listen=options.listen) as proxy:
        print(proxy.endpoint, flush=True)
        proxy.wait()


if __name__ == "__main__":
    main()
