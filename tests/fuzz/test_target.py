"""The fuzz target itself works, so that a long run does not find out that it never decoded."""

from __future__ import annotations

import pytest

from cloudckpt.codec import encode
from tests.fuzz import decode_state


@pytest.mark.parametrize("lead", [b"\x00", b"\x01", b"\x03"])
def test_the_target_takes_any_bytes(lead: bytes) -> None:
    decode_state.one_input(lead + encode({"a": (1, 2)}).data)
    decode_state.one_input(lead)
    decode_state.one_input(b"")


def test_the_target_reaches_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is refused at the header would fuzz nothing but the header."""
    seen: list[object] = []
    plain = decode_state.decode
    monkeypatch.setattr(decode_state, "decode", lambda *a, **k: seen.append(plain(*a, **k)))
    decode_state.one_input(b"\x05" + b"\x93\x01\x02\x03")
    decode_state.one_input(b"\x00" + encode({"a": (1, 2)}).data)
    assert seen == [[1, 2, 3], {"a": (1, 2)}]
