"""Tags, versions and migrations: bytes of every older version load, newer ones are refused."""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import threading
import typing
from typing import Any

import pydantic
import pytest

from cloudckpt.codec import Record, decode, encode, migration, register
from cloudckpt.errors import InvalidInputError, SchemaError, SerializationError

_numbers = itertools.count()


@pytest.fixture
def tag() -> str:
    """A name that no other test has used: declarations hold for the whole process."""
    return f"schema-test-{next(_numbers)}"


def saved(tag: str, version: int, **fields: Any) -> bytes:
    return encode([Record(tag, version, fields)]).data


def test_a_registered_class_comes_back_anywhere_without_a_type(tag: str) -> None:
    @register(f"{tag}/v1")
    @dataclasses.dataclass(frozen=True)
    class Order:
        n: int

    state = {"orders": [Order(1)], Order(2): {Order(3)}}
    assert decode(encode(state).data) == state
    encoded = encode(Order(1))
    assert (encoded.schema, encoded.schema_version) == (tag, 1)
    assert decode(encoded.data, Order) == Order(1)


def test_a_class_that_moved_or_was_renamed_is_found_by_its_tag(tag: str) -> None:
    """A module path in the bytes would break with the next deploy."""
    old, reloaded = (dataclasses.make_dataclass("Old", ["n"]) for _ in range(2))
    data = encode(register(tag)(old)(1)).data
    assert b"Old" not in data
    register(tag)(reloaded)
    assert type(decode(data)) is reloaded


class TestMigrations:
    def test_versions_are_chained_from_every_older_one(self, tag: str) -> None:
        @migration(tag, 1, 2)
        def _rename(fields: dict[str, Any]) -> dict[str, Any]:
            fields["title"] = fields.pop("name")
            return fields

        @migration(tag, 2, 4)
        def _split(fields: dict[str, Any]) -> dict[str, Any]:
            return {"words": fields["title"].split()}

        @register(f"{tag}/v4")
        @dataclasses.dataclass
        class Doc:
            words: list[str]

        for data in (
            saved(tag, 1, name="a b"),
            saved(tag, 2, title="a b"),
            saved(tag, 4, words=["a", "b"]),
        ):
            assert decode(data) == [Doc(["a", "b"])]
            assert decode(data, list[Doc]) == [Doc(["a", "b"])]
        assert encode(Doc([])).schema_version == 4

    def test_a_class_without_a_tag_is_at_the_version_where_the_last_one_leads(self) -> None:
        @migration("Research", 1, 2)
        def _first(fields: dict[str, Any]) -> dict[str, Any]:
            return {**fields, "notes": fields["notes"] + ["migrated"]}

        data = encode(Record("Research", 1, {"notes": ["a"]})).data
        assert decode(data, Research) == Research(["a", "migrated"])
        assert encode(Research([])).schema_version == 2
        assert decode(data).version == 1

    def test_newer_than_known_is_refused_and_says_which(self, tag: str) -> None:
        register(f"{tag}/v2")(dataclasses.make_dataclass("New", ["n"]))
        with pytest.raises(SchemaError, match=f"stored='{tag}/3' newest_known='{tag}/2'") as caught:
            decode(saved(tag, 3, n=1))
        assert caught.value.kind == "newer-schema"

    def test_a_missing_step_is_refused_and_says_which(self, tag: str) -> None:
        migration(tag, 2, 3)(lambda fields: fields)
        register(f"{tag}/v3")(dataclasses.make_dataclass("Gap", ["n"]))
        with pytest.raises(SchemaError, match=f"stored='{tag}/1' wanted='{tag}/3'") as caught:
            decode(saved(tag, 1, n=1))
        assert caught.value.kind == "no-migration"

    @pytest.mark.parametrize("step", [lambda fields: fields["gone"], lambda fields: None, lambda fields: 1])
    def test_one_that_fails_is_a_schema_error_with_its_cause(self, tag: str, step: Any) -> None:
        migration(tag, 1, 2)(step)
        register(tag)(dataclasses.make_dataclass("Fails", ["n"]))
        with pytest.raises(SchemaError, match="a migration failed") as caught:
            decode(saved(tag, 1, n=1))
        assert caught.value.__cause__ is not None

    def test_it_may_change_what_it_is_given(self, tag: str) -> None:
        def step(fields: dict[str, Any]) -> dict[str, Any]:
            fields["n"] = fields.pop("m") + 1
            return fields

        migration(tag, 1, 2)(step)
        cls = register(tag)(dataclasses.make_dataclass("Changed", ["n"]))
        assert decode(saved(tag, 1, m=1)) == [cls(2)]

    @pytest.mark.parametrize(("old", "new"), [(2, 2), (2, 1), (0, 1), (-1, 1)])
    def test_versions_must_rise(self, tag: str, old: int, new: int) -> None:
        with pytest.raises(InvalidInputError, match="to a greater one"):
            migration(tag, old, new)

    def test_two_steps_from_one_version_are_refused(self, tag: str) -> None:
        migration(tag, 1, 2)(lambda fields: fields)

        def other(fields: dict[str, Any]) -> dict[str, Any]:
            return fields

        with pytest.raises(InvalidInputError, match="a step from this version already"):
            migration(tag, 1, 3)(other)

    def test_a_step_past_the_class_is_refused_whichever_comes_first(self, tag: str) -> None:
        register(f"{tag}/v2")(dataclasses.make_dataclass("Behind", ["n"]))
        with pytest.raises(InvalidInputError, match="raise the version in its tag"):
            migration(tag, 2, 3)(lambda fields: fields)
        migration(f"{tag}-b", 1, 3)(lambda fields: fields)
        with pytest.raises(InvalidInputError, match="raise the version in its tag"):
            register(f"{tag}-b/v2")(dataclasses.make_dataclass("Behind", ["n"]))


@dataclasses.dataclass
class Research:
    notes: list[str]


class TestRegister:
    def test_a_tag_means_one_class(self, tag: str) -> None:
        register(tag)(dataclasses.make_dataclass("One", ["n"]))
        with pytest.raises(InvalidInputError, match="another class's") as caught:
            register(f"{tag}/v2")(dataclasses.make_dataclass("Two", ["n"]))
        assert caught.value.facts["registered"] == "One"

    def test_a_class_whose_name_is_anothers_tag_is_refused_not_mixed_up(self) -> None:
        """Its instances would come back as the other class."""
        register("SchemaTestMixup")(dataclasses.make_dataclass("Other", ["n"]))
        unregistered = dataclasses.make_dataclass("SchemaTestMixup", ["n"])
        with pytest.raises(SerializationError, match="is the tag of another class"):
            encode([unregistered(1)])
        with pytest.raises(SchemaError, match="asked for SchemaTestMixup"):
            decode(encode(Record("SchemaTestMixup", 1, {"n": 1})).data, unregistered)

    @pytest.mark.parametrize("bad", ["", "\n"[:0]])
    def test_an_empty_tag_is_refused(self, bad: str) -> None:
        with pytest.raises(InvalidInputError, match="a tag is a name"):
            register(bad)

    @pytest.mark.parametrize("cls", [int, type("Bare", (), {}), enum.Enum])
    def test_a_class_without_fields_is_refused_with_what_to_do(self, tag: str, cls: type) -> None:
        """Below the decorator that makes the class is the usual slip."""
        with pytest.raises(InvalidInputError, match="below the decorator that makes them"):
            register(tag)(cls)

    def test_fields_are_excluded_by_name_where_they_have_no_metadata(self, tag: str) -> None:
        class Client(pydantic.BaseModel):
            url: str
            token: str = "none"
            _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)

        with pytest.raises(SerializationError) as caught:
            encode(Client(url="u"))
        assert caught.value.paths == ("state._lock",)
        register(tag, exclude=["token", "_lock"])(Client)
        data = encode(Client(url="u", token="secret")).data
        found = decode(data)
        assert (found.url, found.token) == ("u", "none")
        assert found._lock.acquire(blocking=False)

    @pytest.mark.parametrize(
        ("make", "name", "said"),
        [
            (lambda: dataclasses.make_dataclass("D", ["n"]), "n", "excluded but has no default"),
            (lambda: pydantic.create_model("M", n=(int, ...)), "n", "excluded but has no default"),
            (lambda: dataclasses.make_dataclass("D", ["n"]), "typo", "has no field typo"),
            (lambda: collections.namedtuple("P", "n"), "n", "can't exclude n"),  # noqa: PYI024
        ],
    )
    def test_an_exclusion_that_could_not_come_back_is_refused(
        self, tag: str, make: Any, name: str, said: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=said):
            register(tag, exclude=[name])(make())


class Matrix:
    """Somebody else's class."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = rows


class TestFunctions:
    def test_they_carry_any_class_and_its_record_is_readable(self, tag: str) -> None:
        register(f"{tag}/v2", to_fields=lambda m: {"rows": m.rows}, from_fields=lambda f: Matrix(**f))(
            cls := type("Matrix", (Matrix,), {})
        )
        with pytest.raises(SchemaError) as caught:
            decode(encode({"m": cls([[1.0]])}).data)
        assert "from_fields returned Matrix" in str(caught.value.__cause__)

    def test_their_class_comes_back_and_migrates(self, tag: str) -> None:
        cls: Any = type("Matrix", (Matrix,), {})
        migration(tag, 1, 2)(lambda fields: {"rows": [fields["row"]]})
        register(f"{tag}/v2", to_fields=lambda m: {"rows": m.rows}, from_fields=lambda f: cls(**f))(cls)
        found = decode(encode({"m": cls([[1.0]])}).data)["m"]
        assert type(found) is cls
        assert found.rows == [[1.0]]
        assert decode(saved(tag, 1, row=[2.0]))[0].rows == [[2.0]]

    def test_a_fault_in_what_they_return_is_named_by_its_path(self, tag: str) -> None:
        cls: Any = type("Matrix", (Matrix,), {})
        register(tag, to_fields=lambda m: {"rows": m.rows, "f": print}, from_fields=lambda f: cls(**f))(cls)
        with pytest.raises(SerializationError) as caught:
            encode({"m": cls([lambda: 0])})
        assert caught.value.paths == ("state.m.rows[0]", "state.m.f")

    def test_one_without_the_other_is_refused(self, tag: str) -> None:
        with pytest.raises(InvalidInputError, match="go together"):
            register(tag, to_fields=vars)(Matrix)

    def test_a_subclass_is_not_carried_by_them(self, tag: str) -> None:
        cls: Any = type("Matrix", (Matrix,), {})
        register(tag, to_fields=vars, from_fields=lambda f: cls(**f))(cls)
        with pytest.raises(SerializationError, match="Sub is not serializable"):
            encode(type("Sub", (cls,), {})([]))


class Suit(enum.Enum):
    HEARTS = 1


class Bits(enum.Flag, boundary=enum.STRICT):
    ONE = 1


@pytest.mark.parametrize(
    ("record", "cls"),
    [
        (Record("Suit", 1, {"name": "SPADES"}), Suit),
        (Record("Bits", 1, {"value": 64}), Bits),
        (Record("Suit", 1, {}), Suit),
    ],
)
def test_a_member_that_is_no_more_is_a_schema_error(record: Record, cls: type) -> None:
    with pytest.raises(SchemaError, match=typing.cast("str", cls.__name__)):
        decode(encode(record).data, cls)
