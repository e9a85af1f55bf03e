"""Names of schemas, their versions, and the steps between versions.

Owns: what `register` and `migration` declare, for the whole process.
Invariant: a tag means one class, a version has one step that leads on from it,
and the newest step ends at the class's own version. It builds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from cloudckpt.codec import shapes
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import InvalidInputError

Step: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Fields of one version to fields of a later one."""

_C = TypeVar("_C", bound=type)
_S = TypeVar("_S", bound=Step)
_TAG: Final = re.compile(r"(?P<name>.+?)(?:/v(?P<version>[1-9][0-9]*))?", re.DOTALL)


@dataclass(slots=True)
class _Schema:
    """What is known under one name; `version` is None unless the tag had one."""

    cls: type | None = None
    version: int | None = None
    steps: dict[int, tuple[int, Step]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The version that is written: the class's own, else where the last step leads."""
        return self.version or max((to for to, _ in self.steps.values()), default=1)


_schemas: dict[str, _Schema] = {}
_names: dict[type, str] = {}


def register(
    tag: str,
    *,
    exclude: Collection[str] = (),
    to_fields: Callable[[Any], Mapping[str, Any]] | None = None,
    from_fields: Callable[[dict[str, Any]], Any] | None = None,
) -> Callable[[_C], _C]:
    """Declare the tag that instances of a class are saved with and come back by.

    An instance of a registered class comes back as one wherever it is in a
    state; others need a type hint that names them. It goes above the decorator
    that makes the class, such as `dataclass`. A class without fields, or
    somebody else's, is carried by two functions:
    ``register("frame/v1", to_fields=..., from_fields=...)(DataFrame)``.

    Args:
        tag: A name, or ``name/vN`` with the version of the class's fields. Without
            a version it is where the last migration of the name leads, else 1.
        exclude: Fields (or private attributes) that are never saved and come back
            as their default.
        to_fields: Takes an instance of exactly this class, returns what is saved:
            anything that can be, by name.
        from_fields: Takes what `to_fields` returned, returns the instance.

    Raises:
        InvalidInputError: The tag is another class's, it names an older version than
            a migration leads to, or the class can't be carried like that.
    """
    name, version = _parse(tag)

    def declare(cls: _C) -> _C:
        schema = _schemas.setdefault(name, _Schema())
        if schema.cls is not None and not _same(schema.cls, cls):
            raise InvalidInputError(
                "the tag is another class's; give each class its own",
                tag=tag,
                registered=schema.cls.__qualname__,
                refused=cls.__qualname__,
            )
        _check(name, version, schema.steps)
        _declare_shape(cls, exclude, to_fields, from_fields)
        schema.cls, schema.version = cls, version
        _names[cls] = name
        return cls

    return declare


def _parse(tag: str) -> tuple[str, int | None]:
    match = _TAG.fullmatch(tag)
    if match is None:
        raise InvalidInputError('a tag is a name, such as "order" or "order/v2"', tag=tag)
    return match["name"], int(match["version"]) if match["version"] else None


def _declare_shape(
    cls: type,
    exclude: Collection[str],
    to_fields: Callable[[Any], Mapping[str, Any]] | None,
    from_fields: Callable[[dict[str, Any]], Any] | None,
) -> None:
    if to_fields is not None and from_fields is not None:
        shapes.carry_by(cls, to_fields, from_fields)
        return
    if to_fields is not None or from_fields is not None:
        raise InvalidInputError("to_fields and from_fields go together")
    try:
        shapes.exclude(cls, exclude)
    except Unsupported as unsupported:
        raise InvalidInputError(
            f"{unsupported.reason}; a class is registered by its fields, below the decorator that makes them "
            "(dataclass, attrs), or by to_fields and from_fields",
            type=cls.__qualname__,
        ) from None


def migration(name: str, old: int, new: int) -> Callable[[_S], _S]:
    """Declare a function as the step from version `old` of a schema to version `new`.

    It is given the stored fields in a dict that it may change, and returns the
    fields of the new version. Steps are chained. An object inside a field is
    what it would be without a step: an instance of a registered class, else a
    `Record`.

    Args:
        name: The schema's name: the class's `__qualname__`, or its tag without the version.
        old: Version that the function takes.
        new: Version that it returns; greater than `old`.

    Raises:
        InvalidInputError: The versions don't rise, a step from `old` exists, or the
            step leads past the version that the class is registered with.
    """
    if not 0 < old < new:
        raise InvalidInputError("a step leads from a version to a greater one", name=name, old=old, new=new)

    def declare(step: _S) -> _S:
        schema = _schemas.setdefault(name, _Schema())
        known = schema.steps.get(old)
        if known is not None and not _same(known[1], step):
            raise InvalidInputError("there is a step from this version already", name=name, old=old)
        _check(name, schema.version, {**schema.steps, old: (new, step)})
        schema.steps[old] = (new, step)
        return step

    return declare


def class_of(name: str) -> type | None:
    """Return the class that was registered under `name`."""
    schema = _schemas.get(name)
    return None if schema is None else schema.cls


def identity(cls: type) -> tuple[str, int]:
    """Return the schema name and version that instances of `cls` are saved with.

    Raises:
        Unsupported: The class has no tag, and its name is another class's tag.
    """
    name = _names.get(cls, cls.__qualname__)
    schema = _schemas.get(name)
    if schema is None:
        return name, 1
    if schema.cls is not None and schema.cls is not cls:
        raise Unsupported(f"the name of {cls.__qualname__} is the tag of another class; register it too")
    return name, schema.newest


def steps_between(name: str, old: int, new: int) -> list[Step] | None:
    """Return the steps from `old` to exactly `new`, or None when they don't lead there."""
    schema = _schemas.get(name) or _Schema()
    steps = []
    while old < new:
        if old not in schema.steps:
            return None
        old, step = schema.steps[old]
        steps.append(step)
    return steps if old == new else None


def _check(name: str, version: int | None, steps: Mapping[int, tuple[int, Step]]) -> None:
    last = max((to for to, _ in steps.values()), default=0)
    if version is not None and last > version:
        raise InvalidInputError(
            "a step leads past the version of the class; raise the version in its tag",
            name=name,
            version=version,
            leads_to=last,
        )


def _same(one: Any, other: Any) -> bool:
    """Whether both are the same definition, made twice by reloading its module."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
