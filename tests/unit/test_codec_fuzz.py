"""Any bytes at all give a value or a `DataError`, and any state is saved again unchanged after a load."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import msgpack
from hypothesis import example, given
from hypothesis import strategies as st

from cloudckpt.codec import decode, encode, frame, wire
from cloudckpt.errors import DataError
from tests.unit.fuzzing import FUZZ
from tests.unit.matrix import ROWS
from tests.unit.payloads import FRAME, sealed


@dataclasses.dataclass
class Typed:
    a: int
    b: list[Typed] | None = None


def value_or_data_error(data: bytes) -> None:
    """The law; and what was decoded can be encoded again, or is refused as any state is."""
    for hint in (None, Typed):
        try:
            value = decode(data, hint, max_bytes=1 << 24)
        except DataError:
            continue
        assert not isinstance(value, wire.Mark)


SEEDS = [encode(value).data for value in ROWS.values()]
PACKED = [frame.unseal(data, max_bytes=1 << 24)[0] for data in SEEDS]


@FUZZ
@given(st.binary(max_size=200))
@example(b"ckpt")
def test_any_bytes_give_a_value_or_a_data_error(data: bytes) -> None:
    value_or_data_error(data)
    value_or_data_error(FRAME + data)
    value_or_data_error(sealed(data))


@FUZZ
@given(st.data())
def test_any_damage_of_real_payloads_gives_a_value_or_a_data_error(data: st.DataObject) -> None:
    value_or_data_error(damaged(data, data.draw(st.sampled_from(SEEDS))))


@FUZZ
@given(st.data())
def test_any_damage_below_the_checksum_gives_a_value_or_a_data_error(data: st.DataObject) -> None:
    """Whoever can write to the store can make the checksum right."""
    packed = damaged(data, data.draw(st.sampled_from(PACKED)))
    value_or_data_error(sealed(packed))
    value_or_data_error(frame.seal(packed[:1], packed[1:], marks=True))  # says that arrays lie behind a value


def damaged(data: st.DataObject, seed: bytes) -> bytes:
    at = data.draw(st.integers(0, len(seed)))
    length = data.draw(st.integers(0, 8))
    other = data.draw(st.one_of(st.binary(max_size=12), st.sampled_from(PACKED)))
    return seed[:at] + other + seed[at + length :]


def payloads() -> st.SearchStrategy[Any]:
    """Values of msgpack as an attacker builds them: our extensions with any content, anywhere."""
    codes = st.integers(-18, 2)
    bad_ext = st.builds(lambda code, data: msgpack.ExtType._make((code, data)), codes, st.binary(max_size=20))
    marks = st.integers(0, 18).map(lambda kind: msgpack.ExtType._make((wire.MARK, bytes([kind]))))
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=9),
    )
    words = st.sampled_from(
        ["<f8", "|V0", "C", "F", "list", "names", "formats", "offsets", "itemsize", "aligned", "U"]
    )
    leaf = st.one_of(plain, words, bad_ext)

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        items = st.lists(inner, max_size=5)
        record = st.builds(
            lambda tag, version, fields: [msgpack.ExtType._make((wire.MARK, b"\x04")), tag, version, fields],
            st.sampled_from(
                ["Typed", "matrix-model", "matrix-point", "matrix-enum", "matrix-flag", "matrix-struct"]
            ),
            st.integers(0, 4),
            st.dictionaries(
                st.sampled_from(["a", "b", "x", "name", "value", "n", "_private"]), inner, max_size=4
            ),
        )
        pairs = st.lists(st.tuples(inner, inner), max_size=4).map(Pairs)
        return st.one_of(items, pairs, record, st.builds(lambda m, rest: [m, *rest], marks, items))

    return st.recursive(leaf, grow, max_leaves=20)


class Pairs(list[tuple[Any, Any]]):
    """A map with any keys, hashable or not."""


def pack(value: Any) -> bytes:
    packer = msgpack.Packer(strict_types=True, autoreset=False, unicode_errors="surrogatepass")

    def write(part: Any) -> None:
        if isinstance(part, Pairs):
            packer.pack_map_header(len(part))
            for key, item in part:
                write(key)
                write(item)
        elif type(part) is list:
            packer.pack_array_header(len(part))
            for item in part:
                write(item)
        elif type(part) is dict:
            write(Pairs(part.items()))
        else:
            packer.pack(part)

    write(value)
    packed: bytes = packer.bytes()
    return packed


@FUZZ
@given(payloads())
def test_any_well_formed_msgpack_gives_a_value_or_a_data_error(value: Any) -> None:
    value_or_data_error(sealed(pack(value)))


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=10),
    st.binary(max_size=10),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
)
KEYS = st.recursive(
    LEAVES.filter(lambda value: not (hasattr(value, "is_snan") and value.is_snan())),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
STATES = st.recursive(
    LEAVES | KEYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Typed, st.integers(), st.none())
        | st.dictionaries(st.text(max_size=4), inner, max_size=3).map(lambda d: types.SimpleNamespace(**d))
    ),
    max_leaves=20,
)


@FUZZ
@given(STATES)
def test_any_state_is_saved_again_unchanged_after_a_load(state: Any) -> None:
    """Bytes are canonical, so equal bytes mean that nothing was lost on the way."""
    encoded = encode(state)
    again = encode(decode(encoded.data))
    assert (again.data, again.encoded_digest) == (encoded.data, encoded.encoded_digest)
