"""A state as it is now, at less than the price of its bytes.

Owns: `freeze`. Invariant: what it returns encodes to the bytes that the state would
have encoded to, whatever its owner does to it afterwards. What can't change (text,
bytes, numbers, dates) is shared, what can is copied: containers by their items,
arrays by their memory, and objects by their fields as a `Record`, so no code of a class
runs but what reads it. A state that can't be carried is not frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, TypeVar

from cloudckpt.codec import arrays, registry, wire
from cloudckpt.codec.containers import Container
from cloudckpt.codec.encoders import LOOK, check_whole, encoder_of, fields_of, is_packed, kind_of
from cloudckpt.codec.kinds import Member, Shape
from cloudckpt.codec.records import Record
from cloudckpt.codec.wire import Unsupported

C = TypeVar("C", bound=Collection[Any])

ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})
"""Classes whose instances can't change and hold nothing."""


class Frozen(NamedTuple):
    """A state that nobody else can change."""

    value: Any


def freeze(state: object) -> Frozen | None:
    """Return the state as it is now; None when that can't be done, or the state not be carried.

    Not all that is wrong with a state is seen here: patterns that are too long together,
    or a state that is too large, only show when it is encoded.
    """
    try:
        return Frozen(_frozen(state))
    except Exception:  # noqa: BLE001 - its encoding, at once, will say what is wrong with it
        return None


def _frozen(value: Any) -> Any:
    cls = type(value)
    if cls in ATOMS:
        return value
    freezer = _FREEZERS.get(cls)
    return _other(value) if freezer is None else freezer(value)


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    if _are_atoms(value.values()) and _are_atoms(value):
        return value.copy()
    return _alike({_frozen(key): _frozen(item) for key, item in value.items()}, value)


def _list(value: list[Any]) -> list[Any]:
    return value[:] if _are_atoms(value) else [_frozen(item) for item in value]


def _tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    return value if _are_atoms(value) else tuple([_frozen(item) for item in value])


def _set(value: set[Any] | frozenset[Any]) -> Any:
    return _alike(type(value)(value if _are_atoms(value) else map(_frozen, value)), value)


def _of_record(value: Record) -> Record:
    return _record(value.tag, value.version, value.fields, value.unset)


_FREEZERS: Final[dict[type, Callable[[Any], Any]]] = {
    dict: _dict,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    bytearray: bytes,
    Record: _of_record,
}


def _are_atoms(values: Collection[Any]) -> bool:
    return ATOMS.issuperset(map(type, values))


def _alike(found: C, value: Collection[Any]) -> C:
    # Objects that differ by who they are, and not by their fields, become one as a key.
    if len(found) != len(value):
        raise Unsupported("keys that are equal by their fields")
    return found


def _record(tag: str, version: int, fields: Any, unset: tuple[str, ...]) -> Record:
    return Record(tag, version, {name: _frozen(item) for name, item in fields.items()}, unset=unset)


def _other(value: Any) -> Any:
    if is_packed(value):
        raise Unsupported("a view of memory, or a value of msgpack's own")
    kind = kind_of(type(value))
    if isinstance(kind, Shape):
        return _object(value, kind)
    if isinstance(kind, Container) and kind.kind == wire.ARRAY:
        return arrays.frozen(value)
    if isinstance(kind, Container) and kind.kind != wire.NUMPY_SCALAR:
        return kind.load([_frozen(item) for item in kind.dump(value, LOOK)])
    encoder_of(type(value))(value, LOOK)  # a time zone may be one that can't be carried
    return value


def _object(value: Any, shape: Shape) -> Any:
    name, version = registry.identity(shape.cls)
    if isinstance(shape, Member):
        return value
    check_whole(shape, value)
    return _record(name, version, fields_of(shape, value), shape.unset(value))
