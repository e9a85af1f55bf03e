"""What a proxy can do to one request instead of passing it on.

Owns: the kinds of fault, which request each is for, and the answers that are
made up. What they have in common: the client can't tell from the answer
whether the server did what it was asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

from tests.servers.http_heads import Request


class Effect(Enum):
    """What happens to the request."""

    DROP_REQUEST = "the connection breaks before the server has the whole request: it did not happen"
    DROP_ANSWER = "the server answers, and the connection breaks before the client sees it: it happened"
    ANSWER_500 = "the server answers, and the client is told 500 InternalError: it happened"
    ANSWER_503 = "the server answers, and the client is told 503 SlowDown: it happened"
    NO_ANSWER = "the server answers, and the client waits for ever: it happened"
    LATE_BEFORE_RETRY = "the connection breaks, and the server gets the request just before its retry"
    LATE_AFTER_RETRY = "the connection breaks, and the server gets the request when it has answered its retry"

    @property
    def is_late(self) -> bool:
        """Whether the server gets the request after its client has seen it fail."""
        return self in (Effect.LATE_BEFORE_RETRY, Effect.LATE_AFTER_RETRY)

    @property
    def is_answered(self) -> bool:
        """Whether the server answers before the client knows."""
        return not self.is_late and self is not Effect.DROP_REQUEST


@dataclass(frozen=True, slots=True)
class Fault:
    """One effect on the next request with this method and this text in what it is about.

    Attributes:
        effect: What happens to it.
        method: Its method.
        path: In its path, with nothing escaped, or in the first part of an upload in parts.
        meanwhile: Called, in a thread, before the client learns of its fate: when the server has
            answered, or would have, had it got the request.
    """

    effect: Effect
    method: str
    path: str = ""
    meanwhile: Callable[[], object] | None = None

    def matches(self, request: Request) -> bool:
        named = self.path in unquote(request.path) or self.path in request.part
        return request.method == self.method and named


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

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()


def made_up_answer(effect: Effect) -> bytes | None:
    """Return what the client gets instead of the server's answer; None for nothing at all."""
    named = {
        Effect.ANSWER_500: ("500 Internal Server Error", "InternalError", "InternalError"),
        Effect.ANSWER_503: ("503 Service Unavailable", "SlowDown", "ServerBusy"),
    }
    if effect not in named:
        return None
    status, code, of_azure = named[effect]
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>made up by a test</Message></Error>'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
    return f"{head}x-ms-error-code: {of_azure}\r\nConnection: close\r\n\r\n{body}".encode()
