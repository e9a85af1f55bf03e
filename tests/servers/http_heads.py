"""Heads of HTTP/1.1 messages in a stream of bytes: enough to count requests and to know when one is answered.

Owns: where a request begins and how long its body is. It checks nothing, keeps
no body, and never raises: a stream that is not HTTP is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

END = b"\r\n\r\n"
MOST_HEAD = 2**16

_REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:[ \t]*100-continue", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Request:
    """The first line of a request; the path has the query, as sent."""

    method: str
    path: str


class RequestHeads:
    """Finds the requests in what a client sends over one connection."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0  # of the body, or of the current chunk of a chunked one
        self._in_chunks = False
        self._waits = False  # for a 100 Continue, with no byte of the body sent yet
        self._opaque = False

    def feed(self, data: bytes) -> list[Request]:
        """Take the next bytes; return the requests whose heads end in them."""
        found: list[Request] = []
        if self._waits and _REQUEST.match(data):
            # The server answered without asking for the body, so none was sent.
            self._left, self._in_chunks = 0, False
        self._waits = False
        while data and not self._opaque:
            if self._left:
                skipped = min(self._left, len(data))
                self._left -= skipped
                data = data[skipped:]
                continue
            self._head += data
            end = self._head.find(b"\r\n" if self._in_chunks else END)
            if end < 0:
                self._opaque = len(self._head) > MOST_HEAD
                break
            if self._in_chunks:
                data = self._head[end + 2 :]
                self._chunk(self._head[:end])
            else:
                head, data = self._head[: end + len(END)], self._head[end + len(END) :]
                self._request(head, found)
            self._head = b""
            self._waits = self._waits and not data
        return found

    def _request(self, head: bytes, found: list[Request]) -> None:
        line = _REQUEST.match(head)
        if line is None:
            self._opaque = True
            return
        found.append(Request(line[1].decode(), line[2].decode("latin-1")))
        length = _LENGTH.search(head)
        self._in_chunks = bool(_CHUNKED.search(head))
        self._left = int(length[1]) if length and not self._in_chunks else 0
        self._waits = bool(_EXPECT.search(head))

    def _chunk(self, line: bytes) -> None:
        """Take the line before a chunk. Trailers are skipped like the empty line that ends them."""
        size = line.partition(b";")[0].strip()
        try:
            count = int(size, 16)
        except ValueError:
            # After the last chunk come trailers, then an empty line ends the body.
            self._in_chunks = bool(size)
            return
        self._left = count + 2 if count else 0


def split_interim(data: bytes) -> tuple[bytes, bytes]:
    """Split what a server sent into whole interim answers (``100 Continue``) and the rest."""
    end = 0
    while data[end : end + 10] in (b"HTTP/1.1 1", b"HTTP/1.0 1"):
        after = data.find(END, end)
        if after < 0:
            break
        end = after + len(END)
    return data[:end], data[end:]
