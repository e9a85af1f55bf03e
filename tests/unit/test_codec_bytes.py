"""What the bytes are: the same for the same state, in every process, and as the format says."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard

from cloudckpt.codec import decode, encode, frame
from cloudckpt.errors import SerializationError

PROGRAM = """
from cloudckpt.codec import encode
nested = frozenset({"x", "y", frozenset({"z", "w"})})
state = {"s": {"a", "b", ("c", 1), None, nested}, "n": frozenset("python")}
print(encode(state).encoded_digest)
"""


def test_equal_states_give_equal_bytes_under_every_hash_seed() -> None:
    """A set's order follows the hashes of strings, which differ in each process."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (0, 1, 2, 3)
    }
    assert len(digests) == 1


def test_nested_frozensets_cost_what_they_hold() -> None:
    """Ordering items by their encoding packs each level twice unless it is remembered: 2 to the depth."""
    nested = frozenset({0})
    for level in range(40):
        nested = frozenset({nested, level})
    assert decode(encode(nested).data) == nested


def test_the_encoded_state_is_plain_msgpack_behind_the_header() -> None:
    """Another language reads a plain state with any msgpack library."""
    encoded = encode({"a": [1, "b"]})
    packed = zstandard.ZstdDecompressor().decompress(encoded.data[len(frame.header(marks=False)) :])
    assert packed == b"\x81\xa1a\x92\x01\xa1b"
    assert encoded.encoded_size == len(packed)
    assert encoded.encoded_digest == hashlib.sha256(packed).hexdigest()
    assert (encoded.codec, encoded.schema, encoded.schema_version) == ("msgpack+zstd/1", None, None)


def test_the_header_is_as_documented() -> None:
    data = encode((1,)).data
    assert data.startswith(b"ckpt\x01\x01\x0cmsgpack+zstd\x00\x01\x28\xb5\x2f\xfd")
    parameters = zstandard.get_frame_parameters(data[len(frame.header(marks=True)) :])
    assert parameters.has_checksum
    assert parameters.content_size == 5


def test_equal_arrays_give_equal_bytes_whatever_lies_between_their_items() -> None:
    """Padding of a struct and of a long double is whatever was in memory."""
    structured = np.dtype(
        [("a", "u1"), ("n", np.dtype([("x", "u1"), ("y", "f4", (2,))], align=True))], align=True
    )
    for dtype in (structured, np.dtype(np.longdouble), np.dtype(np.clongdouble)):
        digests = set()
        for filler in (0, 255):
            array = np.full(3 * dtype.itemsize, filler, np.uint8).view(dtype)
            for name in dtype.names or ():
                array[name] = np.zeros((), dtype[name])
            if not dtype.names:
                array[...] = [dtype.type(n) for n in (1, 2, 3)]
                raw = array.view(np.uint8).reshape(-1, np.dtype(np.longdouble).itemsize)
                if np.finfo(np.longdouble).nmant == 63:
                    raw[:, 10:] = filler
            else:
                array["n"]["x"], array["n"]["y"] = 1, 2
            digests.add(encode(array).encoded_digest)
        assert len(digests) == 1


def test_a_change_after_the_call_changes_nothing() -> None:
    state = {"messages": ["a"]}
    encoded = encode(state)
    state["messages"].append("b")
    assert decode(encoded.data) == {"messages": ["a"]}


def test_a_state_larger_than_allowed_is_refused() -> None:
    with pytest.raises(SerializationError, match="max_bytes=100") as caught:
        encode("x" * 200, max_bytes=100)
    assert caught.value.kind == "too-large"
    assert decode(encode("x" * 98, max_bytes=100).data) == "x" * 98


def test_encoding_takes_at_most_twice_the_state_beside_it() -> None:
    """A packed state, its compressed form and a joined payload at once would be three."""
    size = 8 << 20
    state = [os.urandom(1 << 16) for _ in range(size >> 16)]  # incompressible
    encode(0)  # imports
    tracemalloc.start()
    try:
        encode(state)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.3 * size  # of this size the packer's buffer, which it doubles, is full


def test_importing_the_codec_imports_no_library_of_its_users() -> None:
    program = (
        "import sys, cloudckpt.codec\n"
        "names = 'numpy', 'pydantic', 'msgspec', 'attr', 'msgpack', 'zstandard', 'uuid', 'decimal'\n"
        "print([name for name in names if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
