"""A state frozen at a save: the same bytes as the state had, whatever its owner does afterwards."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

import attrs
import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgpack import ExtType

from cloudckpt.codec import decode, encode, encoding, freezing, gently, register
from cloudckpt.codec.encoding import Unsealed
from cloudckpt.codec.freezing import freeze
from cloudckpt.codec.intake import AT_ONCE, Intake
from cloudckpt.errors import InvalidInputError, SerializationError
from tests.unit.matrix import HASHABLE, ROWS

NOT_FROZEN = {"msgpack ext type", "msgpack timestamp"}
"""Rows that are packed at once instead."""


def whole(unsealed: Unsealed) -> tuple[bytes, bytes, bool, str | None, int | None]:
    value, aside = b"".join(unsealed.parts), b"".join(unsealed.aside)
    return value, aside, unsealed.marks, unsealed.schema, unsealed.schema_version


def frozen(state: Any) -> Any:
    found = freeze(state)
    assert found is not None
    return found.value


# ---- the law


@pytest.mark.parametrize("row", ROWS)
def test_what_is_frozen_has_the_bytes_of_the_state(row: str) -> None:
    for state in (ROWS[row], {"in": [ROWS[row], (ROWS[row],)]}):
        found = freeze(state)
        assert (found is None) == (row in NOT_FROZEN)
        if found is not None:
            assert whole(encoding.prepare(found.value)) == whole(encoding.prepare(state))


@pytest.mark.parametrize("row", HASHABLE)
def test_so_it_has_as_a_key_and_in_a_set(row: str) -> None:
    for state in ({HASHABLE[row]: [1]}, {HASHABLE[row], "other"}):
        found = freeze(state)
        if found is not None:
            assert whole(encoding.prepare(found.value)) == whole(encoding.prepare(state))


@pytest.mark.parametrize("row", ROWS)
def test_packed_gently_it_has_the_same_bytes(row: str) -> None:
    for state in (ROWS[row], {"in": [ROWS[row]] * 100, "far": {"down": [[ROWS[row]]]}}):
        assert whole(gently.prepare(state)) == whole(encoding.prepare(state))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=70)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=70)
        | st.tuples(inner, inner)
        | st.sets(st.integers() | st.text())
    ),
    max_leaves=200,
)


@settings(max_examples=100, deadline=None)
@given(plain, st.integers(16, 2000), st.integers(1, 80))
def test_any_plain_state_is_the_same_frozen_gently_or_at_once(state: Any, piece: int, few: int) -> None:
    before = gently._PIECE, gently._FEW
    gently._PIECE, gently._FEW = piece, few  # type: ignore[misc]
    try:
        unsealed = gently.prepare(frozen(state))
        assert whole(unsealed) == whole(encoding.prepare(state))
        sealed = unsealed.seal()
    finally:
        gently._PIECE, gently._FEW = before  # type: ignore[misc]
    assert sealed.encoded_digest == encode(state).encoded_digest
    assert encode(decode(sealed.data)).encoded_digest == sealed.encoded_digest


# ---- later changes


@register("freezing-plan")
@dataclass
class Plan:
    steps: list[Any] = field(default_factory=list)
    box: Any = None


@attrs.define
class Attrs:
    items: list[int]


class Struct(msgspec.Struct):
    items: list[int]


class Model(pydantic.BaseModel):
    items: list[int]


def changed(state: Any) -> None:
    """Change all that can be changed in a state, all the way down."""
    if isinstance(state, dict):
        for value in [*state, *state.values()]:
            changed(value)
        state["changed"] = True
    elif isinstance(state, list):
        for value in state:
            changed(value)
        state.append("changed")
    elif isinstance(state, tuple | frozenset):
        for value in state:
            changed(value)
    elif isinstance(state, set):
        state.add("changed")
    elif isinstance(state, bytearray):
        state[0] ^= 0xFF
    elif isinstance(state, np.ndarray):
        if state.flags.writeable:
            state.flat[0] += 1
    elif hasattr(state, "box"):
        changed(state.steps)
        changed(state.box)
        state.box = "changed"
    elif hasattr(state, "items"):
        state.items.append(9)


STATES: dict[str, Any] = {
    "lists": lambda: {"a": [1, [2, [3]]], "b": ([4], {"c": [5]})},
    "flat": lambda: {"a": 1, "b": "x"},
    "a list at the top": lambda: [1, "a"],
    "sets": lambda: {"s": {1, 2}, "f": frozenset({(1, 2)})},
    "bytearrays": lambda: [bytearray(b"abc"), bytearray(b"x" * (1 << 17))],
    "arrays": lambda: [np.arange(5), np.zeros((300, 300)), np.asfortranarray(np.ones((3, 4)))],
    "views of arrays": lambda: np.arange(100).reshape(10, 10)[::2, 1:3],
    "dataclasses": lambda: Plan([1, Plan([2])], {"deep": Plan([bytearray(b"z")])}),
    "others with fields": lambda: [Attrs([1]), Struct([1]), Model(items=[1])],
    "in a tuple in a dict": lambda: {"k": ([1], (2, [3]))},
}


@pytest.mark.parametrize("name", STATES)
def test_what_the_owner_changes_afterwards_is_not_in_it(name: str) -> None:
    state = STATES[name]()
    before = whole(encoding.prepare(state))
    found = frozen(state)
    changed(state)
    assert whole(encoding.prepare(state)) != before, "or the test changes nothing"
    assert whole(gently.prepare(found)) == before


def test_an_array_over_bytes_is_shared_and_a_view_that_is_only_read_is_not() -> None:
    """`writeable=False` is a promise that the owner takes back; bytes can't change for anybody."""
    over = np.frombuffer(b"\x01" * 4096, np.uint8).reshape(64, 64)
    assert frozen(over) is over
    own = np.arange(5)
    own.flags.writeable = False
    kept = frozen(own)
    own.flags.writeable = True
    own[0] = 9
    assert kept[0] == 0


def test_text_and_bytes_are_not_copied() -> None:
    """Else a save of many megabytes of them would hold its caller up."""
    text, data = "x" * 1000, b"y" * 1000
    found = frozen({"messages": [{"content": text}, Plan([data])]})
    assert found["messages"][0]["content"] is text
    assert found["messages"][1].fields["steps"][0] is data


def test_no_code_of_a_class_runs_but_what_reads_it() -> None:
    made = []

    @register("freezing-watched")
    @dataclass
    class Watched:
        n: int

        def __post_init__(self) -> None:
            made.append(self.n)

    state = [Watched(1)]
    made.clear()
    frozen(state)
    assert made == []


# ---- what is not frozen


class Zone(tzinfo):
    pass


def deep(levels: int) -> Any:
    state: Any = []
    for _ in range(levels):
        state = [state]
    return state


class Identity:
    def __init__(self, n: int) -> None:
        self.n = n


register("freezing-identity", to_fields=lambda one: {"n": one.n}, from_fields=lambda f: Identity(**f))(
    Identity
)

REFUSED: dict[str, Any] = {
    "a function": print,
    "an object without fields": object(),
    "a subclass of dict": type("Own", (dict,), {})(),
    "a stray attribute": None,
    "a strange time zone": datetime(2024, 1, 1, tzinfo=Zone()),
    "an array of objects": np.array([object()]),
    "too deep": deep(2000),
}


def _strayed() -> Plan:
    plan = Plan()
    plan.extra = 1  # type: ignore[attr-defined]
    return plan


@pytest.mark.parametrize("name", REFUSED)
def test_what_cant_be_carried_is_not_frozen_and_so_refused_at_the_call(name: str) -> None:
    bad = _strayed() if name == "a stray attribute" else REFUSED[name]
    for state in ([bad], {"a": {"b": bad}}):
        assert freeze(state) is None
        with pytest.raises(SerializationError):
            Intake().capture(state)


def test_a_cycle_ends() -> None:
    state: list[Any] = []
    state.append(state)
    assert freeze(state) is None


@pytest.mark.parametrize(
    "make", [lambda: {Identity(1): "a", Identity(1): "b"}, lambda: {Identity(1), Identity(1)}]
)
def test_keys_that_differ_by_who_they_are_do_not_become_one(make: Any) -> None:
    """As records they are equal; one of the two items would be gone."""
    state = make()
    assert freeze(state) is None
    assert Intake().capture(state)().encoded.encoded_digest == encode(state).encoded_digest


def test_views_and_values_of_msgpack_are_packed_at_once() -> None:
    data = bytearray(b"abc")
    state = {"view": memoryview(data), "ext": ExtType(1, b"x")}
    take = Intake().capture(state)
    data[0] = 0
    assert decode(take().encoded.data)["view"] == b"abc"


# ---- packing gently


def test_a_state_that_is_deeper_than_gentle_goes_is_packed_all_the_same() -> None:
    state = deep(1020)
    assert whole(gently.prepare(state)) == whole(encoding.prepare(state))
    with pytest.raises(SerializationError, match="1023 levels"):
        gently.prepare(deep(1100))


def test_large_text_bytes_and_arrays_come_in_pieces_of_their_own() -> None:
    text, data, array = "é\ud800" * 300_000, b"\xff" * 600_000, np.arange(100_000)
    state = {"a": [text, data], "b": array, "c": 1}
    unsealed = gently.prepare(state)
    assert whole(unsealed) == whole(encoding.prepare(state))
    assert any(part is data for part in unsealed.parts)
    sealed = unsealed.seal()
    found = decode(sealed.data)
    assert (found["a"], found["c"]) == ([text, data], 1)
    assert np.array_equal(found["b"], array)


def test_others_get_their_turn_between_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest stretch that keeps Python's lock is one piece, however large the state."""
    turns: list[float] = []
    monkeypatch.setattr(gently.time, "sleep", turns.append)
    gently.prepare({"messages": [{"role": "user", "content": "x" * 10_000} for _ in range(1000)]})
    assert len(turns) >= 1000 * 10_000 // gently._PIECE - 1


def test_too_large_is_told_with_both() -> None:
    for prepare in (gently.prepare, encoding.prepare):
        with pytest.raises(SerializationError) as caught:
            prepare(["x" * 100], max_bytes=50)
        assert caught.value.kind == "too-large"


# ---- the choice


def test_a_state_is_frozen_until_it_is_known_to_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for module in (encoding, gently):
        right = module.prepare
        monkeypatch.setattr(
            module,
            "prepare",
            lambda state, right=right, name=module.__name__, **options: (
                seen.append(f"{name.rpartition('.')[2]} in {threading.current_thread().name}"),
                right(state, **options),
            )[1],
        )
    intake = Intake()

    def save(state: Any) -> None:
        take = intake.capture(state)
        worker = threading.Thread(target=take, name="worker")
        worker.start()
        worker.join()

    here = threading.current_thread().name
    for size in (10, 10, AT_ONCE + 1, AT_ONCE + 1, 10, 10):
        save({"pad": "x" * size})
    assert seen == [
        "gently in worker",
        f"encoding in {here}",
        f"encoding in {here}",
        "gently in worker",
        "gently in worker",
        f"encoding in {here}",
    ]


def test_rules_apply_to_what_is_frozen() -> None:
    intake = Intake(["**.cache"], ["**.key"], max_state_bytes=10_000)
    state = {"key": "secret", "cache": [1], "kept": [2]}
    take = intake.capture(state)
    state["kept"].append(3)
    assert decode(take().encoded.data)["kept"] == [2]
    assert "cache" not in decode(take().encoded.data)
    assert b"secret" not in encode(decode(take().encoded.data)).data


def test_a_frozen_state_over_the_limit_is_refused_when_it_is_packed() -> None:
    take = Intake(max_state_bytes=100).capture({"pad": "x" * 200})
    with pytest.raises(InvalidInputError, match="max_state_bytes"):
        take()


def test_freezing_needs_no_numpy() -> None:
    """A process that never made an array must not pay for importing it."""
    code = (
        "import sys; from cloudckpt.codec.freezing import freeze; from cloudckpt.codec import gently;"
        "gently.prepare(freeze({'a': [1, {2}, (3, [4])]}).value); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_left_for_another_thread_imports_nothing() -> None:
    """A fork while another thread imports leaves the child waiting for that module, for ever."""
    code = (
        "import sys; from cloudckpt.codec.intake import Intake; intake = Intake(); new = set()\n"
        "for n in range(30):\n"
        "    take = intake.capture({'pad': 'x' * (70_000 + 2_000_000 * (n > 15) + 1000 * n), 's': {1}})\n"
        "    before = set(sys.modules); take(); new |= set(sys.modules) - before\n"
        "sys.exit(str(new or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stderr == "\n"


def test_atoms_are_what_cant_change() -> None:
    assert frozenset({type(None), bool, int, float, str, bytes}) == freezing.ATOMS
