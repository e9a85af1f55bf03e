"""`Record`: an object with fields whose class is not at hand.

Owns: the readable form, and the array that it lies in: mark, tag, version,
fields by name, and the names of fields that were never set where there are any
(pydantic tells a default from a value that was given). Invariant: a record
saves again byte for byte as it was read. Building a class is `building.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from cloudckpt.codec import wire


class Record:
    """An object that was saved, as its tag, version and fields. Immutable.

    A field is an attribute too, as long as its name is none of the three below.

    Attributes:
        tag: The schema's name.
        version: The schema's version when it was saved.
        fields: Values by name, read-only, in the order of the class.
    """

    __slots__ = ("_fields", "_unset", "tag", "version")

    tag: str
    version: int

    def __init__(
        self, tag: str, version: int, fields: Mapping[str, Any], *, unset: tuple[str, ...] = ()
    ) -> None:
        object.__setattr__(self, "tag", tag)
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "_fields", dict(fields))
        object.__setattr__(self, "_unset", unset)

    @property
    def fields(self) -> Mapping[str, Any]:
        """Values by name, read-only."""
        return MappingProxyType(self._fields)

    @property
    def unset(self) -> tuple[str, ...]:
        """Names of fields that hold their default because nobody set them."""
        unset: tuple[str, ...] = self._unset
        return unset

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            try:
                return object.__getattribute__(self, "_fields")[name]
            except KeyError:
                pass
        raise AttributeError(f"the record {self.tag}/{self.version} has no field {name!r}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a record is read-only; load it with its type to change it")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a record is read-only; load it with its type to change it")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.tag, self.version, self._unset, self._fields) == (
            other.tag,
            other.version,
            other._unset,
            other._fields,
        )

    def __hash__(self) -> int:
        return hash((self.tag, self.version, self._unset, frozenset(self._fields.items())))

    def __repr__(self) -> str:
        shown = "".join(f", {name}={value!r}" for name, value in self._fields.items())
        return f"Record({self.tag}/{self.version}{shown})"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.tag, self.version, self._fields, self._unset)


def _rebuild(tag: str, version: int, fields: dict[str, Any], unset: tuple[str, ...]) -> Record:
    return Record(tag, version, fields, unset=unset)


def to_array(tag: str, version: int, fields: Mapping[str, Any], unset: tuple[str, ...] = ()) -> list[Any]:
    """Return what the packer writes for an object with fields."""
    array = [wire.mark(wire.RECORD), tag, version, fields]
    if unset:
        array.append(list(unset))
    return array


def from_array(array: list[Any]) -> Record:
    """Return the record in `array`; ValueError when it holds none."""
    _, tag, version, fields, *rest = array
    unset = rest[0] if rest else []
    well_formed = (
        type(tag) is str
        and type(version) is int
        and version > 0
        and type(fields) is dict
        and {str}.issuperset(map(type, fields))
        and len(rest) <= 1
        and type(unset) is list
        and {str}.issuperset(map(type, unset))
    )
    if not well_formed:
        raise ValueError("not a record")
    return Record(tag, version, fields, unset=tuple(unset))
