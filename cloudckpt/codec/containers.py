"""Collections that msgpack has no type for: an array behind a mark.

Owns: what follows the mark in each. Invariant: equal values have equal bytes
under every hash seed, so sets lie in the order of their items' own encodings;
time to load is bounded by the length of the bytes. Objects with fields are in
`records.py`, numpy in `arrays.py`.
"""

from __future__ import annotations

import re
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from cloudckpt.codec import wire
from cloudckpt.codec.wire import Unsupported


class Encoding(Protocol):
    """What a container may ask of the encoding that it is part of."""

    def in_order(self, items: frozenset[Any] | set[Any]) -> list[Any]:
        """Return `items` in the order of their encodings."""
        ...

    def spend(self, pattern_length: int) -> None:
        """Count a pattern's length; raise Unsupported when all together are too long."""
        ...

    def aside(self, data: bytes | memoryview) -> bytes | memoryview | None:
        """Return what stands for an array's bytes: they, or None when they lie behind the value."""
        ...


class Container(NamedTuple):
    """One row of the table.

    Attributes:
        kind: The mark.
        dump: Value to what follows the mark.
        load: What follows the mark to the value.
        is_mapping: Whether what follows are dicts that hold the value's own items.
    """

    kind: int
    dump: Callable[[Any, Encoding], Iterable[Any]]
    load: Callable[[list[Any]], Any]
    is_mapping: bool = False


_FACTORIES: Final[dict[str, Any]] = {
    cls.__name__: cls
    for cls in (list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes, bytearray)
} | {"deque": deque, "OrderedDict": OrderedDict, "Counter": Counter}

MAX_PATTERNS: Final = 1 << 15
"""Characters of all patterns of a state: compiling may take milliseconds for each."""

_MANY_ITEMS: Final = 1000
_MOST_COLLISIONS: Final = 100


def _dump_items(value: Iterable[Any], _: Encoding) -> Iterable[Any]:
    return value


def _dump_set(value: set[Any] | frozenset[Any], encoding: Encoding) -> Iterable[Any]:
    return encoding.in_order(value)


def _load_set(items: list[Any]) -> set[Any]:
    refuse_collisions(items)
    return set(items)


def _load_frozenset(items: list[Any]) -> frozenset[Any]:
    refuse_collisions(items)
    return frozenset(items)


def refuse_collisions(keys: Iterable[Any]) -> None:
    """Raise ValueError when too many of the keys were given one hash, on purpose.

    A dict or set of n such keys takes time in the square of n.
    """
    hashes = [hash(key) for key in keys]
    if len(hashes) > _MANY_ITEMS and max(Counter(hashes).values()) > _MOST_COLLISIONS:
        raise ValueError("keys that were made to collide")


def _dump_range(value: range, _: Encoding) -> Iterable[Any]:
    return value.start, value.stop, value.step


def _dump_slice(value: slice, _: Encoding) -> Iterable[Any]:
    return value.start, value.stop, value.step


def _load_slice(items: list[Any]) -> slice:
    start, stop, step = items
    return slice(start, stop, step)


def _load_range(items: list[Any]) -> range:
    start, stop, step = items
    return range(start, stop, step)


def _dump_pattern(value: re.Pattern[Any], encoding: Encoding) -> Iterable[Any]:
    if value.flags & re.DEBUG:
        raise Unsupported("a pattern with re.DEBUG is not serializable")
    encoding.spend(len(value.pattern))
    return value.pattern, value.flags


def _load_pattern(items: list[Any]) -> re.Pattern[Any]:
    pattern, flags = items
    if type(pattern) not in (str, bytes) or type(flags) is not int or flags & re.DEBUG:
        raise ValueError("not a pattern")
    try:
        return re.compile(pattern, flags)
    except RecursionError as error:
        raise ValueError("a pattern that is nested too deep") from error


def _dump_deque(value: deque[Any], _: Encoding) -> Iterable[Any]:
    return *value, value.maxlen


def _load_deque(items: list[Any]) -> deque[Any]:
    *rest, maxlen = items
    if maxlen is not None and maxlen < len(rest):
        raise ValueError("a deque that is longer than it may be")
    return deque(rest, maxlen)


def _dump_dict(value: Mapping[Any, Any], _: Encoding) -> Iterable[Any]:
    return (dict(value),)


def _load_ordered_dict(items: list[Any]) -> OrderedDict[Any, Any]:
    return OrderedDict(_only_dict(items))


def _load_counter(items: list[Any]) -> Counter[Any]:
    return Counter(_only_dict(items))


def _only_dict(items: list[Any]) -> dict[Any, Any]:
    (content,) = items
    if type(content) is not dict:
        raise ValueError("not a dict")
    return content


def _dump_default_dict(value: defaultdict[Any, Any], _: Encoding) -> Iterable[Any]:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        raise Unsupported(f"a defaultdict is serializable when its factory is one of {', '.join(_FACTORIES)}")
    return name, dict(value)


def _load_default_dict(items: list[Any]) -> defaultdict[Any, Any]:
    name, *rest = items
    return defaultdict(None if name is None else _FACTORIES[name], _only_dict(rest))


def _dump_chain_map(value: ChainMap[Any, Any], _: Encoding) -> Iterable[Any]:
    return value.maps


def _load_chain_map(items: list[Any]) -> ChainMap[Any, Any]:
    return ChainMap(*items)


def _dump_proxy(value: types.MappingProxyType[Any, Any], _: Encoding) -> Iterable[Any]:
    return (value.copy(),)


def _load_proxy(items: list[Any]) -> types.MappingProxyType[Any, Any]:
    (content,) = items
    return types.MappingProxyType(content)


def _dump_namespace(value: types.SimpleNamespace, _: Encoding) -> Iterable[Any]:
    return (value.__dict__,)


def _load_namespace(items: list[Any]) -> types.SimpleNamespace:
    return types.SimpleNamespace(**_only_dict(items))


CONTAINERS: Final[dict[type, Container]] = {
    tuple: Container(wire.TUPLE, _dump_items, tuple),
    set: Container(wire.SET, _dump_set, _load_set),
    frozenset: Container(wire.FROZENSET, _dump_set, _load_frozenset),
    range: Container(wire.RANGE, _dump_range, _load_range),
    slice: Container(wire.SLICE, _dump_slice, _load_slice),
    re.Pattern: Container(wire.PATTERN, _dump_pattern, _load_pattern),
    deque: Container(wire.DEQUE, _dump_deque, _load_deque),
    OrderedDict: Container(wire.ORDERED_DICT, _dump_dict, _load_ordered_dict, is_mapping=True),
    Counter: Container(wire.COUNTER, _dump_dict, _load_counter, is_mapping=True),
    defaultdict: Container(wire.DEFAULT_DICT, _dump_default_dict, _load_default_dict, is_mapping=True),
    ChainMap: Container(wire.CHAIN_MAP, _dump_chain_map, _load_chain_map),
    types.MappingProxyType: Container(wire.MAPPING_PROXY, _dump_proxy, _load_proxy, is_mapping=True),
    types.SimpleNamespace: Container(wire.NAMESPACE, _dump_namespace, _load_namespace, is_mapping=True),
}

LOADERS: Final = {container.kind: container.load for container in CONTAINERS.values()}
