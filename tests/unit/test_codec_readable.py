"""States as JSON that people read, and parts of states by path."""

from __future__ import annotations

import json
import math
import re
import types
from collections import ChainMap, Counter, OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pytest

from cloudckpt.codec import Record, register
from cloudckpt.codec.readable import readable
from cloudckpt.codec.views import select
from cloudckpt.errors import InvalidInputError


class Colour(Enum):
    RED = "r"


@register("readable/v3")
@dataclass
class Known:
    name: str


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**80, 2**80),
        (1.5, 1.5),
        ("\ud800é", "\ud800é"),
        ([1, [2]], [1, [2]]),
        ({"a": {"b": 1}}, {"a": {"b": 1}}),
        (math.nan, {"$float": "nan"}),
        (-math.inf, {"$float": "-inf"}),
        (b"hi", {"$bytes": "aGk="}),
        ((1, "a"), {"$tuple": [1, "a"]}),
        ({3, 1, 2}, {"$set": [1, 2, 3]}),
        (frozenset({"a"}), {"$frozenset": ["a"]}),
        (deque([1]), {"$deque": [1]}),
        (ChainMap({"a": 1}), {"$ChainMap": [{"a": 1}]}),
        ({1: "x", "a": 2}, {"$dict": [[1, "x"], ["a", 2]]}),
        ({"$bytes": "aGk="}, {"$dict": [["$bytes", "aGk="]]}),
        (OrderedDict(a=1), {"$OrderedDict": {"a": 1}}),
        (Counter("aa"), {"$Counter": {"a": 2}}),
        (types.SimpleNamespace(a=1), {"$SimpleNamespace": {"a": 1}}),
        (datetime(2026, 1, 2, tzinfo=UTC), {"$datetime": "2026-01-02T00:00:00+00:00"}),
        (date(2026, 1, 2), {"$date": "2026-01-02"}),
        (Decimal("1.0"), {"$Decimal": "1.0"}),
        (range(3), {"$range": "range(0, 3)"}),
        (re.compile("a"), {"$Pattern": "re.compile('a')"}),
        (Colour.RED, {"$Colour": "RED"}),
        (Record("Task", 2, {"a": (1,)}), {"$record": "Task/2", "a": {"$tuple": [1]}}),
        (Record("T", 1, {"a": 1}, unset=("a",)), {"$record": "T/1", "a": 1, "$unset": ["a"]}),
        (Record("T", 1, {"$x": 1}), {"$record": "T/1", "$fields": [["$x", 1]]}),
        (Known("n"), {"$record": "readable/3", "name": "n"}),
        (np.zeros((1, 2)), {"$ndarray": [[0.0, 0.0]], "dtype": "<f8", "shape": [1, 2]}),
        (np.array([math.nan]), {"$ndarray": [{"$float": "nan"}], "dtype": "<f8", "shape": [1]}),
        (np.int8(3), {"$int8": 3, "dtype": "|i1"}),
    ],
)
def test_what_json_has_no_type_for_says_what_it_is(value: Any, shown: Any) -> None:
    assert readable(value) == shown
    assert type(readable(value)) is type(shown)
    json.dumps(readable({"x": [value]}), allow_nan=False)


def test_nothing_of_the_users_passes_for_ours() -> None:
    """A dict that looks like our form of bytes is not shown as bytes."""
    assert readable({"$bytes": "aGk="}) != readable(b"hi")
    assert readable({"$dict": []}) != readable({1: 1})


STATE = Record("S", 1, {"messages": [{"role": "u", "two words": 1}, {"role": "a"}], "seen": {7}, 3: None})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("state", [("state", STATE)]),
        ("messages[1].role", [("state.messages[1].role", "a")]),
        ("state.messages[*].role", [("state.messages[0].role", "u"), ("state.messages[1].role", "a")]),
        ("**.role", [("state.messages[0].role", "u"), ("state.messages[1].role", "a")]),
        ("messages[0]['two words']", [("state.messages[0]['two words']", 1)]),
        ("seen[*]", [("state.seen[*]", 7)]),
        ("messages[2]", []),
        ("nowhere.at.all", []),
    ],
)
def test_a_path_selects_the_parts_that_it_means(path: str, found: list[tuple[str, Any]]) -> None:
    assert list(select(STATE, path)) == found


def test_a_path_that_was_selected_selects_its_part_again() -> None:
    for path, part in select(STATE, "**.role"):
        assert list(select(STATE, path)) == [(path, part)]


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not a path"):
        list(select(STATE, "messages["))
