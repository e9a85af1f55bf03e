"""What can't be carried is refused whole, with every path, before a byte is written."""

from __future__ import annotations

import collections
import dataclasses
import enum
import io
import pathlib
import re
import threading
import types
from collections.abc import Callable
from datetime import datetime, tzinfo
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from cloudckpt.codec import decode, encode
from cloudckpt.errors import SerializationError


@dataclasses.dataclass
class Step:
    callback: Any = None
    children: list[Step] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Derives:
    n: int

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    @cached_property
    def double(self) -> int:
        return 2 * self.n


class Plain:
    """An instance of a class without fields."""


class Words(list[str]):
    """A subclass of a native type."""


def refused(state: object) -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        encode(state)
    return caught.value


def test_a_fault_is_named_by_its_path() -> None:
    error = refused({"plan": [0, 1, 2, Step(callback=refused)]})
    assert str(error) == "state.plan[3].callback: function is not serializable"
    assert error.paths == ("state.plan[3].callback",)


def test_all_faults_are_named_at_once() -> None:
    """One fault per attempt would take a user as many runs as there are faults."""
    state = {
        "a b": print,
        "handle": io.BytesIO(),
        "deep": [{"x": (1, threading.Lock())}, (n for n in ())],
        "module": dataclasses,
        1: Plain(),
        ("k",): {refused},
        (print, 2): "key",
        "cls": Plain,
        "fine": [1, 2.0, "3"],
    }
    assert refused(state).paths == (
        "state['a b']",
        "state.handle",
        "state.deep[0].x[1]",
        "state.deep[1]",
        "state.module",
        "state[1]",
        "state[('k',)][0]",
        "state (key 6)[0]",
        "state.cls",
    )


def test_many_faults_are_counted_and_all_in_paths() -> None:
    error = refused([print] * 3 + [len, abs, all, any, bin, chr, dir, hex, iter, map, max, min])
    assert len(error.paths) == 15
    assert "and 5 more" in str(error)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Words(["a"]),
        lambda: type("Text", (str,), {})("a"),
        lambda: type("Number", (int,), {})(1),
        lambda: type("Table", (dict,), {})(a=1),
        lambda: type("Moment", (datetime,), {})(2024, 1, 1),
        Plain,
        object,
        lambda: iter([1]),
        {}.keys,
        lambda: memoryview(b"abcd")[::2],
        lambda: ValueError("x"),
        lambda: collections.defaultdict(lambda: 0),
        lambda: collections.defaultdict(type("list", (), {})),
        type("Decimal", (), {"__module__": "decimal", "__str__": lambda _: "1"}),
        lambda: re.compile("a", re.DEBUG),
        lambda: np.array([object()]),
        lambda: np.array(["a"], np.dtypes.StringDType()),
        lambda: np.rec.array([(1,)], dtype=[("a", "i4")]),
        lambda: np.ma.array([1], mask=[True]),
        lambda: np.zeros(1, np.dtype({"a": ("i4", 0, "title")})),
        lambda: np.zeros(1, [("a", "O")]),
        lambda: np.object_,
        lambda: Fraction(1, 7**20000),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(make: Callable[[], Any]) -> None:
    """A subclass that is packed as its base comes back as its base."""
    assert refused({"v": [make()]}).paths == ("state.v[0]",)


def test_what_a_mapping_of_another_kind_holds_is_named_as_in_a_dict() -> None:
    state = {
        "counter": collections.Counter({"a": print}),
        "ordered": collections.OrderedDict({"b c": print}),
        "default": collections.defaultdict(list, {1: [print]}),
        "chain": collections.ChainMap({"k": 1}, {"k": print}),
        "queue": collections.deque([print]),
        "namespace": types.SimpleNamespace(x=print),
    }
    assert refused(state).paths == (
        "state.counter.a",
        "state.ordered['b c']",
        "state.default[1][0]",
        "state.chain[1].k",
        "state.queue[0]",
        "state.namespace.x",
    )


def test_a_path_whose_text_names_another_is_refused() -> None:
    """Up to Python 3.11 the text of ./c:a is that of a file on drive C."""
    path = pathlib.PureWindowsPath("./c:a")
    if pathlib.PureWindowsPath(str(path)) == path:
        assert decode(encode(path).data) == path
    else:
        assert "its own text does not name" in str(refused(path))


def test_a_time_zone_of_another_library_is_refused_with_what_to_use() -> None:
    class Zone(tzinfo):
        pass

    assert "use zoneinfo" in str(refused([datetime(2024, 1, 1, tzinfo=Zone())]))


def test_a_cycle_is_refused_with_both_ends() -> None:
    step = Step()
    step.children.append(Step(children=[step]))
    error = refused({"root": step})
    assert error.paths == ("state.root.children[0].children[0]",)
    assert "leads back to state.root" in str(error)


def test_a_diamond_is_no_cycle() -> None:
    shared = [1]
    assert decode(encode({"a": shared, "b": [shared, shared]}).data) == {"a": [1], "b": [[1], [1]]}


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "dict": lambda inner: {"k": inner},
    "tuple": lambda inner: (inner,),
    "object": lambda inner: Step(callback=inner),
    "mixture": lambda inner: [{"k": (Step(callback=inner),)}],
}


@pytest.mark.parametrize("core", [1, [], (), {}, Step()], ids=repr)
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_the_deepest_state_that_is_saved_is_read(wrap: Callable[[Any], Any], core: Any) -> None:
    """The packer and the unpacker have a limit each; where they differ, a save can't be loaded."""
    state, deepest, refusal = core, b"", None
    while refusal is None:
        try:
            deepest = encode(state).data
            state = wrap(state)
        except SerializationError as error:
            refusal = error
    assert encode(decode(deepest)).data == deepest
    assert "nested in more than 1023 levels" in str(refusal)
    assert len(refusal.paths[0]) < 200


def test_an_attribute_that_is_no_field_is_refused_not_dropped() -> None:
    """It would be missing after a load, twenty minutes later."""
    state = Derives(2)
    assert state.double == 4  # a cached property is no state
    error = refused({"d": state})
    assert error.paths == ("state.d.lock",)
    assert "not a field of Derives" in str(error)


def test_a_class_that_is_two_things_at_once_is_refused() -> None:
    @dataclasses.dataclass
    class Both(dict[str, int]):
        n: int = 0

    assert "is a dict too" in str(refused([Both()]))


def test_an_object_whose_field_was_never_set_is_refused() -> None:
    @dataclasses.dataclass
    class Late:
        n: int = dataclasses.field(init=False)

    error = refused([Late()])
    assert error.paths == ("state[0]",)
    assert "AttributeError" in str(error)


def test_a_bare_enum_class_is_refused() -> None:
    assert refused({"k": enum.Enum}).paths == ("state.k",)


def test_what_is_not_an_exception_passes_through() -> None:
    """A simulated crash inside an object's own code must not be turned into a refusal."""

    class Crash(BaseException):
        pass

    @dataclasses.dataclass
    class Crashes:
        n: int

        def __getattribute__(self, name: str) -> Any:
            if name == "n":
                raise Crash
            return super().__getattribute__(name)

    with pytest.raises(Crash):
        encode(Crashes(1))
