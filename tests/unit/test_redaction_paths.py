"""Which parts of a state the path of a rule means, and what is no path."""

from __future__ import annotations

import collections
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cloudckpt
from cloudckpt import InvalidInputError
from cloudckpt.codec import Record, decode, encode, paths
from cloudckpt.codec.redaction import Redacted, Rules
from tests.unit.secretive import SECRET, Attrs, Frozen, Model, Named, Plain, Struct, User, holds_secret

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
