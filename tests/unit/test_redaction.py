"""Secrets and decoration: what a rule names is not in the bytes, and the caller's state stays as it was."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import pathlib
import pickle
import re
import types
import typing
from collections.abc import Callable
from typing import Any

import attrs
import msgpack
import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cloudckpt
from cloudckpt import InvalidInputError, SerializationError
from cloudckpt.codec import Record, containers, decode, encode, frame, paths, register
from cloudckpt.codec.redaction import SHOWN, Redacted, RedactedType, Rules

SECRET = "sk-abcdefghij0123456789"
KEY = re.compile(r"sk-[A-Za-z0-9]{20,}")


@dataclasses.dataclass
class User:
    name: str
    token: str = ""
    image: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    token: str
    rest: list[Any] = dataclasses.field(default_factory=list)


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, strict=True)
    token: str
    count: int = 0
    _private: str = pydantic.PrivateAttr(default="")


class Struct(msgspec.Struct, frozen=True):
    token: str
    note: str | msgspec.UnsetType = msgspec.UNSET


@attrs.frozen
class Attrs:
    token: str = attrs.field(validator=attrs.validators.instance_of(str))
    note: str = ""


class Named(typing.NamedTuple):
    token: str
    note: str = ""


class Place(enum.StrEnum):
    HOME = SECRET


class Plain:
    def __init__(self, token: str) -> None:
        self.token = token


register("test-redaction-plain", to_fields=lambda p: {"token": p.token}, from_fields=lambda f: Plain(**f))(
    Plain
)


def packed(state: object) -> bytes:
    """Return the bytes of a state before compression."""
    return frame.unseal(encode(state).data, max_bytes=1 << 30)[0]


def holds_secret(state: object) -> bool:
    found = packed(state)
    return any(SECRET.encode(each) in found for each in ("utf-8", "utf-16-le", "utf-32-le"))


def saved(state: Any, *redact: Any, exclude: tuple[str, ...] = ()) -> Any:
    """Return what comes back of a state; the state itself stays as it was."""
    before = packed(state)
    returned = decode(encode(Rules(exclude, redact).apply(state)).data)
    assert packed(state) == before
    return returned


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


# ---- paths

STATE: dict[str, Any] = {
    "messages": [{"text": "a", "image": b"1"}, {"text": "b", "image": b"2"}],
    "user": {"token": "t", "token_2": "u", "token_2b": "v", "two words": "w"},
    "by_key": {1: "one", "1": "str", None: "none", (1, 2): "pair"},
    "state": {"token": "s"},
    "set": [{"only"}],
}


@pytest.mark.parametrize(
    ("path", "hits"),
    [
        ("messages[0].image", [b"1"]),
        ("state.messages[0].image", [b"1"]),
        ("messages[*].image", [b"1", b"2"]),
        ("messages.*.image", [b"1", b"2"]),
        ("**.image", [b"1", b"2"]),
        ("**[1].image", [b"2"]),
        ("messages.**.text", ["a", "b"]),
        ("**.messages[1].text", ["b"]),
        ("**.token", ["t", "s"]),
        ("user.token", ["t"]),
        ("user.token*", ["t", "u", "v"]),
        ("user.*_2", ["u"]),
        ("user.tok*2", ["u"]),
        ("user['two words']", ["w"]),
        ("by_key[1]", ["one"]),
        ("by_key['1']", ["str"]),
        ("by_key[None]", ["none"]),
        ("by_key[(1, 2)]", ["pair"]),
        ("state.state.token", ["s"]),
        ("*.token", ["t", "s"]),
        ("*['token']", ["t", "s"]),
        ("**.**.token", ["t", "s"]),
        ("**.**.user.token", ["t"]),
        ("set[0][*]", ["only"]),
        ("set[0][0]", []),
        ("messages[2].image", []),
        ("messages.image", []),
        ("image", []),
        ("**.Token", []),
        ("user.toke", []),
        ("by_key[True]", []),
    ],
)
def test_a_path_means_these_parts_and_no_others(path: str, hits: list[Any]) -> None:
    """One that means less leaves a secret in; one that means more takes the state away."""
    kept = sorted(map(repr, leaves(STATE)))
    left = leaves(Rules((), [path]).apply(STATE))
    assert left.count(Redacted) == len(hits)
    assert sorted(map(repr, [each for each in left if each is not Redacted] + hits)) == kept


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list | set) else [value]


def test_what_is_left_of_a_pattern_does_not_multiply() -> None:
    """Two times any depth over a state that a model nests: each level would double the work."""
    left = (paths.parse("**.a.**.a.**.a.b"),)
    for _ in range(100):
        left = paths.below(left, "a")
    assert len(left) <= 4


def test_a_path_goes_through_every_kind_of_part() -> None:
    inner = {"token": SECRET}
    state = {
        "a": (inner,),
        "b": collections.deque([inner], maxlen=2),
        "c": collections.ChainMap(inner),
        "d": types.MappingProxyType(inner),
        "e": types.SimpleNamespace(token=SECRET),
        "f": [User("a", SECRET), Frozen("x", [inner]), Model(token=SECRET), Struct(SECRET), Attrs(SECRET)],
        "g": Named(SECRET),
        "h": Record("tag", 2, inner),
        "i": {frozenset({Named("n")}): inner},
        "j": {Named(SECRET)},
        "k": Plain(SECRET),
        "l": collections.defaultdict(list, inner),
    }
    redacted = Rules((), ["**.token"]).apply(state)
    assert not holds_secret(redacted)
    again = decode(encode(redacted).data, dict[str, Any])
    assert again["b"].maxlen == 2
    assert again["l"].default_factory is list
    assert again["e"] == types.SimpleNamespace(token=Redacted)
    assert isinstance(again["k"], Plain)
    assert again["k"].token is Redacted


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "state",
        "state.",
        "a.",
        ".a",
        "a..b",
        "a[",
        "a[]",
        "a]",
        "a[1",
        "a[x]",
        "a[f()]",
        "a[-1]",
        "**",
        "a.**",
        "a[1]b",
        "['a'",
        "a[1 2]",
        "a[*",
        "a['x]",
    ],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    """A rule that can never hit is a secret in the store."""
    with pytest.raises(InvalidInputError):
        Rules((), [path])


@given(st.text())
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        paths.parse(text)
    except InvalidInputError:
        return
    Rules([text], [text])


@given(st.lists(st.text(min_size=1) | st.integers(0, 9) | st.booleans() | st.none(), min_size=1, max_size=4))
def test_the_paths_that_are_shown_are_patterns_of_just_that_part(keys: list[Any]) -> None:
    """A path from `measure` or from an error can be pasted into a rule."""
    state: Any = "leaf"
    for key in reversed(keys):
        state = {key: state, "beside": "kept"} if key != "beside" else {key: state}
    path = max(every_path(cloudckpt.measure(state)), key=lambda path: path.count("[") + path.count("."))
    if "..." in path:
        return
    left = leaves(Rules((), [path]).apply(state))
    assert left.count(Redacted) == 1


def every_path(size: cloudckpt.Size) -> list[str]:
    return [size.path, *(path for child in size.children for path in every_path(child))]


@pytest.mark.parametrize("rules", ["a", b"a", 5, None, KEY, [5], [None], [b"a"]])
def test_rules_are_a_list_of_paths_and_expressions(rules: Any) -> None:
    """A str is a list of letters too: each would be a rule."""
    with pytest.raises(InvalidInputError):
        Rules((), rules)
    with pytest.raises(InvalidInputError):
        Rules(rules)


def test_an_expression_excludes_nothing() -> None:
    with pytest.raises(InvalidInputError, match="a rule is a path"):
        Rules([KEY])  # type: ignore[list-item]


# ---- exclude


def test_an_excluded_field_comes_back_as_its_default_and_an_item_absent() -> None:
    state = {"user": User("a", "t", b"image"), "cache": [1], "plan": {"cache": 2, "go": 3}}
    rules = Rules(["**.cache", "user.image"])
    again = decode(encode(rules.apply(state)).data, dict[str, Any])
    assert again["plan"] == {"go": 3}
    assert again.keys() == {"user", "plan"}
    user = decode(encode(rules.apply(state)["user"]).data, User)
    assert user == User("a", "t", b"")
    assert state["user"].image == b"image"  # type: ignore[union-attr]


def test_excluding_by_rule_and_by_class_give_the_same_bytes() -> None:
    Marked = dataclasses.make_dataclass(
        "Twice", [("a", int), ("b", int, dataclasses.field(default=0, metadata={"cloudckpt": "exclude"}))]
    )
    Bare = dataclasses.make_dataclass("Twice", [("a", int), ("b", int, 0)])
    assert encode(Rules(["b"]).apply(Bare(1, 2))).data == encode(Marked(1, 2)).data


def test_an_excluded_field_of_a_model_is_not_set() -> None:
    """The library tells a default from a value that was given."""
    again = decode(encode(Rules(["count"]).apply(Model(token="t", count=3))).data, Model)
    assert (again.count, again.model_fields_set) == (0, {"token"})
    assert Rules(["count"]).apply(Model(token="t")).unset == ()
    again = decode(encode(Rules((), ["token"]).apply(Model(token="t"))).data, Model)
    assert again.model_fields_set == {"token"}


def test_exclude_goes_before_redact() -> None:
    assert saved({"a": 1, "b": 2}, "a", exclude=("a",)) == {"b": 2}


@pytest.mark.parametrize(
    ("state", "path"),
    [
        (User("a"), "name"),
        (Model(token="x"), "token"),
        (Struct("x"), "token"),
        (Attrs("x"), "token"),
        (Named("x"), "note"),
        ([1, 2], "[0]"),
        ({"a": (1,)}, "a[*]"),
        ({"a": {1}}, "a[*]"),
        (collections.deque([1]), "[*]"),
        (collections.ChainMap({}), "[0]"),
    ],
)
def test_what_would_be_missed_can_t_be_excluded(state: Any, path: str) -> None:
    """The load would fail, weeks later; or the items behind it would move up."""
    with pytest.raises(InvalidInputError) as caught:
        Rules([path]).apply(state)
    assert caught.value.kind == "not-excludable"
    assert caught.value.facts["exclude"] == path


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
