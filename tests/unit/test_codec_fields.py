"""Fields of a class: got or lost since a state was saved, kept out of it, or made anew by a constructor."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from cloudckpt.codec import Record, decode, encode, unknown
from cloudckpt.errors import SchemaError


class TestDefaults:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: dataclasses.make_dataclass(
                "Grown", [("a", int), ("b", list, dataclasses.field(default_factory=list))]
            ),
            lambda: dataclasses.make_dataclass(
                "Grown", [("a", int), ("b", list, ())], slots=True, frozen=True
            ),
            lambda: pydantic.create_model(
                "Grown", a=(int, ...), b=(list, pydantic.Field(default_factory=list))
            ),
            lambda: msgspec.defstruct(
                "Grown", [("a", int), ("b", list, msgspec.field(default_factory=list))]
            ),
            lambda: attrs.make_class("Grown", {"a": attrs.field(), "b": attrs.field(factory=list)}),
            lambda: attrs.make_class(
                "Grown",
                {
                    "a": attrs.field(),
                    "b": attrs.field(default=attrs.Factory(lambda self: [self.a] * 0, takes_self=True)),
                },
            ),
            lambda: collections.namedtuple("Grown", "a b", defaults=[[]]),  # noqa: PYI024 - the other kind
        ],
    )
    def test_a_field_added_since_takes_its_default(self, make: Any) -> None:
        old = encode(Record("Grown", 1, {"a": 5})).data
        cls = make()
        first, second = decode(old, cls), decode(old, cls)
        assert first.a == 5
        assert list(first.b) == []
        assert isinstance(first, cls)
        if type(first.b) is list and not isinstance(first, tuple):
            assert first.b is not second.b

    @pytest.mark.parametrize(
        "cls",
        [
            dataclasses.make_dataclass("Grown", ["a", "b"]),
            pydantic.create_model("Grown", a=(int, ...), b=(list, ...)),
            msgspec.defstruct("Grown", ["a", "b"]),
            attrs.make_class("Grown", ["a", "b"]),
            collections.namedtuple("Grown", "a b"),  # noqa: PYI024 - the other kind
        ],
        ids=["dataclass", "pydantic", "msgspec", "attrs", "namedtuple"],
    )
    def test_a_field_without_one_is_named_with_the_version(self, cls: Any) -> None:
        with pytest.raises(SchemaError, match="Grown/1 has no value for the field b") as caught:
            decode(encode(Record("Grown", 1, {"a": 5})).data, cls)
        assert caught.value.kind == "missing-field"


class TestUnknownFields:
    """An old worker in a rolling deploy must not strip what a newer one saved."""

    NEWER = Record("Grown", 1, {"a": 5, "new": [1, (2,)], "item": Record("Item", 1, {"name": "n"})})

    @pytest.mark.parametrize(
        "cls",
        [
            dataclasses.make_dataclass("Grown", ["a"]),
            dataclasses.make_dataclass("Grown", ["a"], frozen=True),
            dataclasses.make_dataclass("Grown", ["a"], slots=True, weakref_slot=True),
            pydantic.create_model("Grown", a=(int, ...)),
            pydantic.create_model("Grown", a=(int, ...), __config__=pydantic.ConfigDict(frozen=True)),
            pydantic.create_model("Grown", a=(int, ...), __config__=pydantic.ConfigDict(extra="allow")),
            msgspec.defstruct("Grown", ["a"], weakref=True),
            msgspec.defstruct("Grown", ["a"], dict=True),
            attrs.make_class("Grown", ["a"]),
            attrs.make_class("Grown", ["a"], slots=True),
        ],
    )
    def test_they_are_kept_and_written_back(self, cls: Any) -> None:
        data = encode(self.NEWER).data
        instance = decode(data, cls)
        assert instance.a == 5
        assert encode(instance).data == data
        assert decode(encode([instance]).data) == [self.NEWER]

    def test_they_do_not_change_what_the_instance_equals(self) -> None:
        cls = dataclasses.make_dataclass("Grown", ["a"])
        model = pydantic.create_model("Grown", a=(int, ...))
        assert decode(encode(self.NEWER).data, cls) == cls(5)
        found = decode(encode(self.NEWER).data, model)
        assert found == model(a=5)
        assert found.model_dump() == {"a": 5}

    @pytest.mark.parametrize(
        "cls",
        [
            dataclasses.make_dataclass("Grown", ["a"], slots=True),
            msgspec.defstruct("Grown", ["a"]),
            collections.namedtuple("Grown", "a"),  # noqa: PYI024 - the other kind
        ],
    )
    def test_where_there_is_no_place_for_them_the_load_is_refused(self, cls: Any) -> None:
        with pytest.raises(SchemaError, match="leave no place to keep them") as caught:
            decode(encode(self.NEWER).data, cls)
        assert caught.value.facts["fields"] == ["item", "new"]

    def test_they_go_with_the_instance(self) -> None:
        """A table by identity must not give them to a later object at the same address."""
        cls = dataclasses.make_dataclass("Grown", ["a"], slots=True, weakref_slot=True)
        before = len(unknown._aside)
        for _ in range(50):
            instance = decode(encode(self.NEWER).data, cls)
            assert unknown.kept(instance)
            del instance
            assert len(unknown._aside) == before
            assert encode(cls(5)).data == encode(Record("Grown", 1, {"a": 5})).data


class TestExcluded:
    @pytest.mark.parametrize(
        "cls",
        [
            dataclasses.make_dataclass(
                "Held",
                [
                    "a",
                    (
                        "lock",
                        Any,
                        dataclasses.field(default_factory=object, metadata={"cloudckpt": "exclude"}),
                    ),
                ],
            ),
            attrs.make_class(
                "Held",
                {"a": attrs.field(), "lock": attrs.field(factory=object, metadata={"cloudckpt": "exclude"})},
            ),
        ],
        ids=["dataclass", "attrs"],
    )
    def test_an_excluded_field_is_never_saved_and_comes_back_as_its_default(self, cls: Any) -> None:
        data = encode(cls(1, lambda: "not serializable")).data
        assert dict(decode(data).fields) == {"a": 1}
        assert type(decode(data, cls).lock) is object

    def test_what_was_saved_before_it_was_excluded_is_dropped(self) -> None:
        field = dataclasses.field(default=None, metadata={"cloudckpt": "exclude"})
        cls = dataclasses.make_dataclass("Held", ["a", ("lock", Any, field)])
        instance = decode(encode(Record("Held", 1, {"a": 1, "lock": 2})).data, cls)
        assert instance.lock is None
        assert dict(decode(encode(instance).data).fields) == {"a": 1}


def test_a_field_comes_back_as_it_was_not_as_a_constructor_makes_it() -> None:
    """`__post_init__` and validators ran when the object was made; once more would change it."""

    @dataclasses.dataclass
    class Counts:
        n: int

        def __post_init__(self) -> None:
            self.n += 1

    class Validates(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def _add(cls, n: int) -> int:
            return n + 1

    class Adds(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            self.n += 1

    for state in (Counts(1), Validates(n=1), Adds(1)):
        assert state.n == 2
        assert decode(encode(state).data, type(state)).n == 2


def test_a_private_default_is_not_shared_between_loads() -> None:
    class Logs(pydantic.BaseModel):
        _lines: list[str] = []

    data = encode(Record(Logs.__qualname__, 1, {})).data
    decode(data, Logs)._lines.append("a")
    assert decode(data, Logs)._lines == []
