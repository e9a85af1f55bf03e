"""The one msgpack value of a payload, with what msgpack has no type for.

Owns: the unpacker's hooks. Invariants: a mark is taken up by the container that it
begins, and bytes that lie behind the value by one array each, else the reading fails;
no class is built but one that this process registered.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from cloudckpt.codec import (
    arrays,
    building,
    containers,
    records,
    redaction,  # noqa: F401 - registers the class of what was redacted
    registry,
    scalars,
    wire,
)
from cloudckpt.codec.wire import Mark
from cloudckpt.errors import UnsupportedFormatError

_MANY: Final = 10_000
_BIN_32: Final = struct.Struct(">BI")
_BIN_32_CODE: Final = 0xC6
_LOADERS: Final = {**containers.LOADERS, **arrays.LOADERS}


def read(packed: memoryview, aside: memoryview, *, marks: bool) -> Any:
    """Return the value.

    Args:
        packed: One msgpack value.
        aside: The bytes that lie behind it.
        marks: Whether it may hold marks.

    Raises:
        Exception: It is damaged.
        DataError: It holds what this release does not know, or what can't be built.
    """
    reader = _Reader(aside, marks=marks)
    try:
        value = reader.read(packed)
    except _ManyValues:
        reader = _Reader(aside, marks=marks, guarded=True)
        value = reader.read(packed)
    if reader.open_marks or reader.aside:
        raise ValueError("a mark or an array is out of place")
    return value


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
