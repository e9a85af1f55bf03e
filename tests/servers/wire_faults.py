"""What a proxy can do to one request instead of passing it on.

Owns: the kinds of fault, which request each is for, and the answers that are
made up. What they have in common: the client can't tell from the answer
whether the server did what it was asked.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum

from tests.servers.http_heads import Request


class Effect(Enum):
    """What happens to the request."""

    DROP_REQUEST = "the connection breaks before the server has the whole request: it did not happen"
    DROP_ANSWER = "the server answers, and the connection breaks before the client sees it: it happened"
    ANSWER_500 = "the server answers, and the client is told 500 InternalError: it happened"
    ANSWER_503 = "the server answers, and the client is told 503 SlowDown: it happened"


@dataclass(frozen=True, slots=True)
class Fault:
    """One effect on the next request with this method whose path has this text in it."""

    effect: Effect
    method: str
    path: str = ""

    def matches(self, request: Request) -> bool:
        return request.method == self.method and self.path in request.path


class Armed:
    """Faults that wait for their request; each happens once, the first armed first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._faults += faults

    def take(self, request: Request) -> Fault | None:
        """Return the first that is for this request, no longer armed, or None."""
        with self._lock:
            found = next((fault for fault in self._faults if fault.matches(request)), None)
            if found is not None:
                self._faults.remove(found)
            return found

    def left(self) -> tuple[Fault, ...]:
        with self._lock:
            return tuple(self._faults)


def made_up_answer(effect: Effect) -> bytes | None:
    """Return what the client gets instead of the server's answer; None for nothing at all."""
    named = {
        Effect.ANSWER_500: ("500 Internal Server Error", "InternalError"),
        Effect.ANSWER_503: ("503 Service Unavailable", "SlowDown"),
    }
    if effect not in named:
        return None
    status, code = named[effect]
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>made up by a test</Message></Error>'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()
