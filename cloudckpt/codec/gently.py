"""Encoding a large state without keeping Python's lock for long.

Owns: `prepare`, which does in pieces what `encoding.prepare` does in one go. Invariant: the
same bytes, or the same error. Between two pieces other threads get their turn: an event
loop in another one is held up for a millisecond or two, and not for as long as it
takes to pack the whole. Large text and bytes are never copied as a whole. It takes two to five
times as long, so it is for threads that nobody waits for.

A set, and what is inside of more than `_LEVELS` containers, is packed in one go.
"""

from __future__ import annotations

import struct
import time
from typing import Any, Final

from msgpack import ExtType

from cloudckpt.codec import encoding
from cloudckpt.codec.encoding import LEAST_ASIDE, Encoding, Unsealed
from cloudckpt.codec.frame import MAX_STATE_BYTES
from cloudckpt.codec.freezing import ATOMS

_PIECE: Final = 1 << 18
"""Bytes after which other threads get a turn."""

_LARGE: Final = 1 << 18
"""Length from which on text and bytes are written by themselves; so each is msgpack's str 32 or bin 32."""

_FEW: Final = 64
_LEVELS: Final = 48
_BIN_32: Final = struct.Struct(">BI")


def prepare(state: object, *, max_bytes: int = MAX_STATE_BYTES) -> Unsealed:
    """Return what `encoding.prepare` returns, in more parts. The state must not change meanwhile.

    Raises:
        SerializationError: As `encode`.
    """
    gentle = _Gentle()
    try:
        gentle.emit(state, 0)
        gentle.cut()
    except Exception:  # noqa: BLE001 - in one go it is packed after all, or says what is wrong with it
        return encoding.prepare(state, max_bytes=max_bytes)
    unsealed = Unsealed(gentle.parts, gentle.behind, gentle.marks, *encoding.schema_of(state))
    return encoding.checked(unsealed, max_bytes)


class _Gentle(Encoding):
    """One call of `prepare`.

    Attributes:
        parts: The encoded state so far, and what lies behind it in `behind`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes | memoryview] = []
        self.behind: list[bytes | memoryview] = []
        self._into = self._packer(autoreset=False)
        self._weight = 0

    def emit(self, value: Any, level: int) -> None:
        """Write a value."""
        cls = type(value)
        if cls is str or cls is bytes:
            self._text(value)
        elif cls in ATOMS:
            self._pack(value, 9)
        elif cls is dict:
            self._dict(value, level)
        elif cls is list:
            self._list(value, level)
        elif cls is ExtType:
            self._pack(value, len(value.data))
        else:
            self.emit(self(value), level)

    def _dict(self, value: dict[Any, Any], level: int) -> None:
        if len(value) <= _FEW and (weight := _light([*value, *value.values()])):
            self._pack(value, weight)
            return
        _check(level)
        self._into.pack_map_header(len(value))
        self._weight += 5
        for key, item in value.items():
            self.emit(key, level + 1)
            self.emit(item, level + 1)

    def _list(self, value: list[Any], level: int) -> None:
        if len(value) <= _FEW and (weight := _light(value)):
            self._pack(value, weight)
            return
        _check(level)
        self._into.pack_array_header(len(value))
        self._weight += 5
        for item in value:
            self.emit(item, level + 1)

    def _text(self, value: str | bytes) -> None:
        if len(value) < _LARGE:
            self._pack(value, len(value))
            return
        self.cut()
        if isinstance(value, bytes):
            self.parts += [_BIN_32.pack(0xC6, len(value)), value]
            return
        cuts = range(0, len(value), _LARGE)
        encoded = [value[start : start + _LARGE].encode("utf-8", "surrogatepass") for start in cuts]
        self.parts += [_BIN_32.pack(0xDB, sum(map(len, encoded))), *encoded]

    def _pack(self, value: Any, weight: int) -> None:
        self._into.pack(value)
        self._weight += weight + 5
        if self._weight >= _PIECE:
            self.cut()

    def cut(self) -> None:
        """End a piece, and let others have their turn."""
        if self._weight:
            self.parts.append(self._into.bytes())
            self._into.reset()
            self._weight = 0
            time.sleep(0)

    def aside(self, data: bytes | memoryview) -> bytes | memoryview | None:
        """Put an array's bytes behind the value, if it is large; they are not copied."""
        if self._ordering or len(data) < LEAST_ASIDE:
            return data
        self.behind += [_BIN_32.pack(0xC6, len(data)), data]
        return None


def _light(values: list[Any]) -> int:
    """Return about how many bytes plain values take, or 0 when they hold others or too many."""
    if not ATOMS.issuperset(map(type, values)):
        return 0
    weight = sum([len(one) if type(one) in (str, bytes) else 9 for one in values])
    return weight + 1 if weight < _PIECE else 0


def _check(level: int) -> None:
    if level >= _LEVELS:
        raise RecursionError
