"""Which encoder a value has: by its exact type, found once per type.

Owns: the order in which kinds are tried, and the refusal of everything else.
Invariant: an encoder looks at one value only; what it returns is packed by the
caller, so the whole encoding needs no recursion in Python. A subclass never
falls back to its base's encoder, which would lose what makes it one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from cloudckpt.codec import arrays, containers, registry, scalars, unknown, wire
from cloudckpt.codec.containers import Container, Encoding
from cloudckpt.codec.kinds import Shape
from cloudckpt.codec.records import Record, to_array
from cloudckpt.codec.scalars import Scalar
from cloudckpt.codec.shapes import shape_of
from cloudckpt.codec.wire import Unsupported

Encoder: TypeAlias = Callable[[Any, Encoding], Any]
Kind: TypeAlias = Scalar | Container | Shape | type[Record]

_NATIVE: Final = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex)
_encoders: dict[type, Encoder] = {}


def encoder_of(cls: type) -> Encoder:
    """Return what turns an instance of exactly `cls` into something that can be packed.

    Raises:
        Unsupported: There is none.
    """
    encoder = _encoders.get(cls)
    if encoder is None:
        if len(_encoders) > 4096:  # classes made at run time would never be let go
            _encoders.clear()
        encoder = _encoders[cls] = _make(kind_of(cls))
    return encoder


def kind_of(cls: type) -> Kind:
    """Return how instances of exactly `cls` are carried.

    Raises:
        Unsupported: They are not.
    """
    kind = containers.CONTAINERS.get(cls) or scalars.find(cls) or arrays.find(cls) or shape_of(cls)
    if kind is not None:
        return kind
    if cls is Record:
        return Record
    base = next((native for native in _NATIVE if issubclass(cls, native)), None)
    if base is not None:
        raise Unsupported(f"{cls.__qualname__}, a subclass of {base.__name__}, is not serializable")
    raise Unsupported(f"{cls.__qualname__} is not serializable")


def _make(kind: Kind) -> Encoder:
    if isinstance(kind, Scalar):
        code, dump = kind.code, kind.dump
        return lambda value, _: wire.extension(code, dump(value))
    if isinstance(kind, Container):
        mark, items = wire.mark(kind.kind), kind.dump
        return lambda value, encoding: [mark, *items(value, encoding)]
    if isinstance(kind, Shape):
        return _encode_object
    return lambda record, _: to_array(record.tag, record.version, dict(record.fields), record.unset)


def _encode_object(value: Any, _: Encoding) -> Any:
    shape: Any = shape_of(type(value))  # not kept: `register` may have changed it
    check_whole(shape, value)
    name, version = registry.identity(type(value))
    return to_array(name, version, fields_of(shape, value), shape.unset(value))


def fields_of(shape: Shape, value: Any) -> dict[str, Any]:
    """Return what is saved of an object, in a dict of one's own."""
    fields, strange = shape.read(value), unknown.kept(value)
    return {**fields, **strange} if strange else fields


def check_whole(shape: Shape, value: Any) -> None:
    """Raise `Unsupported` when something of an object would be lost."""
    if shape.strays(value):
        raise Unsupported(_stray(shape))


def _stray(shape: Shape) -> str:
    return (
        f"not a field of {shape.cls.__qualname__}, so it would be missing after a load; make it one "
        '(with a default and metadata={"cloudckpt": "exclude"} if it should not be saved)'
    )


# What follows serves `faults.py`: the same values, one level at a time.


class Part(NamedTuple):
    """A part of a value: what it adds to the path, itself, and how many levels deeper it is."""

    suffix: str
    value: Any
    levels: int = 1


class _Look:
    """An encoding that writes nothing, so that neither order nor amounts matter."""

    def in_order(self, items: frozenset[Any] | set[Any]) -> list[Any]:
        return list(items)

    def spend(self, pattern_length: int) -> None:
        pass

    def aside(self, data: bytes | memoryview) -> bytes | memoryview | None:
        return data


LOOK: Final = _Look()


def strays_of(value: Any) -> Iterator[tuple[str, str]]:
    """Yield each attribute that would be lost, as what it adds to the path, and the reason."""
    shape = None if is_packed(value) else kind_of(type(value))
    if isinstance(shape, Shape):
        yield from ((f".{name}", _stray(shape)) for name in shape.strays(value))


def parts_of(value: Any) -> Iterator[Part]:
    """Yield each part of a value.

    Raises:
        Unsupported: The value itself can't be carried.
    """
    if is_packed(value):
        yield from _packed_parts(value, 1)
        return
    kind = kind_of(type(value))
    if isinstance(kind, Scalar):
        kind.dump(value)
    elif isinstance(kind, Container):
        yield Part("", wire.mark(kind.kind))  # takes a level even when there are no items
        yield from _items_of(kind, value)
    elif isinstance(kind, Shape):
        registry.identity(kind.cls)
        yield from (Part(f".{name}", item, 2) for name, item in fields_of(kind, value).items())
    else:
        yield from (Part(f".{name}", item, 2) for name, item in value.fields.items())


def _items_of(container: Container, value: Any) -> Iterator[Part]:
    for position, item in enumerate(container.dump(value, LOOK)):
        if container.is_mapping and type(item) is dict:
            yield from _packed_parts(item, 2)
        else:
            yield Part(f"[{position}]", item)


def is_packed(value: Any) -> bool:
    """Whether msgpack has a type for the value, of those that are no atoms."""
    from msgpack import ExtType, Timestamp

    return type(value) in {dict, list, memoryview, ExtType, Timestamp}


def _packed_parts(value: Any, levels: int) -> Iterator[Part]:
    if type(value) is dict:
        for position, (key, item) in enumerate(value.items()):
            yield Part(f" (key {position})", key, levels)
            yield Part(_suffix(key), item, levels)
    elif type(value) is list:
        yield from (Part(f"[{position}]", item, levels) for position, item in enumerate(value))
    elif type(value) is memoryview and not value.c_contiguous:
        raise Unsupported("a memoryview with gaps is not serializable; take bytes() of it")


def _suffix(key: Any) -> str:
    if type(key) is str and key.isidentifier():
        return f".{key}"
    shown = repr(key)
    return f"[{shown if len(shown) < 60 else shown[:57] + '...'}]"
