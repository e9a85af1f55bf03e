"""What differs between two states: every difference of the saved bytes, and nothing else, by path."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudckpt.codec import Record, decode, encode, register
from cloudckpt.codec.diffing import KINDS, Change, diff
from cloudckpt.codec.views import select

STATE = {"step": 3, "messages": [{"role": "user"}, {"role": "assistant"}], "seen": {1, 2}}


def told(old: Any, new: Any) -> list[tuple[str, str, Any, Any]]:
    return [(change.path, change.kind, change.old, change.new) for change in diff(old, new)]


def test_equal_states_do_not_differ() -> None:
    assert diff(STATE, copy.deepcopy(STATE)) == []
    assert diff(math.nan, float("nan")) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *[(1, True), (1, 1.0), (0.0, -0.0), (0, False), ("", None), ("1", 1), (b"a", "a")],
        *[([1], (1,)), ({1}, frozenset({1})), ({}, OrderedDict()), (Decimal("1.0"), Decimal("1.00"))],
    ],
)
def test_equal_values_of_different_types_differ(old: Any, new: Any) -> None:
    """Python says that 1 == True == 1.0; a program that goes on from the state may not."""
    assert told({"a": [old]}, {"a": [new]}) == [("state.a[0]", "changed", old, new)]


def test_keys_of_a_dict_are_told_apart_by_type_too() -> None:
    assert told({1: "x"}, {True: "x"}) == [
        ("state[1]", "removed", "x", None),
        ("state[True]", "added", None, "x"),
    ]
    assert told({(1,): 0}, {(1.0,): 0})[0][:2] == ("state[(1,)]", "removed")


def test_a_dict_shows_what_went_what_came_and_what_changed_inside() -> None:
    old = {"a": 1, "b": {"c": 1, "two words": 2}, "z": 0}
    new = {"a": 1, "b": {"c": 2, "two words": 3}, "n": 9}
    assert told(old, new) == [
        ("state.z", "removed", 0, None),
        ("state.n", "added", None, 9),
        ("state.b.c", "changed", 1, 2),
        ("state.b['two words']", "changed", 2, 3),
    ]


def test_another_order_of_keys_is_a_difference() -> None:
    """A dict keeps its order in a state, so the digests differ; a diff that is silent would puzzle."""
    assert told({"a": 1, "b": 2, "x": 0}, {"b": 2, "a": 1}) == [
        ("state.x", "removed", 0, None),
        ("state", "reordered", ["a", "b"], ["b", "a"]),
    ]


def test_lists_are_compared_by_place() -> None:
    assert told([1, 2, 3], [1, 3]) == [("state[2]", "removed", 3, None), ("state[1]", "changed", 2, 3)]
    assert told((1,), (1, 2)) == [("state[1]", "added", None, 2)]
    assert told(deque([1]), deque([2])) == [("state[0]", "changed", 1, 2)]


def test_items_of_a_set_have_no_place() -> None:
    assert told({"s": {1, 2}}, {"s": {2, True + 2}}) == [
        ("state.s[*]", "removed", 1, None),
        ("state.s[*]", "added", None, 3),
    ]
    assert told({1}, {True})[0] == ("state[*]", "removed", 1, None)


def test_what_a_value_is_besides_its_parts_is_a_difference() -> None:
    assert told(deque([1], 3), deque([1])) == [("state", "details", {"maxlen": 3}, {"maxlen": None})]
    factories = [{"default_factory": "int"}, {"default_factory": None}]
    assert told(defaultdict(int), defaultdict(None)) == [("state", "details", *factories)]


def test_records_are_compared_by_field_at_any_depth() -> None:
    old = Record("Task", 1, {"title": "a", "parts": [Record("Part", 1, {"n": 1})]})
    new = Record(
        "Task", 2, {"title": "a", "parts": [Record("Part", 1, {"n": 2})], "due": None}, unset=("due",)
    )
    assert told(old, new) == [
        ("state", "details", {"version": 1}, {"version": 2}),
        ("state", "details", {"unset": ()}, {"unset": ("due",)}),
        ("state.due", "added", None, None),
        ("state.parts[0].n", "changed", 1, 2),
    ]
    assert told([old], [Record("Other", 1, {})])[0][:2] == ("state[0]", "changed")


@register("diffed/v1")
@dataclass
class Diffed:
    name: str
    inner: list[Any] = field(default_factory=list)


def test_an_object_and_the_record_that_it_is_read_as_are_the_same() -> None:
    """One of two processes may have registered the class."""
    value = Diffed("a", [1])
    assert told(value, Record("diffed", 1, {"name": "a", "inner": [1]})) == []
    assert told(value, Diffed("a", [2])) == [("state.inner[0]", "changed", 1, 2)]


def test_a_state_that_is_nested_as_deep_as_can_be_is_compared() -> None:
    old: Any = 1
    new: Any = 2
    for _ in range(900):
        old, new = [old], [new]
    [change] = diff(old, new)
    assert change == Change("state" + "[0]" * 900, "changed", 1, 2)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=True, width=16)
    | st.text("ab", max_size=2)
    | st.binary(max_size=1)
)
keys = st.text("ab", max_size=2) | st.integers(0, 1) | st.booleans()
states = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.tuples(inner)
        | st.sets(scalars, max_size=3)
        | st.builds(lambda x: Record("R", 1, {"x": x}), inner)
    ),
    max_leaves=8,
)


@given(states, states)
def test_it_finds_something_exactly_when_the_saved_bytes_differ(old: Any, new: Any) -> None:
    before, after = encode(old), encode(new)
    found = diff(decode(before.data), decode(after.data))
    assert (found == []) == (before.encoded_digest == after.encoded_digest)
    assert {change.kind for change in found} <= set(KINDS)
    for change in found:
        if change.kind == "removed":
            assert any(part is change.old or part == change.old for _, part in select(old, change.path)) or (
                change.old != change.old
            )
