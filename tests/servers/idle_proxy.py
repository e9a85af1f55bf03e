"""A TCP proxy whose connections die of old age, as those of a store do that closes what was idle.

    with IdleProxy(server.endpoint) as proxy:
        ...                                                  # connections are made and used
        proxy.retire(Moment.AT_HEAD, reset=True)             # each that is open now is dying
        ...                                                  # the next request finds that out
        assert proxy.died

Owns: when a kept connection ends, and how. Invariant: a fresh one works, as it
does at a store. It delays nothing and makes no answer up: `proxy.py` does.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.servers.http_heads import END, Request, RequestHeads, split_interim

CHUNK = 2**18
_SECONDS = 30.0
_RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: what is closed is reset


class Moment(Enum):
    """When a kept connection ends."""

    IDLE = "with nothing under way, before the next request"
    AT_HEAD = "when the head of the next request is here, which goes no further: it did not happen"
    ANSWERED = "when the server has answered the next request, and nobody has heard: it happened"


@dataclass(frozen=True, slots=True)
class _Fate:
    moment: Moment
    reset: bool


class IdleProxy:
    """The proxy, in threads of its own, from `with` to its end.

    Attributes:
        endpoint: ``http://127.0.0.1:PORT``.
        requests: Every HTTP request so far, also those that went no further.
        opened: How many connections were made to it.
        died: How many ended as they were told to.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[Request] = []
        self.opened = 0
        self.died = 0
        self._links: set[_Link] = set()
        self._spare = 0
        self._lock = threading.Lock()

    @property
    def kept(self) -> int:
        """How many connections are open now."""
        with self._lock:
            return len(self._links)

    def retire(self, moment: Moment, *, reset: bool, spare: int = 0) -> None:
        """Let each connection that is open now end.

        With `Moment.IDLE` they have ended when this returns; nothing may be under way then.

        Args:
            moment: When.
            reset: By RST, else by FIN.
            spare: So many more requests are served before, by all of them together.
        """
        with self._lock:
            self._spare = spare
            links = list(self._links)
            for link in links:
                link.fate = _Fate(moment, reset)
        if moment is Moment.IDLE:
            for link in links:
                link.wake()
            for link in links:
                link.ended.wait(_SECONDS)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="idle-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing it alone does not wake who accepts
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.wake()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self.opened += 1
                link = _Link(self, client, server)
                self._links.add(link)
            threading.Thread(target=link.relay, name="idle-proxy-link", daemon=True).start()

    def _due(self, link: _Link, found: list[Request]) -> bool:
        """Note what a client asked for; return whether its connection ends with it."""
        with self._lock:
            self.requests += found
            if link.fate is None:
                return False
            self._spare -= len(found)
            return self._spare < 0

    def _gone(self, link: _Link, *, told: bool) -> None:
        with self._lock:
            self._links.discard(link)
            self.died += told


class _Link:
    """One connection of a client's, and the one to the server that is its own.

    Attributes:
        fate: How it ends, once that is settled.
        ended: Set when it did.
    """

    def __init__(self, proxy: IdleProxy, client: socket.socket, server: socket.socket) -> None:
        self.fate: _Fate | None = None
        self.ended = threading.Event()
        self._proxy = proxy
        self._client = client
        self._server = server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(_SECONDS)

    def wake(self) -> None:
        """Let it end now."""
        with suppress(OSError):  # it ended just now
            self._server.shutdown(socket.SHUT_RDWR)

    def relay(self) -> None:
        told = False
        with suppress(OSError):  # what is broken on one side is broken on the other, below
            told = self._relay()
        self._proxy._gone(self, told=told)  # counted before the client can know
        self._server.close()
        with suppress(OSError):
            if told:
                self._part()
        self._client.close()
        self.ended.set()

    def _relay(self) -> bool:
        """Pass on what comes until one side ends; return whether the end is the one that was told."""
        heads, due, answer = RequestHeads(), False, b""
        while True:
            for end in select.select([self._client, self._server], [], [])[0]:
                data = end.recv(CHUNK)
                if not data:
                    return end is self._server and self._is(Moment.IDLE)
                if end is self._client:
                    found = heads.feed(data)
                    due = due or (bool(found) and self._proxy._due(self, found))
                    if due and self._is(Moment.AT_HEAD):
                        return True
                    self._server.sendall(data)
                    continue
                if due and self._is(Moment.ANSWERED):
                    interim, answer = split_interim(answer + data)
                    if END in answer:
                        return True
                    data = interim
                self._client.sendall(data)

    def _is(self, moment: Moment) -> bool:
        return self.fate is not None and self.fate.moment is moment

    def _part(self) -> None:
        """Let closing it mean what it was told to mean."""
        if self.fate is not None and self.fate.reset:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        elif self._is(Moment.AT_HEAD):
            self._client.shutdown(socket.SHUT_WR)
            while self._client.recv(CHUNK):  # what is left unread would make the kernel reset it
                pass
