"""An HTTP server that answers as it is told: for answers that no real store gives on request.

    with Canned() as store:
        store.say(409, "ConditionalRequestConflict")
        ...
        assert store.requests[-1].headers["If-None-Match"] == "*"

Owns: one answer a request, in order, and a record of what was asked. It stores
nothing. When nothing is left to say, every request succeeds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; a status of 0 is a connection that breaks instead."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


FINE = Answer(
    200, b"", {"ETag": '"fine"', "x-goog-generation": "7", "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"}
)


def give(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    """Send an answer."""
    if answer.status == 0:
        handler.close_connection = True
        return
    handler.send_response(answer.status)
    for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(answer.body)


class Canned:
    """The server, in threads of its own, from `with` to its end.

    Attributes:
        requests: Every request so far.
        hangs_up: Whether it closes each connection after its answer, without saying so before.
        closed: How many connections it has closed.
    """

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.hangs_up = False
        self.closed = 0
        self._answers: deque[Answer] = deque()
        canned = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                canned._answer(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def shutdown_request(self, request: Any) -> None:
                super().shutdown_request(request)
                canned.closed += 1

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def say(self, status: int, code: str = "", *, body: str = "", **headers: str) -> None:
        """Give this answer to the next request that has none yet.

        Args:
            status: The HTTP status; 0 breaks the connection.
            code: For an error as S3, Google and Azure word it.
            body: In its stead.
            **headers: With ``_`` for ``-``.
        """
        text = body or (f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>" if code else "")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._answers.append(Answer(status, text.encode(), named))

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.requests.append(Asked(handler.command, handler.path, handler.headers, body))
        give(handler, self._answers.popleft() if self._answers else FINE)
        handler.close_connection = handler.close_connection or self.hangs_up

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="canned", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
