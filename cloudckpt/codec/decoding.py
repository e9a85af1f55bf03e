"""Bytes to state.

Owns: `decode`. Invariant: any bytes give a value or a `DataError`; no code is
run and nothing imported because bytes name it. Memory is bounded: what a frame
claims is compared with a bound before it is decompressed, and the structure is
checked by a pass that makes nothing, so that a header can't ask for more items
than there are bytes.
"""

from __future__ import annotations

import io
from typing import Any, Final, TypeVar, overload

from cloudckpt.codec import building, containers, frame, records, scalars, wire
from cloudckpt.codec.frame import MAX_STATE_BYTES
from cloudckpt.codec.wire import Mark
from cloudckpt.errors import CorruptCheckpointError, DataError, UnsupportedFormatError

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
    encoded, marks = frame.unseal(data, max_bytes=max_bytes)
    value = _unpack(encoded, marks=marks)
    return value if type is None else building.fit(value, type)


def _unpack(encoded: bytes, *, marks: bool) -> Any:
    from msgpack import unpackb

    reader = _Reader()
    try:
        _check_structure(encoded)
        value = unpackb(
            encoded,
            ext_hook=reader.extension,
            list_hook=reader.container if marks else None,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )
    except (DataError, MemoryError):  # the machine's lack of memory is not the data's fault
        raise
    except Exception as error:
        raise CorruptCheckpointError(
            "the encoded state is damaged, no encoder writes such bytes", kind="bad-encoding"
        ) from error
    if reader.open_marks:
        raise CorruptCheckpointError(
            "the encoded state is damaged, a mark is out of place", kind="bad-encoding"
        )
    return value


def _check_structure(encoded: bytes) -> None:
    """Raise unless `encoded` is exactly one msgpack value, whatever it means."""
    from msgpack import Unpacker

    size = len(encoded)
    read_size = max(1, min(size, _READ_SIZE))
    unpacker = Unpacker(io.BytesIO(encoded), read_size=read_size, max_buffer_size=max(size, 1))
    unpacker.skip()
    if unpacker.tell() != size:
        raise ValueError("bytes after the end of the value")


class _Reader:
    """One call of `decode`: the unpacker's hooks.

    Attributes:
        open_marks: Marks that no container has taken up; none are left at the end.
    """

    def __init__(self) -> None:
        self.open_marks = 0

    def extension(self, code: int, payload: bytes) -> Any:
        if code == wire.MARK:
            self.open_marks += 1
            (kind,) = payload
            return Mark(kind)
        if code >= 0:
            from msgpack import ExtType

            return ExtType(code, payload)
        load = scalars.LOADERS.get(code)
        if load is None:
            raise _unknown(f"extension {code}")
        return load(payload)

    def container(self, items: list[Any]) -> Any:
        if not items or type(items[0]) is not Mark:
            return items
        self.open_marks -= 1
        kind = items[0].kind
        if kind == wire.RECORD:
            return building.revive(records.from_array(items))
        load = containers.LOADERS.get(kind)
        if load is None:
            raise _unknown(f"container {kind}")
        return load(items[1:])


def _unknown(tag: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        "the state holds a type of value that this release does not know; upgrade cloudckpt",
        kind="unknown-extension",
        tag=tag,
    )
