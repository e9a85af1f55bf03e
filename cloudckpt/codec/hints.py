"""From a type hint to what turns decoded values into instances of its classes.

Owns: reading hints. `compile_hint` gives a function that replaces each `Record`
at a place where the hint names its class; it is None when the hint names no
such class, so that plain data costs nothing. Invariant: a value that doesn't
match its hint stays what it was: hints say where classes go, they don't
validate.
"""

from __future__ import annotations

import collections
import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cloudckpt.codec.kinds import Shape
from cloudckpt.codec.records import Record
from cloudckpt.codec.shapes import shape_of
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import SchemaError

Converter: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Context:
    """What a hint is read with.

    Attributes:
        build: Takes a hint that names a class with fields, and a record; returns
            an instance, or the record as it is when it is another class's.
        owner: The class that the hint stands in, for `typing.Self`.
    """

    build: Callable[[Any, Record], Any]
    owner: type | None = None


_WRAPPERS: Final = {typing.Annotated, typing.Final, typing.ClassVar, typing.Required, typing.NotRequired}
_ITEMS: Final = (list, tuple, set, frozenset, collections.deque)


def compile_hint(hint: Any, context: Context) -> Converter | None:
    """Return the function that builds what `hint` names inside a value, or None."""
    hint = _unwrapped(hint, context)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, str | typing.ForwardRef):
        return _refuse_records(hint)
    if is_union(origin):
        return _chain([compile_hint(arg, context) for arg in args])
    if isinstance(hint, typing.TypeVar):
        return _chain([compile_hint(arg, context) for arg in hint.__constraints__ or (hint.__bound__,)])
    if type(hint).__name__ == "TypeAliasType":  # made by the `type` statement; it may name itself
        return _when_needed(lambda: compile_hint(hint.__value__, context))
    cls = origin or hint
    return _compile_class(cls, hint, args, context) if isinstance(cls, type) else None


def _unwrapped(hint: Any, context: Context) -> Any:
    """Return the hint without what says nothing about the class of the value."""
    while True:
        origin = typing.get_origin(hint)
        if isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif hint is typing.Self:
            hint = context.owner
        elif origin is not None and (origin in _WRAPPERS or getattr(origin, "__name__", "") == "ReadOnly"):
            hint = typing.get_args(hint)[0]
        else:
            return hint


def _compile_class(cls: type, hint: Any, args: tuple[Any, ...], context: Context) -> Converter | None:
    if typing.is_typeddict(cls):
        return _when_needed(lambda: _in_typed_dict(cls, context))  # it may name itself
    if _has_fields(cls):
        return lambda value: context.build(hint, value) if type(value) is Record else value
    if cls is bytearray:
        return lambda value: bytearray(value) if type(value) is bytes else value
    return _compile_items(cls, args, context) if args else None


def _compile_items(cls: type, args: tuple[Any, ...], context: Context) -> Converter | None:
    if issubclass(cls, tuple) and args[-1] is not Ellipsis:
        return _in_fixed_tuple([compile_hint(arg, context) for arg in args])
    if issubclass(cls, collections.abc.Mapping):
        value = compile_hint(args[1], context) if len(args) > 1 else None
        return _in_mapping(compile_hint(args[0], context), value)
    if issubclass(cls, collections.abc.Iterable):
        return _in_items(compile_hint(args[0], context))
    return None


def is_union(origin: Any) -> bool:
    """Whether `typing.get_origin` of a hint says that it is a union, in either spelling."""
    return origin is typing.Union or origin is types.UnionType


def _has_fields(cls: type) -> bool:
    try:
        return shape_of(cls) is not None
    except Unsupported:  # then nothing of this class was ever saved
        return False


def _when_needed(compile_it: Callable[[], Converter | None]) -> Converter:
    compiled: list[Converter | None] = []

    def convert(value: Any) -> Any:
        if not compiled:
            compiled.append(compile_it())
        converter = compiled[0]
        return value if converter is None else converter(value)

    return convert


def _chain(converters: list[Converter | None]) -> Converter | None:
    """Try each: one that has nothing to do with the value hands it on."""
    found = [converter for converter in converters if converter is not None]
    if len(found) < 2:
        return found[0] if found else None

    def convert(value: Any) -> Any:
        for converter in found:
            value = converter(value)
        return value

    return convert


def _in_items(item: Converter | None) -> Converter | None:
    if item is None:
        return None

    def convert(value: Any) -> Any:
        kind = type(value)
        if kind is list:
            value[:] = map(item, value)  # decoded values belong to nobody else
            return value
        if kind is collections.deque:
            return collections.deque(map(item, value), value.maxlen)
        return kind(map(item, value)) if kind in _ITEMS else value

    return convert


def _in_fixed_tuple(items: list[Converter | None]) -> Converter | None:
    if not any(items):
        return None

    def convert(value: Any) -> Any:
        if type(value) is not tuple or len(value) != len(items):
            return value
        pairs = zip(items, value, strict=True)
        return tuple(item(part) if item is not None else part for item, part in pairs)

    return convert


def _in_mapping(key: Converter | None, value: Converter | None) -> Converter | None:
    if key is None and value is None:
        return None

    def convert(mapping: Any) -> Any:
        if isinstance(mapping, types.MappingProxyType):
            return types.MappingProxyType(convert(mapping.copy()))
        if isinstance(mapping, collections.ChainMap):
            mapping.maps[:] = map(convert, mapping.maps)
        if not isinstance(mapping, dict):
            return mapping
        pairs = [(key(k) if key else k, value(v) if value else v) for k, v in mapping.items()]
        mapping.clear()  # in place, so that an OrderedDict or a defaultdict stays one
        for k, v in pairs:
            mapping[k] = v
        return mapping

    return convert


def _in_typed_dict(cls: type, context: Context) -> Converter | None:
    compiled = {name: compile_hint(hint, context) for name, hint in class_hints(cls).items()}
    converters = {name: converter for name, converter in compiled.items() if converter is not None}
    if not converters:
        return None

    def convert(value: Any) -> Any:
        if type(value) is dict:
            for name in converters.keys() & value.keys():
                value[name] = converters[name](value[name])
        return value

    return convert


def _refuse_records(hint: Any) -> Converter:
    """A hint that can't be resolved is no harm as long as no class is needed for the value."""
    text = hint if isinstance(hint, str) else hint.__forward_arg__

    def convert(value: Any) -> Any:
        stack = [value]
        while stack:
            part = stack.pop()
            if type(part) is Record:
                raise SchemaError(
                    "the hint of a field that holds an object can't be resolved; register the "
                    "object's class, or define it where the hint can see it",
                    kind="unresolved-hint",
                    hint=text,
                    stored=f"{part.tag}/{part.version}",
                )
            if isinstance(part, dict):
                stack.extend(part.values())
            elif isinstance(part, _ITEMS):
                stack.extend(part)
        return value

    return convert


def field_hints(shape: Shape, hint: Any) -> dict[str, Any]:
    """Return the hints of a class's fields, with `hint`'s own arguments put in for its type variables."""
    hints = shape.hints()
    found = dict(class_hints(shape.cls) if hints is None else hints)
    parameters = getattr(typing.get_origin(hint), "__parameters__", ())
    arguments = dict(zip(parameters, typing.get_args(hint), strict=False))
    return {name: _substitute(field, arguments) for name, field in found.items()} if arguments else found


def class_hints(cls: type) -> Mapping[str, Any]:
    """Return the annotations of `cls`; those that can't be resolved stay strings."""
    names = {cls.__name__: cls}  # a class that is local to a function may still name itself
    try:
        return typing.get_type_hints(cls, localns=names, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating a hint raises whatever the hint raises
        return _resolve_singly(cls, names)


def _resolve_singly(cls: type, names: dict[str, Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        # `make_dataclass` says typing.Any in a module that may not have imported typing.
        scope = {"typing": typing, **vars(sys.modules.get(base.__module__, types)), **names}
        for name, hint in inspect.get_annotations(base).items():
            holder = types.SimpleNamespace(__annotations__={name: hint})
            try:
                hints |= typing.get_type_hints(holder, globalns=scope, include_extras=True)
            except Exception:  # noqa: BLE001 - as above
                hints[name] = hint
    return hints


def _substitute(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    parameters = getattr(hint, "__parameters__", ())
    if isinstance(hint, typing.TypeVar):
        return arguments.get(hint, hint)
    if not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(arguments.get(parameter, parameter) for parameter in parameters)]
