"""Bytes to state.

Owns: `decode`. Invariant: any bytes give a value or a `DataError`; no code is
run and nothing imported because bytes name it. Memory is bounded: what a frame
claims is compared with a bound before it is decompressed, and the structure is
checked by a pass that makes nothing, so that a header can't ask for more items
than there are bytes. Bytes that lie behind the value become one array each.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final, TypeVar, overload

from cloudckpt.codec import arrays, building, containers, frame, records, registry, scalars, wire
from cloudckpt.codec.frame import MAX_STATE_BYTES
from cloudckpt.codec.wire import Mark
from cloudckpt.errors import CorruptCheckpointError, DataError, SchemaError, UnsupportedFormatError

T = TypeVar("T")

_READ_SIZE: Final = 1 << 16
_MANY: Final = 10_000
_BIN_32: Final = struct.Struct(">BI")
_BIN_32_CODE: Final = 0xC6
_LOADERS: Final = {**containers.LOADERS, **arrays.LOADERS}


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
    encoded, flags = frame.unseal(data, max_bytes=max_bytes)
    try:
        value = _unpack(encoded, flags)
        return value if type is None else building.fit(value, type)
    except RecursionError as error:
        raise SchemaError(
            "the objects are nested too deep to be built; load without a type, "
            "or raise Python's recursion limit",
            kind="too-deep",
        ) from error


def _unpack(encoded: bytes, flags: int) -> Any:
    marks = bool(flags & frame.MARKS)
    try:
        packed, aside = _split(encoded, has_aside=bool(flags & frame.ASIDE))
        reader = _Reader(aside, marks=marks)
        try:
            value = reader.read(packed)
        except _ManyValues:
            reader = _Reader(aside, marks=marks, guarded=True)
            value = reader.read(packed)
    except (DataError, MemoryError, RecursionError):  # neither of the last two is the data's fault
        raise
    except Exception as error:
        raise CorruptCheckpointError(
            "the encoded state is damaged, no encoder writes such bytes", kind="bad-encoding"
        ) from error
    if reader.open_marks or reader.aside:
        raise CorruptCheckpointError(
            "the encoded state is damaged, a mark or an array is out of place", kind="bad-encoding"
        )
    return value


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


class _ManyValues(Exception):  # noqa: N818 - asks for another attempt, and gets it
    """There are enough values of our own that they could be made to slow a dict down."""


class _Reader:
    """One call of `decode`: the unpacker's hooks.

    msgpack's own keys can't be made to collide in number, but integers of any
    size or tuples can. So a state with many values of our own is read with a
    look at every dict, which others are spared.

    Attributes:
        open_marks: Marks that no container has taken up; none are left at the end.
        aside: What lies behind the value and no array has taken up yet.
    """

    def __init__(self, aside: memoryview, *, marks: bool, guarded: bool = False) -> None:
        self.open_marks = 0
        self.aside = aside
        self._marks = marks
        self._guarded = guarded
        self._values = 0
        self._pattern_lengths = 0

    def read(self, packed: memoryview) -> Any:
        from msgpack import unpackb

        return unpackb(
            packed,
            ext_hook=self.extension,
            list_hook=self.container if self._marks else None,
            object_pairs_hook=self.checked_dict if self._guarded else None,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )

    def extension(self, code: int, payload: bytes) -> Any:
        if code == wire.MARK:
            self.open_marks += 1
            (kind,) = payload
            return Mark(kind)
        self._count()
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
            record = records.from_array(items)
            cls = registry.class_of(record.tag)
            if cls is None:  # its hash depends on its fields' names, whose hashes nobody knows
                return record
            self._count()
            return building.build(cls, record)
        self._count()
        if kind == wire.PATTERN:
            self._spend(items[1:2])
        elif kind == wire.ARRAY and items[-1] is None:
            items[-1] = self._next_aside()
        load = _LOADERS.get(kind)
        if load is None:
            raise _unknown(f"container {kind}")
        return load(items[1:])

    def checked_dict(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        containers.refuse_collisions([key for key, _ in pairs])
        return dict(pairs)

    def _next_aside(self) -> memoryview:
        code, length = _BIN_32.unpack_from(self.aside)
        start, end = _BIN_32.size, _BIN_32.size + length
        if code != _BIN_32_CODE or end > len(self.aside):
            raise ValueError("not an array's bytes")
        found, self.aside = self.aside[start:end], self.aside[end:]
        return found

    def _count(self) -> None:
        self._values += 1
        if self._values > _MANY and not self._guarded:
            raise _ManyValues

    def _spend(self, pattern: list[Any]) -> None:
        self._pattern_lengths += sum(map(len, pattern))
        if self._pattern_lengths > containers.MAX_PATTERNS:
            raise ValueError("more patterns than a state may hold")


def _unknown(tag: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        "the state holds a type of value that this release does not know; upgrade cloudckpt",
        kind="unknown-extension",
        tag=tag,
    )
