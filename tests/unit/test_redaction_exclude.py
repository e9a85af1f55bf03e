"""What a rule leaves out of a state: it comes back as its default or not at all, or can't be left out."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import pytest

from cloudckpt import InvalidInputError
from cloudckpt.codec import decode, encode
from cloudckpt.codec.redaction import Rules
from tests.unit.secretive import KEY, Attrs, Model, Named, Struct, User, saved


def test_an_expression_excludes_nothing() -> None:
    with pytest.raises(InvalidInputError, match="a rule is a path"):
        Rules([KEY])  # type: ignore[list-item]


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
