"""The type matrix: every row comes back equal in type and value, wherever it stands in a state."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from cloudckpt.codec import decode, encode
from tests.unit.facts import facts
from tests.unit.matrix import HASHABLE, ROWS


def test_facts_tell_values_apart_that_python_calls_equal() -> None:
    """A comparison by == alone would let 1 come back as True and -0.0 as 0.0."""
    alike = [(1, True), (1, 1.0), (0.0, -0.0), ((1,), [1]), (Decimal("1.0"), Decimal("1.00")), ({1}, {True})]
    for one, other in alike:
        assert facts(one) != facts(other)
    assert facts(math.nan) == facts(math.nan)


@pytest.mark.parametrize("value", ROWS.values(), ids=ROWS.keys())
class TestEveryRow:
    def test_comes_back_as_a_state(self, value: Any) -> None:
        assert facts(decode(encode(value).data)) == facts(value)

    def test_comes_back_from_deep_inside(self, value: Any) -> None:
        state = {"plan": [(value, {"k": [value]}), {1: value}], "tail": "end"}
        assert facts(decode(encode(state).data)) == facts(state)

    def test_is_saved_again_unchanged(self, value: Any) -> None:
        data = encode(value).data
        assert encode(decode(data)).data == data


@pytest.mark.parametrize("value", HASHABLE.values(), ids=HASHABLE.keys())
class TestEveryHashableRow:
    def test_comes_back_as_a_key(self, value: Any) -> None:
        state = {"before": 1, value: "here", "after": 2}
        assert facts(decode(encode(state).data)) == facts(state)

    def test_comes_back_in_sets(self, value: Any) -> None:
        state = [{value, "other"}, frozenset({value, (value, 1)})]
        assert facts(decode(encode(state).data)) == facts(state)


def test_keys_that_look_alike_stay_apart_and_in_order() -> None:
    """JSON turns 1 into "1" and loses one of them."""
    state = {"1": "a", 1: "b", None: "c", "None": "d", (1, 2): "e", "(1, 2)": "f"}
    assert list(decode(encode(state).data).items()) == list(state.items())


def test_bytearray_and_memoryview_come_back_as_bytes() -> None:
    """The one documented change of type: msgpack writes all three alike."""
    state = [bytearray(b"ab"), memoryview(b"cd"), {"k": bytearray()}]
    assert decode(encode(state).data) == [b"ab", b"cd", {"k": b""}]
    assert facts(decode(encode(bytearray(b"ab")).data, bytearray)) == facts(bytearray(b"ab"))


def test_shared_objects_come_back_as_copies() -> None:
    inner: list[int] = []
    one, other = decode(encode([inner, inner]).data)
    assert one is not other
