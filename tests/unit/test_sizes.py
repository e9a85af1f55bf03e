"""`measure`: the sizes are those of a save, the fattest part is seen first, and the work is bounded."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import os
import pickle
import threading
import time
import types
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cloudckpt
from cloudckpt import Record, SerializationError, Size, measure
from cloudckpt.codec import encode
from cloudckpt.codec.intake import LEAST, SAVES, Growth
from cloudckpt.codec.sizes import sizes_by_path


@dataclasses.dataclass
class Message:
    text: str
    image: bytes | None = None


class Model(pydantic.BaseModel):
    message: Message
    _cache: bytes = pydantic.PrivateAttr(default=b"")


class Struct(msgspec.Struct):
    message: Message


class Pair(NamedTuple):
    left: str
    right: Any


class Kind(enum.Enum):
    BIG = 1


def parts(size: Size) -> dict[str, Size]:
    """Return every part of a tree by its path."""
    found, pending = {}, [size]
    while pending:
        part = pending.pop()
        found[part.path] = part
        pending.extend(part.children)
    return found


BIG = os.urandom(3000)


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"a": [1, {"b c": BIG}]}, "state.a[1]['b c']"),
        (Message("x", BIG), "state.image"),
        (Model(message=Message("x", BIG)), "state.message.image"),
        (Struct(Message("x", BIG)), "state.message.image"),
        (Pair("x", [BIG]), "state.right[0]"),
        (Record("tag", 2, {"a": BIG}), "state.a"),
        ((1, BIG), "state[1]"),
        ({BIG, 1, 2}, None),
        (frozenset({(BIG,)}), "state[0][0]"),
        (collections.deque([1, BIG], maxlen=9), "state[1]"),
        (collections.OrderedDict(a=BIG), "state.a"),
        (collections.Counter({BIG: 1}), "state (key 0)"),
        (collections.defaultdict(list, {3: [BIG]}), "state[3][0]"),
        (collections.ChainMap({"a": BIG}), "state[0].a"),
        (types.MappingProxyType({"a": BIG}), "state.a"),
        (types.SimpleNamespace(a=BIG), "state.a"),
        ({(1, BIG): Kind.BIG}, "state (key 0)[1]"),
        ([np.frombuffer(BIG, np.uint8), np.float32(1)], "state[0]"),
        ([Decimal(2), 2**9000, 1j, ..., BIG], "state[4]"),
        (BIG, "state"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_fattest_part_of_every_kind_is_found(state: Any, path: str | None) -> None:
    """A kind that the tree does not go into hides what makes it large."""
    size = measure(state)
    encoded = encode(state)
    assert (size.encoded, size.compressed) == (encoded.encoded_size, len(encoded.data))
    assert (size.path, size.share) == ("state", 1.0)
    found = parts(size)
    if path is not None:
        assert found[path].encoded > len(BIG)
        assert not [part for part in found.values() if len(part.path) > len(path) and part.encoded > 2000]


def test_an_image_that_is_nearly_all_of_a_state_is_seen() -> None:
    """What the whole is for: the user looks at three lines and knows what to leave out."""
    state = {"task": "x", "messages": [Message("text " * 20) for _ in range(6)]}
    state["messages"][4].image = os.urandom(30_000)  # type: ignore[attr-defined]
    shown = str(measure(state)).splitlines()
    fattest = next(line for line in shown if "state.messages[4].image: bytes" in line)
    assert fattest.split()[0] == f"{30_003 / encode(state).encoded_size:.1%}"
    assert "29.3 KiB" in fattest
    assert shown.index(fattest) < 5


def test_parts_are_fattest_first_and_no_more_than_the_whole() -> None:
    size = measure({"small": "x" * 10, "large": "y" * 1000, "middle": ["z" * 50, "w" * 60]})
    assert [part.path for part in size.children] == ["state.large", "state.middle", "state.small"]
    assert [part.path for part in size.children[1].children] == ["state.middle[1]", "state.middle[0]"]
    for part in parts(size).values():
        assert sum(child.encoded for child in part.children) < part.encoded or not part.children
        assert part.share == part.encoded / size.encoded


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
        | st.builds(Pair, st.text(max_size=3), inner)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_any_state_is_measured_as_it_is_saved(state: Any) -> None:
    size, encoded = measure(state), encode(state)
    assert (size.encoded, size.compressed) == (encoded.encoded_size, len(encoded.data))
    assert sizes_by_path(state, levels=16) == {part.path: part.encoded for part in parts(size).values()}
    assert str(size)


def test_what_can_t_be_carried_is_the_same_error_as_in_a_save() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    for state in ({"a": [threading.Lock(), open]}, cycle):
        with pytest.raises(SerializationError) as saved:
            encode(state)
        with pytest.raises(SerializationError) as measured:
            measure(state)
        assert (measured.value.paths, str(measured.value)) == (saved.value.paths, str(saved.value))


def test_what_one_value_is_made_of_is_no_part() -> None:
    """The shape of an array, the name of a member: nobody's state."""
    size = measure({"kind": Kind.BIG, "array": np.zeros(3), "range": range(9), "word": "x"})
    assert not [part for child in size.children for part in child.children]
    assert [child.type for child in size.children if child.path == "state.kind"] == ["Kind"]


def test_patterns_count_once_each() -> None:
    """A bound on a whole state must not be used up by looking at its parts one by one."""
    import re

    state = {"a": {"b": {"c": [re.compile("x" * 4000 + str(n)) for n in range(7)]}}}
    assert measure(state).encoded == encode(state).encoded_size


def test_the_work_and_the_tree_are_bounded() -> None:
    """Packed anew for each of a thousand levels, a megabyte would take minutes."""
    deep: Any = os.urandom(1_000_000)
    for _ in range(900):
        deep = [deep]
    wide = {"rows": [{"n": n, "text": str(n)} for n in range(20_000)]}
    for state in (deep, wide):
        begin = time.perf_counter()
        size = measure(state)
        assert time.perf_counter() - begin < 10
        assert len(parts(size)) < 100
        assert size.encoded == encode(state).encoded_size


# ---- shown


def test_what_is_shown_is_bounded() -> None:
    size = measure({f"part{n}": ["x" * 300, "y" * 10] for n in range(300)})
    shown = size.render(limit=5)
    assert len(shown.splitlines()) == 1 + 5 + 1
    assert max(map(len, str(measure({"x" * 500: [1]})).splitlines())) < 140
    assert shown.splitlines()[-1] == f"and {1 + 300 - 5} smaller parts"
    assert len(str(size).splitlines()) == 14
    assert size.render(limit=10_000).count("\n") == 1 + 300


def test_a_part_is_shown_below_what_it_is_in() -> None:
    size = measure({"b": {"z": "3" * 100, "v": "5" * 50}, "a": {"x": "1" * 90, "y": "2" * 101}, "c": "4"})
    shown = [line.split("  ")[-1].split(": ")[0] for line in size.render(limit=6).splitlines()[1:7]]
    assert shown == ["state", "state.a", "state.a.y", "state.a.x", "state.b", "state.b.z"]


def test_a_part_that_is_all_of_another_stands_for_it() -> None:
    """A line for each of the four levels above an image would push everything else out of sight."""
    size = measure({"a": [{"b": {"c": BIG, "d": 1}}], "e": [BIG[:1000], BIG[:1500]]})
    shown = [line.split("  ")[-1].split(": ")[0] for line in str(size).splitlines()[1:]]
    assert shown == ["state", "state.a[0].b.c", "state.e", "state.e[1]", "state.e[0]"]


def test_sizes_read_as_people_say_them() -> None:
    said = {
        1: "1 B",
        1023: "1023 B",
        1024: "1.0 KiB",
        1536: "1.5 KiB",
        1 << 20: "1.0 MiB",
        3 << 30: "3,072.0 MiB",
    }
    for count, text in said.items():
        assert f" {text} " in str(Size("state", "str", count, 1, 1.0))
        assert f" {text}  state: str" in str(Size("state", "str", 1, count, 1.0))


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_a_tree_crosses_a_process(again: Any) -> None:
    size = measure({"a": [1, 2, "x" * 99]})
    assert again(size) == size
    assert dataclasses.asdict(size)["children"][0]["path"] == "state.a"
    with pytest.raises(dataclasses.FrozenInstanceError):
        size.encoded = 1  # type: ignore[misc]


def test_it_is_found_at_the_top() -> None:
    assert cloudckpt.measure is measure
    assert cloudckpt.Size is Size


# ---- growth


def grown(*sizes: int) -> list[str]:
    """Return the warnings about states of these sizes."""
    growth = Growth()
    states = ({"log": b"x" * size, "step": 1} for size in sizes)
    said = (growth.note(state, encode(state).encoded_size) for state in states)
    return [warning for warning in said if warning is not None]


def test_a_steady_growth_is_said_once_with_its_amount_and_place() -> None:
    sizes = [LEAST + 1000 * n for n in range(60)]
    (warning,) = grown(*sizes)
    assert "grew at each of its last 20 saves, by about 1,000 bytes, to 85,5" in warning
    assert "most of that is state.log:" in warning


def test_a_growth_is_steady_when_single_steps_differ_but_quarters_do_not() -> None:
    """A message is long or short: a transcript that must not grow by equal steps to be noticed."""
    sizes = [LEAST + sum((50, 4000, 100, 2500, 700)[n % 5] for n in range(k)) for k in range(40)]
    assert len(grown(*sizes)) == 1


@pytest.mark.parametrize(
    "sizes",
    [
        [LEAST + 1000 * n for n in range(SAVES)],
        [LEAST // 2 + 1000 * n for n in range(SAVES + 1)],
        [LEAST] * 60,
        [LEAST + 1000 * (n % 19) for n in range(100)],
        [LEAST + 1000 * n - 40_000 * (n // 15) for n in range(100)],
        [LEAST + 2**n for n in range(22)],
        [LEAST + 100_000 * (n >= 30) + n for n in range(60)][20:45],
    ],
    ids=["too few", "too small", "still", "compacted", "compacted slowly", "faster and faster", "one leap"],
)
def test_another_growth_is_not_said(sizes: list[int]) -> None:
    """A warning about a state that is as it should be teaches to overlook warnings."""
    assert grown(*sizes) == []


def test_a_row_begins_again_after_a_smaller_state() -> None:
    first = [LEAST + 1000 * n for n in range(SAVES)]
    assert grown(*first, LEAST) == []
    assert grown(*first, LEAST, *first) == []
    assert len(grown(*first, LEAST, *first, first[-1] + 1000, first[-1] + 2000)) == 1


def test_the_part_that_grows_is_named_and_not_the_largest() -> None:
    """The fattest part of a state may be the one that never changes."""
    growth, messages = Growth(), []
    warnings = []
    for step in range(30):
        messages.append({"role": "user", "content": "x" * 800})
        state = {"image": b"i" * 200_000, "chat": {"messages": messages}, "step": step}
        warnings.append(growth.note(state, encode(state).encoded_size))
    (warning,) = filter(None, warnings)
    assert "most of that is state.chat.messages:" in warning
