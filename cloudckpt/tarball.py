"""A plain tar file of which every byte has one right value. Pure.

Owns: how members are laid out, written and read, as a stream in both directions.
Invariants: equal members in equal order give equal bytes; a byte that is changed, cut
off or added is found, also in headers and padding, which other readers of tar pass
over. It knows nothing of what is in the members.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from cloudckpt.errors import CorruptCheckpointError

BLOCK = tarfile.BLOCKSIZE
RECORD = tarfile.RECORDSIZE
CHUNK = 1 << 20
_PATH = re.compile(rb"[0-9]+ path=([^\n]*)\n")
MAX_MEMBER = 1 << 32
"""No member of ours is nearly as large."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive, of `size` bytes; `time` in seconds since 1970."""

    name: str
    size: int
    time: int


def header(member: Member) -> bytes:
    """Return what stands in front of a member's bytes: owned by nobody, readable by all."""
    info = tarfile.TarInfo(member.name)
    info.size, info.mtime = member.size, member.time
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")
    except ValueError:  # a name of over 100 characters that can't be parted
        return info.tobuf(tarfile.PAX_FORMAT, "ascii", "strict")


def padding(size: int, to: int = BLOCK) -> bytes:
    """Return what fills `size` bytes up to a whole block."""
    return bytes(-size % to)


def tail(size: int) -> bytes:
    """Return the end of an archive that has `size` bytes so far."""
    return bytes(2 * BLOCK) + padding(size + 2 * BLOCK, RECORD)


class TarReader:
    """Reads an archive from its beginning to its end.

    Args:
        file: The archive. It need not be seekable.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0
        self._left = 0
        self._name: str | None = None
        self._last: str | None = None

    def next(self) -> Member | None:
        """Return the next member, or None after the last; what is left of the one before is passed over.

        Raises:
            CorruptCheckpointError: It is no archive of ours, or is damaged here.
        """
        for _ in self.chunks():
            pass
        raw = self._read(BLOCK, "in front of a member")
        if raw == bytes(BLOCK):
            self._end()
            return None
        info = self._parsed(raw)
        if info.type == tarfile.XHDTYPE:  # a long name stands in front, as a member of its own
            record = self._read(info.size + -info.size % BLOCK, "in a member's name")
            last = self._read(BLOCK, "in front of a member")
            raw += record + last
            named = _PATH.match(record)
            info = self._parsed(last)
            info.name = named[1].decode("latin-1") if named else ""
        member = Member(info.name, info.size, int(info.mtime))
        if member.size > MAX_MEMBER or not member.name.isascii() or header(member) != raw:
            raise self._broken("a member's header is damaged or not ours")
        self._name, self._left = member.name, member.size
        return member

    def _parsed(self, raw: bytes) -> tarfile.TarInfo:
        try:
            info = tarfile.TarInfo.frombuf(raw, "ascii", "strict")
        except (tarfile.TarError, ValueError) as error:
            raise self._broken("a member's header is damaged, or this is no archive") from error
        if info.type == tarfile.XHDTYPE and info.size > CHUNK:
            raise self._broken("a member's header is damaged")
        return info

    def chunks(self) -> Iterator[bytes]:
        """Yield the rest of the member's bytes."""
        if self._name is None:
            return
        while self._left:
            chunk = self._read(min(CHUNK, self._left), "in the middle of a member")
            self._left -= len(chunk)
            yield chunk
        self._padding()

    def read(self) -> bytes:
        """Return the rest of the member's bytes."""
        if self._name is None:
            return b""
        size, self._left = self._left, 0
        data = self._read(size, "in the middle of a member")
        self._padding()
        return data

    def skip(self) -> None:
        """Pass over the member's bytes, without a look at them where the file is seekable."""
        if self._file.seekable() and self._left:
            size, self._left = self._left, 0
            self._file.seek(size - 1, io.SEEK_CUR)  # and read the last one: seeking goes past an end
            self._at += size - 1
            self._read(1, "in the middle of a member")
            self._padding()
        for _ in self.chunks():
            pass

    def _padding(self) -> None:
        fill = padding(self._at)
        if self._read(len(fill), "in the middle of a member") != fill:
            raise self._broken("there is something between two members")
        self._name, self._last = None, self._name

    def _end(self) -> None:
        rest = tail(self._at - BLOCK)[BLOCK:]
        if self._read(len(rest), "before its end") != rest or self._file.read(1):
            raise self._broken("there is something behind the last member")

    def _read(self, size: int, where: str) -> bytes:
        data = self._file.read(size) if size else b""
        if 0 < len(data) < size:  # a pipe gives what it has
            pieces = [data]
            left = size - len(data)
            while left and (more := self._file.read(left)):
                pieces.append(more)
                left -= len(more)
            data = b"".join(pieces)
        if len(data) < size:
            raise self._broken(f"the archive ends {where}")
        self._at += size
        return data

    def _broken(self, message: str) -> CorruptCheckpointError:
        where = f"{message}, at byte {self._at}" + (
            "" if self._name else f", behind {self._last or 'its beginning'}"
        )
        return CorruptCheckpointError(where, key=self._name, kind="archive")
