"""The vocabulary of the encoded state: msgpack, plus a closed set of extensions.

Owns: the numbers, and how they lie in the bytes. Invariant: a number is never
given a second meaning; a new one needs no new version, a changed one does.

A value that msgpack has no type for is either
- a *scalar*: one extension, whose payload is the value (`scalars.py`); or
- a *container*: an array whose first item is a *mark*, an extension of one byte
  that says what the array stands for (`containers.py`, `records.py`). So
  nothing is encoded twice or copied into an outer payload, and depth is
  bounded by msgpack's own limit.

Every code is negative. msgpack's `ExtType` can't be made with a negative code,
so no value of a user's can pass for one of ours, and a user's own `ExtType`
comes back as it was.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

MARK: Final = -2

INT: Final = -3
COMPLEX: Final = -4
DATETIME: Final = -5
DATE: Final = -6
TIME: Final = -7
TIMEDELTA: Final = -8
TIMEZONE: Final = -9
UUID: Final = -10
DECIMAL: Final = -11
FRACTION: Final = -12
PATH: Final = -13
IP: Final = -14
ELLIPSIS: Final = -15

TUPLE: Final = 1
SET: Final = 2
FROZENSET: Final = 3
RECORD: Final = 4
RANGE: Final = 5
SLICE: Final = 6
PATTERN: Final = 7
DEQUE: Final = 8
ORDERED_DICT: Final = 9
COUNTER: Final = 10
DEFAULT_DICT: Final = 11
CHAIN_MAP: Final = 12
MAPPING_PROXY: Final = 13
NAMESPACE: Final = 14
ARRAY: Final = 15
NUMPY_SCALAR: Final = 16

MAX_DEPTH: Final = 1023
"""How many containers a value may be inside of; an object with fields counts as two."""


class Unsupported(Exception):  # noqa: N818 - a reason on its way to a SerializationError
    """A value can't be carried. `reason` reads on after ``state.plan[3]: ``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Mark:
    """What a decoded mark is, until its array is turned into what it stands for."""

    __slots__ = ("kind",)

    def __init__(self, kind: int) -> None:
        self.kind = kind


def extension(code: int, payload: bytes) -> Any:
    """Return what the packer writes as extension `code`."""
    from msgpack import ExtType

    return ExtType._make((code, payload))  # the constructor refuses our codes, see above


@cache
def mark(kind: int) -> Any:
    """Return the first item of a container of this kind."""
    return extension(MARK, bytes((kind,)))
