"""Bytes to state.

Owns: `decode`. Invariant: any bytes give a value or a `DataError`; no code is
run and nothing imported because bytes name it. Memory is bounded: what a frame
claims is compared with a bound before it is decompressed, and the structure is
checked by a pass that makes nothing, so that a header can't ask for more items
than there are bytes. Bytes that lie behind the value become one array each.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any, Final, TypeVar, overload

from cloudckpt.codec import frame
from cloudckpt.codec.frame import MAX_STATE_BYTES
from cloudckpt.errors import CorruptCheckpointError, DataError, SchemaError

T = TypeVar("T")

_READ_SIZE: Final = 1 << 16


@overload
def decode(data: bytes, type: type[T], *, max_bytes: int = ...) -> T: ...
@overload
def decode(data: bytes, type: None = None, *, max_bytes: int = ...) -> Any: ...
def decode(data: bytes, type: Any = None, *, max_bytes: int = MAX_STATE_BYTES) -> Any:
    """Return the state in `data`.

    Args:
        data: What `Encoded.data` was.
        type: What to build: a class, or a hint such as ``list[Order]``. Without it,
            and inside of it where no hint names a class, an object comes back
            as an instance of the class that is registered under its tag, else
            as a `Record`.
        max_bytes: How large the state may be before compression.

    Raises:
        CorruptCheckpointError: Damaged bytes, without saying where they are from.
        UnsupportedFormatError: A newer release or another codec wrote it.
        SchemaError: The bytes are intact, but not what was asked for.
    """
    frame.import_codecs()
    encoded, flags = frame.unseal(data, max_bytes=max_bytes)
    try:
        value = _unpack(encoded, flags)
        if type is None:
            return value
        from cloudckpt.codec.building import fit

        return fit(value, type)
    except RecursionError as error:
        raise SchemaError(
            "the objects are nested too deep to be built; load without a type, "
            "or raise Python's recursion limit",
            kind="too-deep",
        ) from error


def _unpack(encoded: bytes, flags: int) -> Any:
    try:
        packed, aside = _split(encoded, has_aside=bool(flags & frame.ASIDE))
        if not flags:
            with suppress(_NotPlainError):
                return _plain(packed)
        from cloudckpt.codec.reading import read

        return read(packed, aside, marks=bool(flags & frame.MARKS))
    except (DataError, MemoryError, RecursionError):  # neither of the last two is the data's fault
        raise
    except Exception as error:
        raise CorruptCheckpointError(
            "the encoded state is damaged, no encoder writes such bytes", kind="bad-encoding"
        ) from error


def _split(encoded: bytes, *, has_aside: bool) -> tuple[memoryview, memoryview]:
    """Return the one msgpack value at the start, whatever it means, and what lies behind it."""
    from msgpack import Unpacker

    size = len(encoded)
    read_size = max(1, min(size, _READ_SIZE))
    unpacker = Unpacker(io.BytesIO(encoded), read_size=read_size, max_buffer_size=max(size, 1))
    unpacker.skip()
    end = unpacker.tell()
    if has_aside != (end < size):
        raise ValueError("bytes after the end of the value, or none where the header says so")
    return memoryview(encoded)[:end], memoryview(encoded)[end:]


class _NotPlainError(Exception):
    """There is a value that msgpack has no type for."""


def _plain(packed: memoryview) -> Any:
    """Return a value of msgpack's own types only, for which little needs to be imported."""
    from msgpack import unpackb

    return unpackb(packed, ext_hook=_refuse, strict_map_key=False, unicode_errors="surrogatepass")


def _refuse(_code: int, _payload: bytes) -> Any:
    raise _NotPlainError
