"""Payloads of every format version, kept as they were written: what was saved then loads for ever.

`python -m tests.unit.test_codec_golden` adds the rows that are missing; a row
that is there is never written again.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloudckpt.codec import decode, encode, frame
from tests.unit.facts import facts
from tests.unit.matrix import ROWS

FILE = Path(__file__).with_suffix(".v1.json")
GOLDEN: dict[str, str] = json.loads(FILE.read_text()) if FILE.exists() else {}


def of_this_machine(name: str) -> bool:
    return "longdouble" not in name or np.dtype(np.longdouble).str == "<f16"


@pytest.mark.parametrize("name", GOLDEN)
def test_what_was_saved_by_format_1_loads(name: str) -> None:
    if not of_this_machine(name):
        pytest.skip("a long double of another machine")
    assert facts(decode(base64.b85decode(GOLDEN[name]))) == facts(ROWS[name])


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_state_is_encoded_as_it_was_then(name: str) -> None:
    """Digests of encoded states are compared between machines and over years."""
    if not of_this_machine(name):
        pytest.skip("a long double of another machine")
    assert unsealed(encode(ROWS[name]).data) == unsealed(base64.b85decode(GOLDEN[name]))


def test_every_row_of_the_matrix_is_kept() -> None:
    assert GOLDEN.keys() == ROWS.keys()


def unsealed(data: bytes) -> Any:
    return frame.unseal(data, max_bytes=1 << 20)


if __name__ == "__main__":
    missing = {name: base64.b85encode(encode(row).data).decode() for name, row in ROWS.items()}
    FILE.write_text(json.dumps({**missing, **GOLDEN}, indent=0) + "\n")
