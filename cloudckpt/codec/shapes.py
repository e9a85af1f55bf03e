"""Which classes have fields, and what was declared about them.

Owns: recognising the kind of a class by what its library leaves on it, and the
shapes that were found. Invariant: a class has one shape, until something new is
declared about it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from cloudckpt.codec import kinds
from cloudckpt.codec.kinds import Shape
from cloudckpt.codec.wire import Unsupported

_NATIVE: Final = (
    dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex, BaseException
)  # fmt: skip

_declared: dict[type, Shape] = {}
_found: dict[type, Shape | None] = {}


def shape_of(cls: type) -> Shape | None:
    """Return the shape of `cls`, or None when it is not a class with fields.

    Raises:
        Unsupported: It is one, but its instances can't be carried whole.
    """
    shape = _declared.get(cls)
    if shape is not None:
        return shape
    if cls not in _found:
        if len(_found) > 4096:  # classes made at run time would never be let go
            _found.clear()
        _found[cls] = _find(cls, ())
    return _found[cls]


def exclude(cls: type, names: Collection[str]) -> None:
    """Declare fields of `cls` that are never saved.

    Raises:
        Unsupported: One of them has no default, or the class has no such field.
    """
    whole, shape = _find(cls, ()), _find(cls, names)
    if whole is None or shape is None:
        raise Unsupported(f"{cls.__qualname__} has no fields")
    for name in names:
        if not whole.knows(name):
            raise Unsupported(f"{cls.__qualname__} has no field {name}")
    _declared[cls] = shape


def carry_by(
    cls: type, to_fields: Callable[[Any], Any], from_fields: Callable[[dict[str, Any]], Any]
) -> None:
    """Declare the functions by which instances of exactly `cls` are carried."""
    _declared[cls] = kinds.Foreign(cls, to_fields, from_fields)


def check_excludable(cls: Any, name: str) -> None:
    """Raise `Unsupported` when objects of this class can't do without a field."""
    _find(cls, (name,))


def _find(cls: Any, hidden: Iterable[str]) -> Shape | None:
    if issubclass(cls, enum.Enum):
        return kinds.Member(cls, hidden) if cls.__members__ else None
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make"):
        return kinds.Named(cls, hidden)
    kind = _kind(cls)
    if kind is None:
        return None
    base = next((native for native in _NATIVE if issubclass(cls, native)), None)
    if base is not None:
        raise Unsupported(
            f"{cls.__qualname__} has fields and is a {base.__name__} too, which is not serializable"
        )
    return kind(cls, hidden)


def _kind(cls: Any) -> Callable[[Any, Iterable[str]], Shape] | None:
    if dataclasses.is_dataclass(cls):  # before pydantic, whose dataclasses look like models too
        return kinds.of_dataclass
    if hasattr(cls, "__attrs_attrs__"):
        return kinds.of_attrs
    if hasattr(cls, "__struct_fields__"):
        return kinds.Struct
    if hasattr(cls, "__pydantic_fields__"):
        return kinds.Model
    return None
