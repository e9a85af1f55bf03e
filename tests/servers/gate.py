"""A filter before a real store, which lets a request through or answers it by itself.

    with Gate(server.endpoint) as gate:
        store = cloudckpt.open(..., storage_options=server.through(gate.endpoint).storage_options())
        gate.answers = lambda asked: BUSY
        gate.answering.clear()  # from now on it says nothing

What arrived while it said nothing goes on, late, when it answers again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from tests.servers.canned import Answer, Asked
from tests.servers.strip_proxy import StrippingProxy


def refusal(status: int, code: str, detail: str = "") -> Answer:
    """Return an error as S3 and Azure word it, and Google's XML interface."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message>{detail}</Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml", "x-ms-error-code": code})


BROKEN = Answer(0, b"")
"""The connection breaks without an answer."""


class Gate(StrippingProxy):
    """Passes on what `answers` has no answer to, as it came.

    Attributes:
        answers: Asked of every request.
        answering: While this is not set, nothing is passed on and nothing answered.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target, strip=())
        self.answering = threading.Event()
        self.answering.set()
        self.answers: Callable[[Asked], Answer | None] = lambda asked: None

    def made_up(self, asked: Asked) -> Answer | None:
        self.answering.wait()
        return self.answers(asked)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answering.set()
        super().__exit__(kind, error, trace)
