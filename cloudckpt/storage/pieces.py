"""The body of a request, sent by aiohttp piece by piece.

Owns: how a body in memory reaches the wire without holding up the IO loop.
Invariant: it can be sent again from its beginning, since aiohttp sends an
idempotent request again by itself, and of a file-like body it would then send
what is left: nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

WHOLE_BYTES = 2**20
"""A body of at most this many bytes goes to the socket at once, together with its head."""

PIECE_BYTES = 2**18


class Pieces:
    """A body as an asynchronous iterable, to be sent with its length in the head."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        for start in range(0, len(self._body), PIECE_BYTES):
            yield self._body[start : start + PIECE_BYTES]


def in_pieces(body: bytes) -> bytes | Pieces:
    """Return what to give to aiohttp as the body of a request."""
    return body if len(body) <= WHOLE_BYTES else Pieces(body)
