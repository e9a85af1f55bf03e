"""How many bytes which part of a state takes.

Owns: `measure`, which makes the tree of sizes. Invariants: the root has exactly the sizes that
a save of the state has; work is bounded by packing and compressing the state once
per level, of at most `_LEVELS`; the tree is bounded by its smallest part. `Size`
itself is a frozen value of `model.py`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Any, Final

from cloudckpt.codec import arrays, frame
from cloudckpt.codec.encoders import parts_of
from cloudckpt.codec.encoding import Packed, pack
from cloudckpt.codec.records import Record
from cloudckpt.measured import Size

_LEVELS: Final = 16
"""Depth of the tree: what is deeper counts as part of what it is in."""

_SMALLEST: Final = 1000
"""A part that is smaller than the state divided by this is not in the tree."""

_LONGEST_NAME: Final = 100
"""A key of fewer bytes is not in the tree by itself."""

_UNDIVIDED: Final = frozenset(
    {type(None), bool, int, float, str, bytes, bytearray, memoryview, range, slice, re.Pattern}
)


def measure(state: object) -> Size:
    """Return how many bytes each part of a state takes, by path, the fattest first.

    `encoded` is before compression. `compressed` is what the part takes when it is
    stored by itself; so parts that resemble each other add up to more than the whole
    that they are in. Parts below a thousandth of the state, and what is more than 16
    levels deep, are only in the sums.

    ``print(cloudckpt.measure(state))`` shows the fattest parts.

    Args:
        state: Anything that can be saved. Nothing is excluded from it or redacted.

    Raises:
        SerializationError: It holds what can't be carried; `paths` says where.
    """
    packed = pack(state)
    return _measure(state, packed, "state", whole=packed.size, level=0)


def sizes_by_path(state: object, *, levels: int) -> dict[str, int]:
    """Return the encoded bytes of the same parts down to some level, each after what it is in."""
    whole = pack(state).size
    found = {"state": whole}
    values = {"state": state}
    for _ in range(levels):
        above, values = values, {}
        for outer, value in above.items():
            for path, part, packed in _parts(value, outer, whole=whole):
                found[path], values[path] = packed.size, part
    return found


def _measure(value: Any, packed: Packed, path: str, *, whole: int, level: int) -> Size:
    encoded = packed.size
    parts = _parts(value, path, whole=whole) if level < _LEVELS else ()
    children = [_measure(part, inside, where, whole=whole, level=level + 1) for where, part, inside in parts]
    return Size(
        path=path,
        type=value.tag if isinstance(value, Record) else type(value).__qualname__,
        encoded=encoded,
        compressed=len(frame.seal(*packed, marks=False)),
        share=encoded / whole,
        children=tuple(sorted(children, key=lambda child: -child.encoded)),
    )


def _parts(value: Any, path: str, *, whole: int) -> Iterator[tuple[str, Any, Packed]]:
    """Yield path, value and packed bytes of each part that is large enough."""
    if type(value) in _UNDIVIDED or isinstance(value, enum.Enum) or arrays.find(type(value)) is not None:
        return
    for suffix, part, _ in parts_of(value):
        if suffix:  # all but the mark of a container
            packed = pack(part)
            is_name = suffix.startswith(" (key") and packed.size < _LONGEST_NAME
            if packed.size * _SMALLEST >= whole and not is_name:
                yield path + suffix, part, packed
