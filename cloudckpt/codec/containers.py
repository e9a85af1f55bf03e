"""Collections that msgpack has no type for: an array behind a mark.

Owns: what follows the mark in each. Invariant: equal values have equal bytes
under every hash seed, so sets lie in the order of their items' own encodings.
Objects with fields are in `records.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from cloudckpt.codec import wire


class Encoding(Protocol):
    """What a container may ask of the encoding that it is part of."""

    def in_order(self, items: frozenset[Any] | set[Any]) -> list[Any]:
        """Return `items` in the order of their encodings."""
        ...


class Container(NamedTuple):
    """One row: the mark, value to what follows it, what follows it to value."""

    kind: int
    dump: Callable[[Any, Encoding], Iterable[Any]]
    load: Callable[[list[Any]], Any]


def _dump_items(value: Iterable[Any], _: Encoding) -> Iterable[Any]:
    return value


def _dump_set(value: set[Any] | frozenset[Any], encoding: Encoding) -> Iterable[Any]:
    return encoding.in_order(value)


CONTAINERS: Final[dict[type, Container]] = {
    tuple: Container(wire.TUPLE, _dump_items, tuple),
    set: Container(wire.SET, _dump_set, set),
    frozenset: Container(wire.FROZENSET, _dump_set, frozenset),
}

LOADERS: Final = {container.kind: container.load for container in CONTAINERS.values()}
