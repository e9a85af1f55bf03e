"""Bad bytes give a `DataError` that says what to do, in bounded time and memory, and run nothing."""

from __future__ import annotations

import re
import struct
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import zstandard

from cloudckpt.codec import Record, decode, encode, frame, wire
from cloudckpt.errors import CorruptCheckpointError, DataError, SerializationError, UnsupportedFormatError
from tests.unit.payloads import FRAME, array, ext, mark, sealed

STATE = {"plan": [(1, {"k": b"v"})], "n": 2**70, "text": "x" * 100}


def refused(data: bytes) -> DataError:
    with pytest.raises(DataError) as caught:
        decode(data)
    return caught.value


def with_header(**changes: Any) -> bytes:
    parts = {"magic": b"ckpt", "version": 1, "flags": 1, "name": b"msgpack+zstd", "codec": 1, **changes}
    fixed = struct.pack(">4sBBB", parts["magic"], parts["version"], parts["flags"], len(parts["name"]))
    return fixed + parts["name"] + struct.pack(">H", parts["codec"]) + encode(STATE).data[len(FRAME) :]


class TestEachDamageHasItsMessage:
    def test_the_payload_of_these_tests_is_intact(self) -> None:
        assert decode(with_header()) == STATE

    @pytest.mark.parametrize(
        ("data", "error", "kind", "said"),
        [
            (b"", CorruptCheckpointError, "truncated", "empty"),
            (b"ck", CorruptCheckpointError, "truncated", "cut short"),
            (FRAME[:-1], CorruptCheckpointError, "truncated", "cut short"),
            (FRAME, CorruptCheckpointError, "truncated", "cut short"),
            (FRAME + b"\x28\xb5\x2f\xfd", CorruptCheckpointError, "bad-frame", "cut short"),
            (b"PK\3\4 something else", CorruptCheckpointError, "bad-magic", "not a payload"),
            (with_header(version=2), UnsupportedFormatError, "newer-frame", "upgrade"),
            (with_header(version=0), CorruptCheckpointError, "bad-header", "damaged"),
            (with_header(flags=4), UnsupportedFormatError, "newer-frame", "upgrade"),
            (with_header(name=b"arrow"), UnsupportedFormatError, "unknown-codec", "codec='arrow'"),
            (with_header(name=b"\xff"), UnsupportedFormatError, "unknown-codec", "upgrade"),
            (with_header(codec=2), UnsupportedFormatError, "newer-codec", "msgpack\\+zstd/2"),
            (with_header() + b"x", CorruptCheckpointError, "trailing-bytes", "after the end"),
            (with_header() + with_header(), CorruptCheckpointError, "trailing-bytes", "after the end"),
            (with_header()[:-1], CorruptCheckpointError, "truncated", "cut short"),
            (with_header()[:-1] + b"\0", CorruptCheckpointError, "bad-checksum", "checksum"),
            (sealed(ext(-99, b"")), UnsupportedFormatError, "unknown-extension", "extension -99"),
            (sealed(array(mark(200))), UnsupportedFormatError, "unknown-extension", "container 200"),
            (sealed(b""), CorruptCheckpointError, "bad-encoding", "damaged"),
            (sealed(b"\x01\x01"), CorruptCheckpointError, "bad-encoding", "damaged"),
            (sealed(b"\x92\x01"), CorruptCheckpointError, "bad-encoding", "damaged"),
            (sealed(b"\xc1"), CorruptCheckpointError, "bad-encoding", "damaged"),
        ],
    )
    def test_it_does(self, data: bytes, error: type[DataError], kind: str, said: str) -> None:
        with pytest.raises(error, match=said) as caught:
            decode(data)
        assert caught.value.kind == kind

    def test_every_cut_and_every_flipped_byte_is_noticed(self) -> None:
        data = encode(STATE).data
        for end in range(len(data)):
            refused(data[:end])
        for at in range(len(data)):
            for bit in (1, 128):
                damaged = bytearray(data)
                damaged[at] ^= bit
                # A flip of the marks' flag asks for more than there is, or for less.
                try:
                    found = decode(bytes(damaged))
                except DataError:
                    continue
                assert found == STATE


class TestMarks:
    """A mark is not a value; one that is out of place must not reach a user."""

    @pytest.mark.parametrize(
        "packed",
        [
            mark(wire.TUPLE),
            array(b"\x01", mark(wire.TUPLE)),
            array(mark(wire.TUPLE), mark(wire.SET)),
            b"\x81\xa1k" + mark(wire.TUPLE),
            b"\x81" + mark(wire.TUPLE) + b"\x01",
            array(ext(wire.MARK, b""), b"\x01"),
            array(ext(wire.MARK, b"\x01\x01"), b"\x01"),
        ],
    )
    def test_one_out_of_place_is_damage(self, packed: bytes) -> None:
        assert refused(sealed(packed)).kind == "bad-encoding"

    def test_one_in_a_state_that_claims_to_have_none_is_damage(self) -> None:
        data = frame.seal(array(mark(wire.TUPLE), b"\x01"), marks=False)
        assert refused(data).kind == "bad-encoding"

    @pytest.mark.parametrize(
        "items",
        [
            (wire.RECORD, b"\xa1T", b"\x01"),
            (wire.RECORD, b"\x01", b"\x01", b"\x80"),
            (wire.RECORD, b"\xa1T", b"\x00", b"\x80"),
            (wire.RECORD, b"\xa1T", b"\x01", b"\x81\x01\x01"),
            (wire.RECORD, b"\xa1T", b"\x01", b"\x80", b"\x90", b"\x90"),
            (wire.RECORD, b"\xa1T", b"\x01", b"\x80", b"\x91\x01"),
            (wire.SET, b"\x90"),
            (wire.RANGE, b"\x01", b"\x02", b"\x00"),
            (wire.SLICE, b"\x01"),
            (wire.DEQUE, b"\x01", b"\x01", b"\x01"),
            (wire.DEQUE, b"\x01", b"\xa1x"),
            (wire.ORDERED_DICT, b"\x90"),
            (wire.COUNTER, b"\x01"),
            (wire.DEFAULT_DICT, b"\xa4eval", b"\x80"),
            (wire.MAPPING_PROXY, b"\x90"),
            (wire.NAMESPACE, b"\x81\x01\x01"),
            (wire.PATTERN, b"\xa1(", b"\x00"),
            (wire.PATTERN, b"\xa1a", b"\xcc\x80"),
            (wire.PATTERN, b"\x01", b"\x00"),
            (wire.ARRAY, b"\xa2|O", b"\x90", b"\xa1C", b"\xc4\x08" + bytes(8)),
            (wire.ARRAY, b"\xa3<f8", b"\x91\xff", b"\xa1C", b"\xc4\x00"),
            (wire.ARRAY, b"\xa3<f8", b"\x92\xff\xff", b"\xa1C", b"\xc4\x08" + bytes(8)),
            (wire.ARRAY, b"\xa3<f8", b"\x91\x02", b"\xa1C", b"\xc4\x08" + bytes(8)),
            (wire.ARRAY, b"\xa3<f8", b"\x91\x01", b"\xa1X", b"\xc4\x08" + bytes(8)),
            (wire.ARRAY, b"\xa5i4,f8", b"\x91\x01", b"\xa1C", b"\xc4\x0c" + bytes(12)),
            (wire.NUMPY_SCALAR, b"\xa1U", b"\x01"),
        ],
    )
    def test_a_container_with_other_content_is_damage(self, items: tuple[Any, ...]) -> None:
        kind, *rest = items
        assert refused(sealed(array(mark(kind), *rest))).kind == "bad-encoding"


class TestBounds:
    def test_a_frame_may_not_claim_more_than_it_may_hold(self) -> None:
        """Believing the header allocates what it says."""
        data = FRAME + zstandard.ZstdCompressor().compress(bytes(1 << 20))
        with pytest.raises(CorruptCheckpointError, match="raise max_bytes") as caught:
            decode(data, max_bytes=(1 << 20) - 1)
        assert caught.value.kind == "too-large"
        lying = bytearray(FRAME + zstandard.ZstdCompressor().compress(bytes(100_000)))
        at = lying.index((100_000).to_bytes(4, "little"))
        lying[at : at + 4] = (1 << 29).to_bytes(4, "little")
        assert refused(bytes(lying)).kind == "too-large"

    @pytest.mark.parametrize(
        "header", [b"\xdd\x00\x0f\xff\xff", b"\xdf\x00\x07\xff\xff", b"\xdb\x00\x0f\xff\xf0"]
    )
    def test_headers_without_items_allocate_nothing(self, header: bytes) -> None:
        """A list of a million, a thousand deep, in five bytes each, would be eight gigabytes."""
        data = sealed((header * 1000).ljust(1 << 20, header[:1]))
        tracemalloc.start()
        try:
            refused(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 << 20

    def test_depth_is_bounded(self) -> None:
        assert refused(sealed(b"\x91" * 100_000 + b"\x01")).kind == "bad-encoding"
        nested = b"\x01"
        for _ in range(5000):
            nested = b"\x92" + mark(wire.TUPLE) + nested
        assert refused(sealed(nested)).kind == "bad-encoding"

    @pytest.mark.parametrize("as_set", [False, True])
    def test_keys_that_were_made_to_collide_are_refused(self, as_set: bool) -> None:
        """Equal hashes make a dict take the square of the time: minutes for a megabyte."""
        prime = sys.hash_info.modulus
        keys = [ext(wire.INT, ((n + 16) * prime).to_bytes(12, "big")) for n in range(30_000)]
        if as_set:
            packed = array(mark(wire.SET), *keys)
        else:
            packed = struct.pack(">BI", 0xDF, len(keys)) + b"".join(key + b"\x01" for key in keys)
        assert refused(sealed(packed)).kind == "bad-encoding"

    def test_many_keys_that_do_not_collide_are_fine(self) -> None:
        state = {(n, str(n)): {2**70 + n} for n in range(12_000)}
        assert decode(encode(state).data) == state

    def test_many_patterns_are_refused_by_both_sides(self) -> None:
        patterns = [re.compile(f"{n:06}" + "x" * 994) for n in range(33)]
        assert decode(encode(patterns[:32]).data) == patterns[:32]
        with pytest.raises(SerializationError, match="patterns of more than"):
            encode(patterns)
        item = array(mark(wire.PATTERN), b"\xda\x03\xe8" + b"x" * 1000, b"\x20")
        assert refused(sealed(array(*[item] * 33))).kind == "bad-encoding"

    def test_a_fraction_that_takes_long_is_refused(self) -> None:
        top = bytes(range(1, 256)) * 100
        payload = struct.pack(">I", len(top)) + top + top[::-1]
        assert refused(sealed(ext(wire.FRACTION, payload))).kind == "bad-encoding"


class TestNothingIsRun:
    def test_a_name_in_the_bytes_imports_nothing(self) -> None:
        """What a loader looks up by name, an attacker chooses."""
        for name in ("antigravity", "antigravity.fly", "os.system", "builtins.eval"):
            found = decode(encode(Record(name, 1, {"args": ["true"]})).data)
            assert isinstance(found, Record)
        zone = bytes(12) + b"\x03../../../etc/passwd"
        refused(sealed(ext(wire.DATETIME, struct.pack(">HBBBBBIB", 2024, 1, 1, 0, 0, 0, 0, 0) + zone[12:])))
        assert refused(sealed(ext(wire.TIMEZONE, b"\x03this.that"))).kind == "bad-encoding"
        assert "antigravity" not in sys.modules
        assert "this" not in sys.modules

    def test_a_zone_that_this_machine_lacks_is_not_called_damage(self) -> None:
        error = refused(sealed(ext(wire.TIMEZONE, b"\x03Mars/Olympus")))
        assert (type(error), error.kind) == (UnsupportedFormatError, "unknown-zone")

    def test_a_path_that_this_python_takes_for_another_is_not_called_damage(self) -> None:
        """Python 3.11 takes //a of Windows for /a, and so gave another path than was saved."""
        # No Python takes this text for a path that has it.
        error = refused(sealed(ext(wire.PATH, b"\x01a\\.\\b")))
        assert (type(error), error.kind) == (UnsupportedFormatError, "unknown-path")
        assert error.facts["path"] == r"a\.\b"

    def test_numpy_that_is_not_installed_is_not_called_damage(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = encode(np.zeros(3)).data
        monkeypatch.setitem(sys.modules, "numpy", None)
        error = refused(data)
        assert (type(error), error.kind) == (UnsupportedFormatError, "missing-library")
