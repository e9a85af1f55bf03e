"""Heads of HTTP/1.1 messages in a stream of bytes: enough to count requests and to know when one is answered.

Owns: where a request begins, how long its body is, and what names its object. It
checks nothing, keeps no body but the part that has the name, and never raises: a
stream that is not HTTP is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

END = b"\r\n\r\n"
MOST_HEAD = 2**16

_REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect:[ \t]*100-continue", re.IGNORECASE)
_UPLOAD = re.compile(rb"\r\ncontent-type:[ \t]*multipart/related", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Request:
    """The first line of a request; the path has the query, as sent.

    Attributes:
        part: Of an upload in parts the first one, where Google's has the object's name; else "".
    """

    method: str
    path: str
    part: str = field(default="", compare=False, repr=False)


class RequestHeads:
    """Finds the requests in what a client sends over one connection."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0  # of the body, or of the current chunk of a chunked one
        self._in_chunks = False
        self._waits = False  # for a 100 Continue, with no byte of the body sent yet
        self._opaque = False
        self._upload: Request | None = None  # whose first part is not here yet
        self._part = b""

    @property
    def undecided(self) -> bool:
        """Whether a request has begun that `feed` has not returned yet."""
        return self._upload is not None or bool(self._head and not self._in_chunks and not self._opaque)

    @property
    def whole(self) -> bool:
        """Whether the newest request is here to its last byte."""
        return not (self._left or self._in_chunks or self.undecided)

    def feed(self, data: bytes) -> list[Request]:
        """Take the next bytes; return the requests whose heads, and first parts, end in them."""
        found: list[Request] = []
        if self._waits and _REQUEST.match(data):
            # The server answered without asking for the body, so none was sent.
            self._left, self._in_chunks = 0, False
        self._waits = False
        while data and not self._opaque:
            if self._left:
                body, data = data[: self._left], data[self._left :]
                self._left -= len(body)
                if self._upload is not None:
                    self._look(self._upload, body, found)
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
        request = Request(line[1].decode(), line[2].decode("latin-1"))
        length = _LENGTH.search(head)
        self._in_chunks = bool(_CHUNKED.search(head))
        self._left = int(length[1]) if length and not self._in_chunks else 0
        self._waits = bool(_EXPECT.search(head))
        if self._left and not self._waits and _UPLOAD.search(head):
            self._upload, self._part = request, b""
        else:
            found.append(request)

    def _look(self, upload: Request, body: bytes, found: list[Request]) -> None:
        """Take of an upload's body what belongs to its first part: up to the head of the second one."""
        self._part += body
        if self._part.count(END) > 1 or len(self._part) > MOST_HEAD or not self._left:
            first = END.join(self._part.split(END, 2)[:2])
            found.append(replace(upload, part=first[:MOST_HEAD].decode("latin-1")))
            self._upload = None

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
