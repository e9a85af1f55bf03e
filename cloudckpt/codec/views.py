"""A loaded state, seen part by part: for looking into it and for comparing.

Owns: which parts a value has, and what each is called in a path. The words are those
of `paths.py`, so a path that `diff` or an error shows finds its part again.
Invariants: no part is made, all are the state's own; a value of a type that is not
known here is one part, whole.
"""

from __future__ import annotations

import enum
import sys
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cloudckpt.codec import paths, registry, shapes, unknown
from cloudckpt.codec.kinds import Shape
from cloudckpt.codec.paths import NO_KEY, Pattern
from cloudckpt.codec.records import Record

MAPPINGS: Final = frozenset(
    {dict, OrderedDict, Counter, defaultdict, types.MappingProxyType, types.SimpleNamespace}
)
SEQUENCES: Final = frozenset({list, tuple, deque, ChainMap})
SETS: Final = frozenset({set, frozenset})


class Part(NamedTuple):
    """A part of a value: what it adds to the path, the key or place that it has, itself."""

    suffix: str
    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with fields, whether its class is at hand or not."""

    tag: str
    version: int
    values: Mapping[str, Any]
    unset: tuple[str, ...]


def suffix_of(key: Any) -> str:
    """Return what the item of a dict under `key` adds to a path."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    return f"[{key!r}]"


def fields_of(value: Any) -> Fields | None:
    """Return the fields of an object; None for everything else, members of enums among it."""
    if type(value) is Record:
        return Fields(value.tag, value.version, value.fields, value.unset)
    shape = _shape_of(value)
    if shape is None:
        return None
    return Fields(
        *registry.identity(shape.cls), {**shape.read(value), **unknown.kept(value)}, tuple(shape.unset(value))
    )


def _shape_of(value: Any) -> Shape | None:
    msgpack = sys.modules.get("msgpack")
    if isinstance(value, enum.Enum) or (msgpack is not None and type(value) is msgpack.ExtType):
        return None
    return shapes.shape_of(type(value))


def items_of(value: Any) -> Mapping[Any, Any] | None:
    """Return what is under keys in a dict or something like it; None for everything else."""
    if type(value) not in MAPPINGS:
        return None
    found: Mapping[Any, Any] = value.__dict__ if type(value) is types.SimpleNamespace else value
    return found


def places_of(value: Any) -> list[Any] | None:
    """Return what has a place in a list or something like it; None for everything else."""
    if type(value) not in SEQUENCES:
        return None
    return list(value.maps if type(value) is ChainMap else value)


def parts_of(value: Any) -> Iterator[Part]:
    """Yield the parts of a value in its own order; those of a set have no place."""
    items, places, fields = items_of(value), places_of(value), fields_of(value)
    if items is not None:
        yield from (Part(suffix_of(key), key, item) for key, item in items.items())
    elif places is not None:
        yield from (Part(f"[{place}]", place, item) for place, item in enumerate(places))
    elif type(value) in SETS:
        yield from (Part("[*]", NO_KEY, item) for item in value)
    elif fields is not None:
        yield from (Part(f".{name}", name, item) for name, item in fields.values.items())


def select(state: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every part of a state that a path means, with the path that leads to it.

    Args:
        state: As it was loaded.
        path: As in `paths.py`: ``state.messages[3]``, ``messages[*].role``, ``**.api_key``;
            ``state`` is the whole.

    Raises:
        InvalidInputError: It is no path.
    """
    if path == "state":
        yield "state", state
        return
    pending: list[tuple[str, Any, tuple[Pattern, ...]]] = [("state", state, (paths.parse(path),))]
    while pending:
        where, value, left = pending.pop()
        if any(pattern.is_met for pattern in left):
            yield where, value
        going = tuple(pattern for pattern in left if not pattern.is_met)
        below = [
            (where + part.suffix, part.value, found)
            for part in (parts_of(value) if going else ())
            if (found := paths.below(going, part.key))
        ]
        pending.extend(reversed(below))
