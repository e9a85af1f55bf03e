"""Records to instances: migrations, defaults, hints, and fields that a class doesn't know.

Owns: the order of these. A record of an older version goes through the
migrations; each field through its hint's converter; a missing one takes its
default; one that the class doesn't know is kept beside the instance. Invariant:
every failure is a `SchemaError` that names the schema, its version and what the
process knows; never a half-built object.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cloudckpt.codec import hints, registry, unknown
from cloudckpt.codec.hints import Context, Converter
from cloudckpt.codec.kinds import MissingField, Shape
from cloudckpt.codec.records import Record
from cloudckpt.codec.shapes import shape_of
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import SchemaError

T = TypeVar("T")

_converters: dict[Any, dict[str, Converter]] = {}


def fit(value: Any, hint: Any) -> Any:
    """Return a decoded value as what was asked for.

    Raises:
        SchemaError: It is something else, or its schema doesn't fit the class.
    """
    converter = _readable(hint, lambda: hints.compile_hint(hint, Context(build)))
    if converter is not None:
        value = converter(value)
    if not _is_instance(value, hint):
        raise SchemaError(
            f"asked for {_name(hint)}, stored is {_describe(value)}; load it with its own type",
            kind="wrong-type",
        )
    return value


def build(hint: Any, record: Record) -> Any:
    """Return an instance of the class that `hint` names, or `record` when it is another class's.

    Raises:
        SchemaError: Its schema doesn't fit the class.
    """
    cls: type = typing.get_origin(hint) or hint
    shape, version = _shape(cls, record)
    if shape is None:
        return record
    stored = f"{record.tag}/{record.version}"
    fields = _migrate(record, version)
    converters = _field_converters(shape, hint)
    values, strange = {}, {}
    for name, value in fields.items():
        if shape.knows(name):
            convert = converters.get(name)
            values[name] = value if convert is None else convert(value)
        elif name not in shape.hidden:
            strange[name] = value
    try:
        instance = shape.create(values, record.unset)
    except MissingField as missing:
        raise SchemaError(
            f"{stored} has no value for the field {missing.name}, which has no default in "
            f"{cls.__qualname__}; give it one, or add a migration",
            kind="missing-field",
            field=missing.name,
            stored=stored,
        ) from None
    except Exception as error:
        raise SchemaError(
            f"{cls.__qualname__} can't be made from {stored}; see the cause",
            kind="refused-by-class",
            stored=stored,
        ) from error
    if strange:
        unknown.keep(instance, strange)
    return instance


def _shape(cls: type, record: Record) -> tuple[Shape | None, int]:
    """Return the class's shape when the record is one of it, and the version that it has now."""
    try:
        name, version = registry.identity(cls)
        return (shape_of(cls) if name == record.tag else None), version
    except Unsupported:  # then nothing of this class was ever saved
        return None, 0


def _migrate(record: Record, version: int) -> Mapping[str, Any]:
    if record.version > version:
        raise SchemaError(
            "the state was saved by a newer version of its class; deploy that version here",
            kind="newer-schema",
            stored=f"{record.tag}/{record.version}",
            newest_known=f"{record.tag}/{version}",
        )
    steps = registry.steps_between(record.tag, record.version, version)
    if steps is None:
        raise SchemaError(
            "there is no chain of migrations from the stored version to the class's; add the missing step",
            kind="no-migration",
            stored=f"{record.tag}/{record.version}",
            wanted=f"{record.tag}/{version}",
        )
    fields: Mapping[str, Any] = record.fields
    for step in steps:
        try:
            fields = {**step(dict(fields))}
        except Exception as error:
            raise SchemaError(
                "a migration failed; see the cause",
                kind="migration-failed",
                stored=f"{record.tag}/{record.version}",
                step=getattr(step, "__qualname__", repr(step)),
            ) from error
    return fields


def _field_converters(shape: Shape, hint: Any) -> dict[str, Converter]:
    try:
        known = _converters.get(hint)
    except TypeError:  # an argument of a generic hint is not hashable
        return _readable(hint, lambda: _compile_fields(shape, hint))
    if known is None:
        if len(_converters) > 4096:  # as with shapes
            _converters.clear()
        known = _converters[hint] = _readable(hint, lambda: _compile_fields(shape, hint))
    return known


def _compile_fields(shape: Shape, hint: Any) -> dict[str, Converter]:
    context = Context(build, owner=shape.cls)
    found = hints.field_hints(shape, hint).items()
    compiled = {name: hints.compile_hint(field, context) for name, field in found}
    return {name: converter for name, converter in compiled.items() if converter is not None}


def _readable(hint: Any, read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception as error:
        raise SchemaError(
            f"the type hints of {_name(hint)} can't be read; see the cause", kind="unreadable-hints"
        ) from error


def _is_instance(value: Any, hint: Any) -> bool:
    """Whether `value` is what `hint` says, at the top; hints without a class say nothing."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is None:
        return value is None
    if hints.is_union(origin):
        return any(_is_instance(value, arg) for arg in args)
    if origin is typing.Annotated:
        return _is_instance(value, args[0])
    cls = origin or hint
    if typing.is_typeddict(cls):
        cls = dict
    if not isinstance(cls, type):
        return True
    try:
        return isinstance(value, cls)
    except TypeError:  # a protocol that can't be checked at run time
        return True


def _name(hint: Any) -> str:
    return getattr(hint, "__qualname__", None) or str(hint)


def _describe(value: Any) -> str:
    if isinstance(value, Record):
        return f"{value.tag}/{value.version}"
    try:
        shape = shape_of(type(value))
        return "{}/{}".format(*registry.identity(type(value))) if shape else f"a plain {_name(type(value))}"
    except Unsupported:
        return f"a {_name(type(value))}"
