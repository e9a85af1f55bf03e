"""Objects with fields: taken apart by any of the libraries, put together exactly, or a readable record."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import pickle
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pydantic
import pytest

from cloudckpt.codec import Record, decode, encode, register
from cloudckpt.errors import SchemaError

T = typing.TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Item:
    name: str
    price: float = 1.0


class Model(pydantic.BaseModel):
    item: Item
    note: str = "none"
    _tries: int = pydantic.PrivateAttr(default=0)


class Struct(msgspec.Struct):
    item: Item
    missing: int | msgspec.UnsetType = msgspec.UNSET


class Kind(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Right(enum.IntFlag):
    READ = 1
    WRITE = 2


class Place(typing.NamedTuple):
    x: int
    item: Item | None = None


class Shelf(typing.TypedDict):
    first: Item
    rest: typing.NotRequired[list[Item]]


class Linked(typing.TypedDict):
    item: Item
    next: Linked | None


@dataclasses.dataclass
class Order:
    first: Item
    items: list[Item]
    by_name: dict[str, Item]
    pair: tuple[Item, int]
    many: tuple[Item, ...]
    keyed: dict[Item, set[Item]]
    maybe: Item | None
    union: Model | Struct | Kind | str
    spelled: typing.Optional[Item]  # noqa: UP045 - both spellings are in use
    noted: typing.Annotated[Item, "note"]
    shelf: Shelf
    place: Place
    kind: Kind
    rights: Right
    seq: Sequence[Mapping[str, Item]]
    queue: collections.abc.Iterable[Item]
    anything: Any


def order() -> Order:
    item = Item("a")
    return Order(
        first=item,
        items=[item, Item("b")],
        by_name={"x": item},
        pair=(item, 1),
        many=(item, item),
        keyed={item: {item}},
        maybe=item,
        union=Struct(item),
        spelled=None,
        noted=item,
        shelf={"first": item, "rest": [item]},
        place=Place(1, item),
        kind=Kind.LARGE,
        rights=Right.READ | Right.WRITE,
        seq=[{"a": item}],
        queue=[item],
        anything=[1, (2,)],
    )


def test_a_type_builds_what_its_hints_name_at_any_depth() -> None:
    assert decode(encode(order()).data, Order) == order()


@pytest.mark.parametrize("union", [Model(item=Item("m"), note="x"), Struct(Item("s")), Kind.SMALL, "text"])
def test_a_union_builds_the_member_that_was_saved(union: Any) -> None:
    state = dataclasses.replace(order(), union=union)
    assert decode(encode(state).data, Order) == state


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ([Item("a"), Item("b")], list[Item]),
        ({"k": [Item("a")]}, dict[str, list[Item]]),
        ((Item("a"), 1), tuple[Item, int]),
        (None, Item | None),
        (Item("a"), typing.Optional[Item]),  # noqa: UP045 - as above
        ({"first": Item("a")}, Shelf),
        (Kind.SMALL, Kind),
        (Place(1), Place),
        (collections.OrderedDict([("b", Item("b")), ("a", Item("a"))]), collections.OrderedDict[str, Item]),
        (collections.defaultdict(list, {1: [Item("a")]}), collections.defaultdict[int, list[Item]]),
        (collections.Counter({Item("a"): 2}), collections.Counter[Item]),
        (collections.deque([Item("a")], 3), collections.deque[Item]),
        (collections.ChainMap({"a": Item("a")}, {"b": Item("b")}), collections.ChainMap[str, Item]),
        (types.MappingProxyType({"a": Item("a")}), Mapping[str, Item]),
        ({"item": Item("a"), "next": {"item": Item("b"), "next": None}}, Linked),
        (Item("a"), typing.NewType("Special", Item)),
        (Item("a"), typing.Annotated[Item, "note"]),
        ({"a": 1}, dict),
        ([1], collections.abc.Sequence),
        (3, typing.Any),
    ],
)
def test_a_hint_may_stand_for_the_whole_state(state: Any, hint: Any) -> None:
    found = decode(encode(state).data, hint)
    assert found == state
    assert type(found) is type(state)


class TestRecord:
    """Without its class an object is a record that keeps everything."""

    def record(self) -> Any:
        return decode(encode(order()).data)

    def test_its_fields_can_be_read(self) -> None:
        record = self.record()
        assert (record.tag, record.version) == ("Order", 1)
        assert list(record.fields) == [field.name for field in dataclasses.fields(Order)]
        assert record.items[1].name == "b"
        assert record.kind.fields == {"name": "LARGE"}
        with pytest.raises(AttributeError, match="Order/1 has no field 'nothing'"):
            _ = record.nothing

    def test_it_is_saved_again_unchanged(self) -> None:
        encoded = encode(self.record())
        assert encoded == encode(order())
        assert encoded.schema == "Order"

    def test_it_equals_another_of_the_same_bytes_and_no_other(self) -> None:
        assert self.record() == self.record()
        assert decode(encode(Item("a")).data) != decode(encode(Item("b")).data)
        assert decode(encode(Item("a")).data) != Item("a")

    def test_it_can_be_a_key_as_its_object_can(self) -> None:
        state = decode(encode({Item("a"): 1}).data)
        assert state[decode(encode(Item("a")).data)] == 1

    def test_it_can_be_copied_and_pickled(self) -> None:
        record = self.record()
        assert copy.deepcopy(record) == pickle.loads(pickle.dumps(record)) == record

    def test_it_is_read_only(self) -> None:
        record = self.record()
        with pytest.raises(AttributeError, match="read-only"):
            record.first = 1
        with pytest.raises(AttributeError, match="read-only"):
            del record.first
        with pytest.raises(TypeError):
            record.fields["first"] = 1

    def test_a_field_may_have_any_name(self) -> None:
        """A field called `fields` must not break the record."""
        cls = dataclasses.make_dataclass("Odd", ["tag", "version", "fields", "_fields"])
        record = decode(encode(cls(1, 2, 3, 4)).data)
        assert dict(record.fields) == {"tag": 1, "version": 2, "fields": 3, "_fields": 4}
        assert decode(encode(record).data, cls) == cls(1, 2, 3, 4)


class TestWrongType:
    @pytest.mark.parametrize(
        ("state", "hint", "said"),
        [
            (Item("a"), Order, "asked for Order, stored is Item/1"),
            ({"a": 1}, Order, "asked for Order, stored is a plain dict"),
            (Item("a"), dict, "asked for dict, stored is Item/1"),
            ([1], dict, "asked for dict, stored is a plain list"),
            (None, Order, "asked for Order, stored is a plain NoneType"),
            ("x", Item | None, "stored is a plain str"),
        ],
    )
    def test_both_are_named(self, state: Any, hint: Any, said: str) -> None:
        with pytest.raises(SchemaError, match=said):
            decode(encode(state).data, hint)

    def test_a_value_that_is_not_what_its_field_says_stays_what_it_was(self) -> None:
        """Hints say where classes go; a load that refused what a save took would lose the run."""
        state = dataclasses.replace(order(), first="not an item", items="abc")  # type: ignore[arg-type]
        assert decode(encode(state).data, Order) == state

    def test_a_subclass_in_a_field_of_its_base_stays_a_record(self) -> None:
        @dataclasses.dataclass(frozen=True)
        class Special(Item):
            extra: int = 0

        state = dataclasses.replace(order(), first=Special("s"))
        found = decode(encode(state).data, Order)
        assert isinstance(found.first, Record)
        assert found.items == state.items
        assert encode(found).data == encode(state).data


def test_a_model_keeps_what_was_set_and_what_is_private() -> None:
    """`exclude_unset` of a request to a model would send other fields after a resume."""
    model = Model(item=Item("a"))
    model._tries = 7
    found = decode(encode(model).data, Model)
    assert found == model
    assert found._tries == 7
    assert found.model_dump(exclude_unset=True) == {"item": {"name": "a", "price": 1.0}}


def test_a_generic_class_builds_what_its_argument_names() -> None:
    found = decode(encode(Box(Item("a"), [Item("b")])).data, Box[Item])
    assert found == Box(Item("a"), [Item("b")])


@dataclasses.dataclass
class Box(typing.Generic[T]):
    content: T
    more: list[T]


@dataclasses.dataclass
class Holder:
    node: Node | None


@dataclasses.dataclass
class Node:
    n: int
    child: Node | None = None
    same: list[typing.Self] = dataclasses.field(default_factory=list)


def test_a_class_may_hold_itself() -> None:
    node = Node(1, Node(2, None, [Node(3)]), [Node(4)])
    assert decode(encode(node).data, Node) == node


def test_objects_too_deep_to_build_say_so() -> None:
    node = None
    for n in range(500):
        node = Node(n, node)
    data = encode(node).data
    with pytest.raises(SchemaError, match="nested too deep") as caught:
        decode(data, Node)
    assert caught.value.kind == "too-deep"
    assert decode(data).child.child.n == 497
    data = encode(register("objects-holds-a-node")(Holder)(node)).data
    with pytest.raises(SchemaError, match="nested too deep"):
        decode(data)


def test_an_ordered_dict_keeps_its_own_order_through_a_hint() -> None:
    """`dict.update` of an OrderedDict leaves it broken: it iterates over nothing."""
    state = collections.OrderedDict([("b", Item("b")), ("a", Item("a"))])
    found = decode(encode(state).data, collections.OrderedDict[str, Item])
    found.move_to_end("b")
    assert list(found.items()) == [("a", Item("a")), ("b", Item("b"))]


def test_hints_that_can_not_be_read_are_no_damage() -> None:
    """A typing error in a program must not send a loader back to older checkpoints."""

    class Meta(type):
        def __instancecheck__(cls, other: object) -> bool:
            raise TypeError

        @property
        def __dataclass_fields__(cls) -> None:
            raise ValueError("broken")

    broken = Meta("Broken", (), {})
    cls = dataclasses.make_dataclass("Hinted", [("n", broken)])
    with pytest.raises(SchemaError, match="the type hints of Hinted can't be read") as caught:
        decode(encode(Record("Hinted", 1, {"n": 1})).data, cls)
    assert caught.value.kind == "unreadable-hints"


def test_a_class_local_to_a_function_finds_itself_and_says_what_it_does_not_find() -> None:
    @dataclasses.dataclass
    class Inner:
        n: int

    @dataclasses.dataclass
    class Outer:
        me: Outer | None
        inner: list[Inner]
        item: Item

    assert decode(encode(Outer(Outer(None, [], Item("b")), [], Item("a"))).data, Outer).me.item == Item("b")
    with pytest.raises(SchemaError, match="can't be resolved") as caught:
        decode(encode(Outer(None, [Inner(1)], Item("a"))).data, Outer)
    assert caught.value.facts["hint"] == "list[Inner]"


class Tagged:
    """Its fields are made when they are asked for, as a foreign class's are."""

    scratch: ClassVar[set[str]] = set()

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("reused", [False, True])
def test_sets_that_are_made_for_the_encoder_are_not_taken_for_each_other(reused: bool) -> None:
    """The order of a set was looked up by its id, which the next object's set gets again."""

    def to_fields(tagged: Tagged) -> dict[str, Any]:
        fresh = {f"item {tagged.number}", f"x {tagged.number}"}
        if not reused:
            return {"tags": fresh}
        Tagged.scratch.clear()
        Tagged.scratch.update(fresh)
        return {"tags": Tagged.scratch}

    def from_fields(fields: Mapping[str, Any]) -> Tagged:
        return Tagged(int(min(fields["tags"]).split()[1]))

    register(f"tagged-{reused}", to_fields=to_fields, from_fields=from_fields)(Tagged)
    states = decode(encode([Tagged(number) for number in range(4)]).data)
    assert [tagged.number for tagged in states] == [0, 1, 2, 3]
