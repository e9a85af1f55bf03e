"""What is stored: a header that names codec and version, then one zstd frame.

Owns: the outermost bytes of a payload. Invariant: `unseal` gives back exactly
what `seal` took, or raises; it never allocates before it has compared what the
frame claims to hold with a bound. It does not know what the encoded state means.

    4 bytes   b"ckpt"
    1 byte    version of this header, 1
    1 byte    flags: 1 = the state holds marks (see `wire.py`), 2 = large arrays lie behind the value
    1 byte    length of the codec's name, then the name in ASCII
    2 bytes   version of the codec, big-endian
    rest      one zstd frame with content size and checksum
"""

from __future__ import annotations

import io
import struct
import threading
from functools import cache
from typing import Any, Final

from cloudckpt.errors import CorruptCheckpointError, InvalidInputError, UnsupportedFormatError
from cloudckpt.late import imported

CODEC: Final = "msgpack+zstd"
CODEC_VERSION: Final = 1
FRAME_VERSION: Final = 1
MARKS: Final = 1
ASIDE: Final = 2

MAX_STATE_BYTES: Final = 1 << 30
"""How large an encoded state may be, unless the caller says otherwise: 1 GiB."""

# zstd's densest block says 128 KiB in 4 bytes; a frame that claims more is a lie.
_MOST_PER_BYTE: Final = 1 << 15
_MAGIC: Final = b"ckpt"
_FIXED: Final = struct.Struct(">4sBBB")
_VERSION: Final = struct.Struct(">H")
_LEVEL: Final = 3


def check_max_state_bytes(value: int | None) -> int:
    """Return the limit; None is the largest that a load takes.

    Raises:
        InvalidInputError: It is no number of bytes, or a load would refuse such a state.
    """
    if value is None:
        return MAX_STATE_BYTES
    if type(value) is not int or not 0 < value <= MAX_STATE_BYTES:
        raise InvalidInputError(
            f"max_state_bytes must be a whole number from 1 to {MAX_STATE_BYTES}, or None", got=value
        )
    return value


class _Own(threading.local):
    """Each thread's compressor: to make one takes three times as long as to compress a small state."""

    compressor: Any = None


_own = _Own()


def seal(encoded: memoryview | bytes, aside: memoryview | bytes = b"", *, marks: bool) -> bytes:
    """Return the header and the compressed `encoded`, with what lies behind its value."""
    if aside:
        payload = io.BytesIO()
        payload.write(header(marks=marks, aside=True))
        # Not the thread's own: between two writes a signal's handler may save, too.
        with _compressor().stream_writer(payload, size=len(encoded) + len(aside), closefd=False) as stream:
            stream.write(encoded)
            stream.write(aside)
        return payload.getvalue()
    if _own.compressor is None:
        _own.compressor = _compressor()
    frame: bytes = _own.compressor.compress(encoded)
    if isinstance(encoded, memoryview):
        encoded.release()  # so that the packed state and the joined payload never exist at once
    return header(marks=marks) + frame


def seal_parts(encoded: list[memoryview | bytes], aside: list[memoryview | bytes], *, marks: bool) -> bytes:
    """Return what `seal` returns for the joined parts, which are never joined. Empties both lists.

    The frame decodes to the same, and need not be the same. Where `seal` is for a caller who
    waits, this is for a thread beside others: it never keeps Python's lock for long.
    """
    parts = [*encoded, *aside]
    found = _Pieces([header(marks=marks, aside=bool(aside))])
    # Not the thread's own: between two writes a signal's handler may save, too.
    with _compressor().stream_writer(found, size=sum(map(len, parts)), closefd=False) as stream:
        for part in parts:
            stream.write(part)
    for each in (parts, encoded, aside):  # so that never more than two of that size exist at once
        each.clear()
    return b"".join(found)


class _Pieces(list[bytes]):
    """A stream that is not moved as it grows: moving 100 MB takes 30 ms under Python's lock."""

    def write(self, piece: bytes) -> int:
        """Take a piece."""
        self.append(piece)
        return len(piece)


@cache
def import_codecs() -> None:
    """Import what every state needs, on whatever thread; a fork waits for it."""
    imported("msgpack", "zstandard")


def _compressor() -> Any:
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=_LEVEL, write_content_size=True, write_checksum=True)


@cache
def header(*, marks: bool, aside: bool = False) -> bytes:
    """Return what stands before the zstd frame."""
    name = CODEC.encode()
    flags = (MARKS if marks else 0) | (ASIDE if aside else 0)
    fixed = _FIXED.pack(_MAGIC, FRAME_VERSION, flags, len(name))
    return fixed + name + _VERSION.pack(CODEC_VERSION)


def unseal(data: bytes, *, max_bytes: int) -> tuple[bytes, int]:
    """Return the encoded state, and the flags.

    Raises:
        UnsupportedFormatError: A newer release or another codec wrote it.
        CorruptCheckpointError: It is damaged, or claims more than `max_bytes`.
    """
    start, flags = _read_header(data)
    if flags & ~(MARKS | ASIDE):
        raise UnsupportedFormatError(
            "the payload uses a feature of a newer release; upgrade cloudckpt",
            kind="newer-frame",
            flags=flags,
        )
    return _decompress(memoryview(data)[start:], max_bytes), flags


def _read_header(data: bytes) -> tuple[int, int]:
    if not data:
        raise CorruptCheckpointError("the payload is empty", kind="truncated")
    if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
        raise CorruptCheckpointError(
            "this is not a payload of cloudckpt, or its beginning is damaged", kind="bad-magic"
        )
    if len(data) < _FIXED.size:
        raise _cut_short(len(data))
    _, version, flags, name_length = _FIXED.unpack_from(data)
    if version > FRAME_VERSION:
        raise UnsupportedFormatError(
            "a newer release wrote the payload; upgrade cloudckpt",
            kind="newer-frame",
            frame_version=version,
            newest_known=FRAME_VERSION,
        )
    if version < 1:
        raise CorruptCheckpointError("the payload's header is damaged", kind="bad-header")
    end = _FIXED.size + name_length + _VERSION.size
    if len(data) < end:
        raise _cut_short(len(data))
    name = data[_FIXED.size : _FIXED.size + name_length].decode("ascii", "backslashreplace")
    (codec_version,) = _VERSION.unpack_from(data, end - _VERSION.size)
    if name != CODEC:
        raise UnsupportedFormatError(
            "the payload is in a codec that this release does not have; upgrade cloudckpt, "
            "or load it where it was saved",
            kind="unknown-codec",
            codec=name,
        )
    if codec_version > CODEC_VERSION:
        raise UnsupportedFormatError(
            "the payload is in a newer version of the codec; upgrade cloudckpt",
            kind="newer-codec",
            codec=f"{name}/{codec_version}",
            newest_known=f"{CODEC}/{CODEC_VERSION}",
        )
    return end, flags


def _decompress(frame: memoryview, max_bytes: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError, get_frame_parameters

    if not frame:
        raise _cut_short(0)
    try:
        claimed: int = get_frame_parameters(frame).content_size
    except ZstdError as error:
        raise CorruptCheckpointError(
            "the payload's zstd frame is damaged or cut short", kind="bad-frame"
        ) from error
    if claimed > min(max_bytes, len(frame) * _MOST_PER_BYTE):
        raise CorruptCheckpointError(
            "the payload claims to hold more than it may; if the state really is that large, raise max_bytes",
            kind="too-large",
            claimed=claimed,
            max_bytes=max_bytes,
        )
    try:
        # Without content the frame may still hold anything, so zero is not believed either.
        encoded: bytes = ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except ZstdError as error:
        raise _frame_error(error, len(frame)) from error
    if len(encoded) != claimed:
        raise CorruptCheckpointError("the payload is not of the size that it claims", kind="bad-frame")
    return encoded


def _frame_error(error: Exception, size: int) -> CorruptCheckpointError:
    text = str(error)
    if "unused data" in text:
        return CorruptCheckpointError("there are bytes after the end of the payload", kind="trailing-bytes")
    if "full frame" in text:
        return _cut_short(size)
    if "checksum" in text:
        return CorruptCheckpointError("the payload's checksum does not match", kind="bad-checksum")
    return CorruptCheckpointError("the payload's zstd frame is damaged", kind="bad-frame")


def _cut_short(size: int) -> CorruptCheckpointError:
    return CorruptCheckpointError("the payload is cut short", kind="truncated", size=size)
