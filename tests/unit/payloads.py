"""Payloads that are made by hand, right in all but what is packed."""

from __future__ import annotations

import struct

from cloudckpt.codec import frame, wire

FRAME = frame.header(marks=True)


def sealed(packed: bytes) -> bytes:
    """A payload that is right in all but what is packed."""
    return frame.seal(packed, marks=True)


def ext(code: int, payload: bytes) -> bytes:
    return struct.pack(">BIb", 0xC9, len(payload), code) + payload


def mark(kind: int) -> bytes:
    return ext(wire.MARK, bytes([kind]))


def array(*items: bytes) -> bytes:
    return struct.pack(">BI", 0xDD, len(items)) + b"".join(items)
