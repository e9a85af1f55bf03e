"""Secrets and decoration: what a rule names is not in the bytes, and the caller's state stays as it was."""

from __future__ import annotations

import collections
import copy
import enum
import pathlib
import pickle
import re
import types
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

import cloudckpt
from cloudckpt import InvalidInputError, SerializationError
from cloudckpt.codec import Record, containers, decode, encode
from cloudckpt.codec.redaction import SHOWN, Redacted, RedactedType, Rules
from tests.unit.secretive import (
    KEY,
    SECRET,
    Attrs,
    Frozen,
    Model,
    Named,
    Plain,
    Struct,
    User,
    holds_secret,
    saved,
)


class Place(enum.StrEnum):
    HOME = SECRET


# ---- the marker


def test_the_marker_is_one_value_that_is_no_text() -> None:
    """An empty string would be taken for a key, and sent."""
    assert type(Redacted) is RedactedType
    assert Redacted is cloudckpt.Redacted
    assert repr(Redacted) == "Redacted"
    assert (Redacted or "asked for") == "asked for"
    assert Redacted not in ("", None, SHOWN, False)


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: decode(encode(x).data)],
)
def test_a_copy_of_the_marker_is_the_marker(again: Callable[[Any], Any]) -> None:
    assert again(Redacted) is Redacted
    assert again([Redacted, {"a": Redacted}, (Redacted,)]) == [Redacted, {"a": Redacted}, (Redacted,)]


def test_the_marker_is_saved_as_itself() -> None:
    """The second save must not turn it into anything else, and equal states have equal bytes."""
    state = Rules((), ["token"]).apply({"token": SECRET, "step": 1})
    again = decode(encode(state).data)
    assert again == {"token": Redacted, "step": 1}
    assert encode(Rules((), ["token"]).apply(again)).data == encode(state).data


@pytest.mark.parametrize(
    "value",
    [User("a", SECRET), Frozen(SECRET), Model(token=SECRET), Struct(SECRET), Attrs(SECRET), Named(SECRET)],
    ids=lambda value: type(value).__name__,
)
def test_a_field_typed_str_comes_back_as_the_marker(value: Any) -> None:
    """No validator, constructor or type hint of the class may stand in its way."""
    redacted = Rules((), ["**.token"]).apply(value)
    assert not holds_secret(redacted)
    again = decode(encode(redacted).data, type(value))
    assert type(again) is type(value)
    assert again.token is Redacted
    assert value.token == SECRET
    assert encode(again).data == encode(redacted).data


# ---- a regular expression reaches every text

CONTAINERS: dict[type, Any] = {
    tuple: (1, SECRET),
    set: {1, SECRET},
    frozenset: frozenset({1, SECRET}),
    range: range(3),
    slice: slice(SECRET, None),
    re.Pattern: re.compile(SECRET),
    collections.deque: collections.deque([1, SECRET], maxlen=5),
    collections.OrderedDict: collections.OrderedDict({"a": SECRET, SECRET: 1}),
    collections.Counter: collections.Counter({SECRET: 2}),
    collections.defaultdict: collections.defaultdict(list, {"a": SECRET, SECRET: []}),
    collections.ChainMap: collections.ChainMap({"a": SECRET}, {SECRET: 1}),
    types.MappingProxyType: types.MappingProxyType({"a": SECRET, SECRET: 1}),
    types.SimpleNamespace: types.SimpleNamespace(a=SECRET),
}

OTHERS: list[Any] = [
    SECRET,
    f"use {SECRET} and {SECRET}, please",
    [SECRET],
    {"a": SECRET, SECRET: SECRET, (1, SECRET): 2},
    User("a", SECRET),
    Frozen(SECRET, [{SECRET}]),
    Model(token=SECRET),
    Struct(SECRET),
    Attrs(SECRET),
    Named(SECRET),
    Plain(SECRET),
    Record("some", 3, {"token": SECRET}),
    pathlib.PurePosixPath("/a") / SECRET,
    pathlib.Path(SECRET),
    np.str_(SECRET),
    np.array(["x", SECRET]),
    np.array([(1, SECRET)], dtype=[("a", int), ("b", "U40")]),
]


@pytest.mark.parametrize("value", [*CONTAINERS.values(), *OTHERS], ids=lambda value: type(value).__name__)
def test_what_a_pattern_matches_is_nowhere_in_the_bytes(value: Any) -> None:
    """A kind that the walk passes by is a secret in the store."""
    for state in (value, {"deep": [(value, [value])]}):
        assert holds_secret(state) or type(value) is range
        assert not holds_secret(Rules((), [KEY]).apply(state))
        assert holds_secret(state) or type(value) is range


def test_every_kind_of_container_is_walked() -> None:
    """A kind that is added to the codec must be added to the walk, or its content is not redacted."""
    assert CONTAINERS.keys() == containers.CONTAINERS.keys()


def test_a_private_value_of_a_model_and_an_unknown_field_are_redacted() -> None:
    """Both are saved, though neither is among the class's fields."""
    model = Model(token="x")
    model._private = SECRET
    newer = decode(encode(Record("User", 1, {"name": "a", "added": SECRET})).data, User)
    for value in (model, newer):
        assert holds_secret(value)
        assert not holds_secret(Rules((), [KEY]).apply(value))


def test_only_the_match_is_replaced_in_a_text() -> None:
    """The rest of a message is the state that decides the next step."""
    assert saved(f"curl -H 'key: {SECRET}' x", KEY) == "curl -H 'key: [redacted]' x"
    assert saved({"a": [f"{SECRET}!"]}, KEY) == {"a": ["[redacted]!"]}
    assert saved(b"key: secret", re.compile(rb"s\w+")) == b"key: [redacted]"


def test_what_can_have_no_gap_is_replaced_whole() -> None:
    assert saved([pathlib.PurePosixPath(SECRET, "a"), re.compile(SECRET)], KEY) == [
        Redacted,
        Redacted,
    ]
    assert saved([np.array(["a", SECRET]), np.arange(2).tolist()], KEY) == [Redacted, [0, 1]]


def test_a_pattern_of_bytes_reaches_bytes_and_one_of_str_does_not() -> None:
    """A pattern of text that is tried on an image would change what it happens to match there."""
    secret = SECRET.encode()
    values = [secret, bytearray(secret), msgpack.ExtType(5, secret), memoryview(secret)]
    kept = saved(values, KEY)
    assert kept[:2] == [secret, secret]
    gone = Rules((), [re.compile(rb"sk-\w+")]).apply(values)
    assert not holds_secret(gone)
    assert gone == [b"[redacted]", bytearray(b"[redacted]"), Redacted, b"[redacted]"]
    assert [type(each) for each in gone[:2]] == [bytes, bytearray]


def test_keys_that_become_alike_stay_apart() -> None:
    """Usage by API key: as one item, all but one would be lost without a word."""
    state = {SECRET: 1, f"{SECRET}b": 2, "[redacted]": 3, f"{SECRET}c": 4}
    assert saved(state, KEY) == {
        "[redacted] (2)": 1,
        "[redacted] (3)": 2,
        "[redacted]": 3,
        "[redacted] (4)": 4,
    }


def test_keys_that_can_t_be_kept_apart_are_an_error() -> None:
    with pytest.raises(InvalidInputError, match="two keys"):
        Rules((), [KEY]).apply({(SECRET, 1): 1, (f"{SECRET}b", 1): 2})


def test_a_name_of_code_is_no_text() -> None:
    """A member of an enum is saved by its name, and the value is not in the bytes."""
    assert Rules((), [KEY]).apply([Place.HOME])[0] is Place.HOME
    assert not holds_secret(Place.HOME)
    assert Rules((), ["**.name", "**.value"]).apply([Place.HOME]) == [Place.HOME]


@pytest.mark.parametrize("expression", ["x*", "", "a|", r"\b"])
def test_an_expression_that_matches_nothing_at_all_is_refused(expression: str) -> None:
    """It would put the mark between any two characters."""
    if expression == r"\b":  # needs a character beside it
        assert Rules((), [re.compile(expression)]).apply("") == ""
        return
    with pytest.raises(InvalidInputError, match="empty text"):
        Rules((), [re.compile(expression)])


@pytest.mark.parametrize("rules", ["a", b"a", 5, None, KEY, [5], [None], [b"a"]])
def test_rules_are_a_list_of_paths_and_expressions(rules: Any) -> None:
    """A str is a list of letters too: each would be a rule."""
    with pytest.raises(InvalidInputError):
        Rules((), rules)
    with pytest.raises(InvalidInputError):
        Rules(rules)


# ---- what is not touched


def test_what_no_rule_touches_is_the_callers_own() -> None:
    """A copy of a large state for one field of it costs time and memory at each save."""
    big, user = [list(range(10)) for _ in range(10)], User("a", "t")
    state = {"big": big, "user": user, "s": "text", "set": {1}, "deque": collections.deque("ab")}
    assert Rules().apply(state) is state
    assert Rules(["nowhere"], ["**.never", KEY]).apply(state) is state
    touched = Rules((), ["user.token"]).apply(state)
    assert touched["big"] is big
    assert touched["user"] == Record(User.__qualname__, 1, {"name": "a", "token": Redacted, "image": b""})
    assert state["user"] is user
    assert user.token == "t"


def test_without_rules_nothing_is_looked_at() -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    state = Untouchable()
    assert Rules().apply(state) is state
    assert Rules(["a.b"]).apply({"b": state})["b"] is state


def test_equal_states_have_equal_bytes_when_redacted() -> None:
    one, other = ({f"{SECRET}{n}": {n, SECRET, f"{SECRET}x"} for n in range(5)} for _ in range(2))
    rules = Rules((), [KEY])
    assert encode(rules.apply(one)).data == encode(rules.apply(other)).data


# ---- states that can't be carried


def test_a_fault_is_named_as_without_rules() -> None:
    for state in ({"a": [lambda: 0]}, {"a": object()}, [User("a", open)], {"k": {1: {2: threading_lock()}}}):
        with pytest.raises(SerializationError) as plain:
            encode(state)
        with pytest.raises(SerializationError) as ruled:
            encode(Rules((), ["**.zzz", KEY]).apply(state))
        assert ruled.value.paths == plain.value.paths


def threading_lock() -> Any:
    import threading

    return threading.Lock()


def test_a_stray_attribute_is_refused_and_not_dropped() -> None:
    """The record that stands for a touched object would not have it."""
    user = User("a", SECRET)
    user.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(SerializationError, match=r"state\.extra"):
        encode(Rules((), ["token", KEY]).apply(user))


def test_a_cycle_ends_with_its_path() -> None:
    state: dict[str, Any] = {"a": []}
    state["a"].append(state)
    with pytest.raises(SerializationError, match=r"state\.a\[0\]: leads back to state"):
        Rules((), [KEY]).apply(state)


def test_a_state_too_deep_for_the_walk_says_so() -> None:
    state: Any = SECRET
    for _ in range(1000):
        state = [state]
    encode(state)
    with pytest.raises(SerializationError, match="too deep"):
        Rules((), [KEY]).apply(state)


# ---- beside the state


def test_metadata_and_tags_are_redacted_too() -> None:
    """They are in the manifest, which more people may read than the payloads."""
    rules = Rules(["a"], ["**.token", KEY])
    metadata = {"a": SECRET, "b": [{"token": 1, SECRET: f"x {SECRET}"}]}
    assert rules.metadata(metadata) == {
        "a": "[redacted]",
        "b": [{"token": "[redacted]", "[redacted]": "x [redacted]"}],
    }
    assert rules.tags((SECRET, "best", f"{SECRET}2")) == ("[redacted]", "best")
    assert metadata["a"] == SECRET
