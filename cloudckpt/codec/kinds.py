"""How an object with fields is taken apart and put together again, by kind of class.

Owns: one `Shape` for each kind. None of the libraries is imported: a class of
theirs has what is needed. Invariant: an instance is put together without its
own `__init__`, `__post_init__` or validators, as `copy` and `pickle` do it, so
that a field comes back as it was saved and not as a constructor would like it.
(A msgspec struct can't be made without its `__post_init__`; its fields are put
back afterwards.) What such code sets beside the fields would be missing after
a load, so it is refused at the save.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from inspect import getattr_static
from typing import Any, Final

from cloudckpt.codec import unknown
from cloudckpt.codec.wire import Unsupported

EXCLUDE: Final = ("cloudckpt", "exclude")
"""Key and value in a field's metadata: never saved, and its default after a load."""


class MissingField(Exception):  # noqa: N818 - on its way to a SchemaError
    """A field has neither a stored value nor a default."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Shape(ABC):
    """A class with fields.

    Attributes:
        cls: The class; Any, since each kind has attributes of its own.
        names: Its fields in order, without those that are never saved.
        hidden: Fields that are never saved.
    """

    def __init__(self, cls: type, names: Iterable[str], hidden: Iterable[str] = ()) -> None:
        self.cls: Any = cls
        self.hidden = frozenset(hidden)
        self.names = tuple(name for name in names if name not in self.hidden)
        self._expected = {*self.names, *self.hidden, unknown.ATTRIBUTE}

    def read(self, value: Any) -> dict[str, Any]:
        """Return the fields of `value` by name."""
        return {name: getattr(value, name) for name in self.names}

    def unset(self, _: Any) -> tuple[str, ...]:
        """Return the names of fields that hold a default that nobody set."""
        return ()

    def strays(self, value: Any) -> list[str]:
        """Return the names of attributes that would be lost, as they are no fields."""
        attributes = getattr(value, "__dict__", None)
        if not attributes or attributes.keys() <= self._expected:
            return []
        return [name for name in attributes if name not in self._expected and not _is_cached(self.cls, name)]

    def knows(self, name: str) -> bool:
        """Whether a stored field of this name has its place in the class."""
        return name in self.names

    def hints(self) -> Mapping[str, Any] | None:
        """Return the fields' types where their library has resolved them, else None."""
        return None

    @abstractmethod
    def create(self, values: Mapping[str, Any], unset: Iterable[str]) -> Any:
        """Return a new instance with these values, and defaults for what they lack.

        Raises:
            MissingField: A field has no default.
        """


class _Attributes(Shape):
    """A dataclass or an attrs class: every field is an attribute."""

    def __init__(
        self, cls: type, defaults: Mapping[str, Callable[[Any], Any] | None], hidden: Iterable[str]
    ) -> None:
        super().__init__(cls, defaults, hidden)
        self._defaults = defaults
        _check_hidden(self, (name for name, default in defaults.items() if default is None))

    def create(self, values: Mapping[str, Any], _: Iterable[str]) -> Any:
        instance = self.cls.__new__(self.cls)
        for name, value in values.items():
            object.__setattr__(instance, name, value)
        for name, default in self._defaults.items():
            if name not in values:
                if default is None:
                    raise MissingField(name)
                object.__setattr__(instance, name, default(instance))
        return instance


def of_dataclass(cls: Any, hidden: Iterable[str]) -> Shape:
    """Return the shape of a dataclass."""
    fields = dataclasses.fields(cls)
    defaults = {field.name: _dataclass_default(field) for field in fields}
    return _Attributes(cls, defaults, [*hidden, *_excluded(fields)])


def _dataclass_default(field: dataclasses.Field[Any]) -> Callable[[Any], Any] | None:
    factory = field.default_factory
    if factory is not dataclasses.MISSING:
        return lambda _: factory()
    if field.default is not dataclasses.MISSING:
        return lambda _: field.default
    return None


def of_attrs(cls: Any, hidden: Iterable[str]) -> Shape:
    """Return the shape of an attrs class."""
    fields = cls.__attrs_attrs__
    defaults = {field.name: _attrs_default(field) for field in fields}
    return _Attributes(cls, defaults, [*hidden, *_excluded(fields)])


def _attrs_default(field: Any) -> Callable[[Any], Any] | None:
    nothing, factory = sys.modules["attr"].NOTHING, sys.modules["attr"].Factory
    if field.default is nothing:
        return None
    if not isinstance(field.default, factory):
        return lambda _: field.default
    if field.default.takes_self:
        factory_of_instance: Callable[[Any], Any] = field.default.factory
        return factory_of_instance
    return lambda _: field.default.factory()


def _excluded(fields: Iterable[Any]) -> list[str]:
    key, word = EXCLUDE
    return [field.name for field in fields if field.metadata.get(key) == word]


class Model(Shape):
    """A pydantic model, with its extra and private values under their own names."""

    def __init__(self, cls: Any, hidden: Iterable[str]) -> None:
        super().__init__(cls, cls.__pydantic_fields__, hidden)
        self._private = cls.__private_attributes__
        self._takes_extra = cls.model_config.get("extra") == "allow"
        required = (name for name, field in cls.__pydantic_fields__.items() if field.is_required())
        _check_hidden(self, required)

    def read(self, value: Any) -> dict[str, Any]:
        """Return the fields, then what is extra, then what is private."""
        fields = {name: value.__dict__[name] for name in self.names}
        fields |= value.__pydantic_extra__ or {}
        private = value.__pydantic_private__ or {}
        return fields | {name: private[name] for name in private if name not in self.hidden}

    def unset(self, value: Any) -> tuple[str, ...]:
        """Return what pydantic leaves out of ``model_dump(exclude_unset=True)``."""
        given = value.__pydantic_fields_set__
        return tuple(name for name in self.names if name not in given)

    def knows(self, name: str) -> bool:
        """Whether it is a field, private, or taken as extra."""
        if name in self.hidden:
            return False
        return name in self.names or name in self._private or (self._takes_extra and name[:1] != "_")

    def hints(self) -> Mapping[str, Any]:
        """Return what pydantic resolved."""
        return {name: field.annotation for name, field in self.cls.__pydantic_fields__.items()}

    def create(self, values: Mapping[str, Any], unset: Iterable[str]) -> Any:
        """Put the parts in place as pydantic's own unpickling does."""
        stored = [name for name in values if name not in self._private]
        fields = {name: values[name] for name in self.names if name in values}
        for name, field in self.cls.__pydantic_fields__.items():
            if name not in fields:
                if field.is_required():
                    raise MissingField(name)
                fields[name] = field.get_default(call_default_factory=True, validated_data=fields)
        extra = {name: values[name] for name in stored if name not in fields}
        instance = self.cls.__new__(self.cls)
        instance.__setstate__(
            {
                "__dict__": {name: fields[name] for name in self.cls.__pydantic_fields__},
                "__pydantic_fields_set__": {*stored}.difference(unset),
                "__pydantic_extra__": extra if self._takes_extra else None,
                "__pydantic_private__": self._private_values(values, fields),
            }
        )
        return instance

    def _private_values(self, values: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any] | None:
        if not self._private:
            return None
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        found = {
            name: values[name] if name in values else _private_default(attribute, fields)
            for name, attribute in self._private.items()
        }
        return {name: value for name, value in found.items() if value is not undefined}


def _private_default(attribute: Any, fields: Mapping[str, Any]) -> Any:
    # By its parts, since what `get_default` does without arguments depends on the release.
    if attribute.default_factory is None:
        return copy.deepcopy(attribute.default)
    if getattr(attribute, "default_factory_takes_validated_data", False):
        return attribute.default_factory({**fields})
    return attribute.default_factory()


class Struct(Shape):
    """A msgspec struct."""

    def __init__(self, cls: Any, hidden: Iterable[str]) -> None:
        names = cls.__struct_fields__
        super().__init__(cls, names, hidden)
        self._msgspec = sys.modules["msgspec"]
        with_default = names[len(names) - len(cls.__struct_defaults__) :]
        defaults = dict(zip(with_default, cls.__struct_defaults__, strict=True))
        nothing, unset = self._msgspec.NODEFAULT, self._msgspec.UNSET
        self._required = [name for name in names if defaults.get(name, nothing) is nothing]
        self._may_be_unset = [name for name in self.names if defaults.get(name) is unset]
        _check_hidden(self, self._required)

    def read(self, value: Any) -> dict[str, Any]:
        """Return the fields without those that are UNSET, as they come back by default."""
        fields = super().read(value)
        for name in self._may_be_unset:
            if fields[name] is self._msgspec.UNSET:
                del fields[name]
        return fields

    def create(self, values: Mapping[str, Any], _: Iterable[str]) -> Any:
        """Call the class, then undo what its `__post_init__` did to the fields."""
        for name in self._required:
            if name not in values:
                raise MissingField(name)
        instance = self.cls(**values)
        for name, value in values.items():
            self._msgspec.structs.force_setattr(instance, name, value)
        return instance


class Named(Shape):
    """A namedtuple."""

    def __init__(self, cls: Any, hidden: Iterable[str]) -> None:
        super().__init__(cls, cls._fields)
        self._defaults = cls._field_defaults
        _refuse_hidden(cls, hidden)

    def strays(self, value: Any) -> list[str]:
        """Return what a subclass with a `__dict__` has beside the fields."""
        return [name for name in getattr(value, "__dict__", ()) if not _is_cached(self.cls, name)]

    def read(self, value: Any) -> dict[str, Any]:
        """Return the items by name, past any property of that name."""
        return dict(zip(self.names, tuple(value), strict=True))

    def create(self, values: Mapping[str, Any], _: Iterable[str]) -> Any:
        """Make it past any `__new__` of its own."""
        found = {**self._defaults, **values}
        for name in self.names:
            if name not in found:
                raise MissingField(name)
        return tuple.__new__(self.cls, [found[name] for name in self.names])


class Member(Shape):
    """A member of an enum: by name, or by value where flags are combined."""

    def __init__(self, cls: type[enum.Enum], hidden: Iterable[str]) -> None:
        super().__init__(cls, ("value",) if issubclass(cls, enum.Flag) else ("name",))
        _refuse_hidden(cls, hidden)

    def strays(self, _: Any) -> list[str]:
        """Return nothing: what a member has is the class's."""
        return []

    def create(self, values: Mapping[str, Any], _: Iterable[str]) -> Any:
        """Return the one member."""
        for name in self.names:
            if name not in values:
                raise MissingField(name)
        return self.cls(values["value"]) if "value" in values else self.cls[values["name"]]


class Foreign(Shape):
    """Any class, by two functions of the user's: to fields, and from them."""

    def __init__(
        self,
        cls: type,
        to_fields: Callable[[Any], Mapping[str, Any]],
        from_fields: Callable[[dict[str, Any]], Any],
    ) -> None:
        super().__init__(cls, ())
        self._to_fields, self._from_fields = to_fields, from_fields

    def read(self, value: Any) -> dict[str, Any]:
        """Return what the user's function makes of it."""
        fields = {**self._to_fields(value)}
        if not all(type(name) is str for name in fields):
            raise Unsupported(f"to_fields of {self.cls.__qualname__} gave a name that is not a str")
        return fields

    def strays(self, _: Any) -> list[str]:
        """Return nothing: what is state is for the user's function to say."""
        return []

    def knows(self, _: str) -> bool:
        """Take every field: the user's function gets them all."""
        return True

    def hints(self) -> Mapping[str, Any]:
        """Return none: the function makes what the class needs."""
        return {}

    def create(self, values: Mapping[str, Any], _: Iterable[str]) -> Any:
        """Return what the user's function makes of the fields."""
        instance = self._from_fields({**values})
        if type(instance) is not self.cls:
            raise TypeError(f"from_fields returned {type(instance).__qualname__}")
        return instance


def _check_hidden(shape: Shape, required: Iterable[str]) -> None:
    for name in shape.hidden.intersection(required):
        raise Unsupported(f"the field {name} of {shape.cls.__qualname__} is excluded but has no default")


def _refuse_hidden(cls: type, hidden: Iterable[str]) -> None:
    for name in hidden:
        raise Unsupported(f"{cls.__qualname__} can't exclude {name}: it is nothing without it")


def _is_cached(cls: type, name: str) -> bool:
    return isinstance(getattr_static(cls, name, None), cached_property)
