"""An HTTP server that gives the answers it is told to, and keeps what it was asked.

    with scripted(Answer(503), Answer(200, b"{}")) as server:
        ...client of server.endpoint...
        assert [request.method for request in server.requests] == ["GET", "GET"]

The last answer is given for ever, so a client that repeats a request shows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """What one request gets.

    Attributes:
        status: 0 closes the connection without a word.
        body: Left out for a HEAD.
        headers: A content length that is too big cuts the body short.
        seconds: Before it comes.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


CUT = Answer(0)


@dataclass(frozen=True)
class Asked:
    """One request; the path has the query, as sent, and the names of headers ignore case."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Scripted:
    """A running one."""

    endpoint: str
    requests: list[Asked]


@contextmanager
def scripted(*answers: Answer) -> Iterator[Scripted]:
    """Run one on the loopback inside the block."""
    requests: list[Asked] = []
    left = list(answers)
    ended = threading.Event()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                requests.append(Asked(self.command, self.path, self.headers, body))
                given = left.pop(0) if len(left) > 1 else left[0]
            ended.wait(given.seconds)
            if given.status == 0:
                self.close_connection = True
                return
            with suppress(ConnectionError):  # nobody waits for it any more
                self.give(given)

        def give(self, given: Answer) -> None:
            self.send_response(given.status)
            headers = {"Content-Length": str(len(given.body)), **given.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = headers["Content-Length"] != str(len(given.body))
            if self.command != "HEAD":
                self.wfile.write(given.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # with the usual 5 a burst of connections waits a second
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Scripted(f"http://127.0.0.1:{server.server_port}", requests)
        finally:
            ended.set()
            server.shutdown()
            thread.join()
