"""Large arrays: their bytes lie behind the encoded value, and come back into memory of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import struct
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cloudckpt.codec import decode, encode, frame, register, wire
from cloudckpt.codec.encoding import LEAST_ASIDE
from cloudckpt.codec.sizes import measure
from cloudckpt.errors import CorruptCheckpointError, DataError, SerializationError
from tests.unit.facts import facts
from tests.unit.fuzzing import FUZZ

N = 1 << 15
NUMBERS = np.arange(N * 8, dtype=np.int64)
GAPS = np.dtype({"names": ["b", "a"], "formats": ["i2", "u1"], "offsets": [4, 1], "itemsize": 9})
ALIGNED = np.dtype([("a", "u1"), ("n", [("x", "i2")]), ("m", "f8", (2, 3))], align=True)

LARGE: dict[str, Any] = {
    "flat": NUMBERS,
    "of exactly the least size": np.full(LEAST_ASIDE, 7, np.uint8),
    "one byte smaller": np.full(LEAST_ASIDE - 1, 7, np.uint8),
    "C": NUMBERS.reshape(64, -1),
    "fortran": np.asfortranarray(NUMBERS.reshape(64, -1)),
    "3-d fortran": np.asfortranarray(NUMBERS.reshape(16, 32, -1)),
    "strided": NUMBERS[::2],
    "backwards": NUMBERS[::-1],
    "axes in no order": NUMBERS.reshape(16, 32, -1).transpose(1, 0, 2),
    "broadcast": np.broadcast_to(NUMBERS[:1000], (50, 1000)),
    "read-only": np.frombuffer(NUMBERS.tobytes(), np.int64),
    "big-endian": NUMBERS.astype(">f4"),
    "bool": NUMBERS % 3 == 0,
    "str": np.array(["a", "é", ""] * N),
    "bytes": np.array([b"a\0b", b""] * N),
    "datetime64": NUMBERS.view("M8[ns]"),
    "timedelta64 fortran": np.asfortranarray(NUMBERS.view("m8[25s]").reshape(8, -1)),
    "complex": NUMBERS * 1j,
    "structured with gaps": np.ones(N, GAPS),
    "structured, aligned": np.ones(N, ALIGNED),
    "structured, fortran": np.asfortranarray(np.ones((64, 512), ALIGNED)),
    "one item": np.array(b"x" * LEAST_ASIDE),
}
SMALL: dict[str, Any] = {
    "no items": np.zeros((3, 0, N)),
    "no bytes in many items": np.zeros(N, "V0"),
    "empty texts": np.array([""], "<U0"),
    "few": np.arange(3),
    "0-d": np.array(1.5),
}


@register("arrays-batch")
@dataclasses.dataclass(eq=False)
class Batch:
    name: str
    data: Any


def packed_together(array: Any) -> Any:
    """An array as it comes back: as it is, or in C order when its items don't lie together."""
    together = array.flags.c_contiguous or array.flags.f_contiguous
    return array if together else np.ascontiguousarray(array)


def halves(state: Any) -> tuple[bytes, bytes]:
    """The value, and what lies behind it."""
    encoded, flags = frame.unseal(encode(state).data, max_bytes=1 << 30)
    unpacker = msgpack.Unpacker(max_buffer_size=len(encoded))
    unpacker.feed(encoded)
    unpacker.skip()
    end = unpacker.tell()
    assert bool(flags & frame.ASIDE) == (end < len(encoded))
    return encoded[:end], encoded[end:]


def bin_32(data: bytes) -> bytes:
    return struct.pack(">BI", 0xC6, len(data)) + data


def placeholder(*, dtype: str = "|u1", shape: Any = (4,), order: str = "C", data: Any = None) -> bytes:
    packer = msgpack.Packer(strict_types=True)
    packed: bytes = packer.pack([wire.mark(wire.ARRAY), dtype, list(shape), order, data])
    return packed


class TestRoundTrip:
    @pytest.mark.parametrize("array", LARGE.values(), ids=LARGE.keys())
    def test_a_large_array_comes_back(self, array: Any) -> None:
        encoded = encode(array)
        found = decode(encoded.data)
        assert facts(found) == facts(packed_together(array))
        assert encode(found).data == encoded.data

    def test_all_of_them_come_back_in_their_places(self) -> None:
        """Only the order tells which bytes are whose; small ones take none of them."""
        arrays = [packed_together(array) for array in [*LARGE.values(), *SMALL.values()]]
        state = {
            "list": [array for pair in zip(arrays, reversed(arrays), strict=True) for array in pair],
            "records": {n: Batch(str(n), (array, {1: array})) for n, array in enumerate(arrays)},
            b"between": b"x" * LEAST_ASIDE,
            "last": [Batch("outer", Batch("inner", arrays[0])), arrays[1]],
        }
        encoded = encode(state)
        found = decode(encoded.data)
        assert facts(found) == facts(state)
        assert encode(found).data == encoded.data

    def test_one_in_a_state_of_many_values_comes_back(self) -> None:
        """Such a state is read a second time, with a guard against collisions, and from the start."""
        state = {"a": NUMBERS, "n": [2**70 + n for n in range(12_000)], "b": NUMBERS[::2].copy()}
        assert facts(decode(encode(state).data)) == facts(state)

    def test_one_that_lies_in_the_value_still_loads(self) -> None:
        """As in payloads from before large arrays were laid behind."""
        data = bytes(range(256)) * 512
        packed = placeholder(shape=(len(data),), data=data)
        assert decode(frame.seal(packed, marks=True)).tobytes() == data


class TestMemory:
    def test_what_comes_back_is_writable_and_shares_memory_with_nothing(self) -> None:
        """A view of the decoded payload would keep all of it, and one array's change show in another."""
        data = encode([NUMBERS, NUMBERS, Batch("b", NUMBERS.reshape(8, -1).T), NUMBERS[:3]]).data
        before = bytes(data)
        one, other, batch, small = decode(data)
        again = decode(data)[0]
        arrays = [one, other, batch.data, small, again, np.frombuffer(data, np.uint8), NUMBERS]
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))
        for array in arrays[:4]:
            assert array.flags.writeable
            assert type(array.base) is bytearray
            assert len(array.base) == array.nbytes
            array[...] = -1
        assert data == before
        assert (again == NUMBERS).all()

    def test_an_array_that_is_filled_anew_for_each_object_is_taken_each_time(self) -> None:
        """To remember the array and read it later would save the last object's numbers for all."""
        scratch = np.zeros(N)

        def to_fields(value: Filling) -> dict[str, Any]:
            scratch[...] = value.number
            return {"numbers": scratch}

        register("arrays-filling", to_fields=to_fields, from_fields=lambda fields: Filling(**fields))(Filling)
        found = decode(encode([Filling(1), Filling(2)]).data)
        assert [filling.number.tolist() for filling in found] == [[1.0] * N, [2.0] * N]


class Filling:
    """A class without fields whose functions use one array for all instances."""

    def __init__(self, number: Any = None, *, numbers: Any = None) -> None:
        self.number = number if numbers is None else numbers


class TestBytes:
    def test_they_are_as_documented(self) -> None:
        """Another language reads a stream of msgpack values: the state, then a bin for each nil."""
        large, small = np.arange(LEAST_ASIDE, dtype=np.uint8), np.arange(4, dtype=np.uint8)
        value, aside = halves([large, small, large[::-1]])
        filled = placeholder(shape=(LEAST_ASIDE,))
        assert value == b"\x93" + filled + placeholder(data=small.tobytes()) + filled
        assert aside == bin_32(large.tobytes()) + bin_32(large[::-1].tobytes())
        data = encode(large).data
        assert data.startswith(b"ckpt\x01\x03\x0cmsgpack+zstd\x00\x01\x28\xb5\x2f\xfd")
        parameters = zstandard.get_frame_parameters(data[len(frame.header(marks=True)) :])
        assert parameters.has_checksum
        encoded, whole = encode(large), filled + bin_32(large.tobytes())
        assert parameters.content_size == encoded.encoded_size == len(whole)
        assert encoded.encoded_digest == hashlib.sha256(whole).hexdigest()

    def test_equal_sets_of_objects_with_arrays_have_equal_bytes(self) -> None:
        """An object that hashes by identity may hold an array; without its bytes all look the same."""
        batches = [Batch("same", np.full(N, n)) for n in range(20)]
        encodings = [encode([NUMBERS, set(items), NUMBERS[1:]]) for items in (batches, copies(batches))]
        assert encodings[0].data == encodings[1].data
        value, _ = halves([NUMBERS, set(batches), NUMBERS[1:]])
        assert len(value) < LEAST_ASIDE  # all are behind, also what comes after the set
        first, found, last = decode(encodings[0].data)
        assert sorted(batch.data[0] for batch in found) == list(range(20))
        assert facts([first, last]) == facts([NUMBERS, NUMBERS[1:]])
        key = {frozenset(batches): Batch("value", NUMBERS)}
        assert encode(decode(encode(key).data)).data == encode(key).data

    def test_sizes_count_what_lies_behind(self) -> None:
        state = {"a": NUMBERS, "b": Batch("b", [NUMBERS[::2], "x" * N])}
        encoded, size = encode(state), measure(state)
        assert (size.encoded, size.compressed) == (encoded.encoded_size, len(encoded.data))
        assert {child.path: child.encoded for child in size.children} == {
            "state.a": encode(NUMBERS).encoded_size,
            "state.b": encode(state["b"]).encoded_size,
        }
        assert size.encoded == sum(child.encoded for child in size.children) + len(b"\x82\xa1a\xa1b")

    def test_the_limit_counts_what_lies_behind(self) -> None:
        size = encode(NUMBERS).encoded_size
        with pytest.raises(SerializationError, match="larger than it may be"):
            encode(NUMBERS, max_bytes=size - 1)
        data = encode(NUMBERS, max_bytes=size).data
        with pytest.raises(CorruptCheckpointError, match="raise max_bytes"):
            decode(data, max_bytes=size - 1)
        assert facts(decode(data, max_bytes=size)) == facts(NUMBERS)


def copies(batches: list[Batch]) -> list[Batch]:
    """Equal objects at other addresses, so in another order in a set."""
    return [Batch(batch.name, batch.data.copy()) for batch in reversed(batches)]


class TestDamage:
    def test_the_payload_of_these_tests_is_intact(self) -> None:
        found = decode(frame.seal(b"\x92" + placeholder() * 2, bin_32(b"abcd") + bin_32(b"efgh"), marks=True))
        assert [array.tobytes() for array in found] == [b"abcd", b"efgh"]

    @pytest.mark.parametrize(
        ("value", "aside"),
        [
            (placeholder(), bin_32(b"abc")),
            (placeholder(), bin_32(b"abcde")),
            (placeholder(), bin_32(b"abcd")[:-1]),
            (placeholder(), bin_32(b"abcd") + b"x"),
            (placeholder(), bin_32(b"abcd") * 2),
            (placeholder(), b"\xc6\xff\xff\xff\xffabcd"),
            (placeholder(), b"\xc6\0\0"),
            (placeholder(), b"\xc4\x04abcd"),
            (placeholder(), b"\xdb\0\0\0\x04abcd"),
            (placeholder(shape=(-4,)), bin_32(b"abcd")),
            (placeholder(shape=(-2, -2)), bin_32(b"abcd")),
            (placeholder(shape=(1 << 60,)), bin_32(b"abcd")),
            (placeholder(shape=(1 << 60, 16)), bin_32(b"")),
            (placeholder(dtype="|O"), bin_32(b"abcd")),
            (placeholder(order="X"), bin_32(b"abcd")),
            (placeholder(data=4), bin_32(b"abcd")),
            (placeholder(data=b"abcd"), bin_32(b"abcd")),
            (b"\x92" + placeholder() * 2, bin_32(b"abcd")),
            (b"\x92" + placeholder() * 2, bin_32(b"abcdefgh")),
            (b"\x92" + placeholder(shape=(2,)) + placeholder(), bin_32(b"abcd") + bin_32(b"ab")),
            (b"\x92\xc7\x01\xfe\x0f\xc0", bin_32(b"abcd")),
            (b"\x91\xc7\x01\xfe\x0f", bin_32(b"abcd")),
            (b"\x01", bin_32(b"abcd")),
            (b"\xc0", bin_32(b"abcd")),
            (placeholder(), b""),
        ],
    )
    def test_bytes_that_are_not_those_of_the_arrays_are_refused(self, value: bytes, aside: bytes) -> None:
        with pytest.raises(CorruptCheckpointError) as caught:
            decode(frame.seal(value, aside, marks=True))
        assert caught.value.kind == "bad-encoding"

    @pytest.mark.parametrize(
        ("header", "packed"),
        [
            (frame.header(marks=True), placeholder() + bin_32(b"abcd")),
            (frame.header(marks=False, aside=True), placeholder() + bin_32(b"abcd")),
            (frame.header(marks=True, aside=True), placeholder(data=b"abcd")),
            (frame.header(marks=True, aside=True), b"\x01"),
            (frame.header(marks=True, aside=True), b""),
        ],
    )
    def test_a_flag_that_says_otherwise_is_damage(self, header: bytes, packed: bytes) -> None:
        with pytest.raises(CorruptCheckpointError) as caught:
            decode(header + zstandard.ZstdCompressor().compress(packed))
        assert caught.value.kind == "bad-encoding"

    def test_every_cut_and_every_flipped_flag_is_noticed(self) -> None:
        data = encode(NUMBERS).data
        for end in (*range(40), len(data) - 5, len(data) - 1):
            with pytest.raises(DataError):
                decode(data[:end])
        for bit in range(8):
            damaged = bytearray(data)
            damaged[len(b"ckpt\x01")] ^= 1 << bit
            with pytest.raises(DataError):
                decode(bytes(damaged))

    def test_bins_that_nothing_takes_up_allocate_nothing(self) -> None:
        """Five bytes each, and compressed to next to none: an object for each would be gigabytes."""
        data = frame.seal(b"\x01", bin_32(b"") * 200_000, marks=True)
        tracemalloc.start()
        try:
            with pytest.raises(CorruptCheckpointError):
                decode(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 3 << 20  # the frame holds one


ITEMS = st.one_of(
    st.builds(
        placeholder,
        dtype=st.sampled_from(["|u1", "<f8", "<U0", "|V0", "|V3", "|O"]),
        shape=st.lists(st.integers(-1, 4), max_size=3),
        order=st.sampled_from("CFX"),
        data=st.sampled_from([None, None, b"", b"abcdefgh", 4]),
    ),
    st.sampled_from([b"\xc0", b"\x01", b"\x91\xc7\x01\xfe\x0f"]),
)
BINS = st.builds(
    lambda code, data, cut: bin_32(data).replace(b"\xc6", code, 1)[cut:],
    st.sampled_from([b"\xc6", b"\xc6", b"\xc6", b"\xdb"]),
    st.sampled_from([b"", b"abcd", b"abcdefgh", bytes(16), b"x"]),
    st.sampled_from([0, 0, 0, 1]),
)


@FUZZ
@given(st.lists(ITEMS, max_size=6), st.lists(BINS, max_size=6))
def test_any_bins_behind_any_arrays_give_a_value_or_a_data_error(
    items: list[bytes], bins: list[bytes]
) -> None:
    packed = struct.pack(">BI", 0xDD, len(items)) + b"".join(items)
    data = frame.seal(packed, b"".join(bins), marks=True)
    try:
        found = decode(data)
    except DataError:
        return
    large = [array for array in found if isinstance(array, np.ndarray)]
    assert len(found) == len(items)
    assert sum(array.nbytes for array in large) <= len(packed) + sum(map(len, bins))
