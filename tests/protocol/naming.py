"""Which objects something names: payloads and pages of history, by the last part of their key."""

from __future__ import annotations

import re
from functools import lru_cache

import zstandard

from tests.protocol.scheduler import Request

_NAME = re.compile(r"h?[0-9]+-[0-9a-f]{64}-[0-9a-f]{16}")
_SHORTEST = 83
_ZSTD = b"\x28\xb5\x2f\xfd"
NONE: frozenset[str] = frozenset()


def names_in(text: str | bytes) -> frozenset[str]:
    """Return the names in it; what is compressed is looked into."""
    return NONE if len(text) < _SHORTEST else _names_in(text)


@lru_cache(1 << 16)
def _names_in(text: str | bytes) -> frozenset[str]:
    if isinstance(text, bytes):
        if text.startswith(_ZSTD):
            text = zstandard.ZstdDecompressor().decompress(text)
        text = text.decode("latin-1")
    return frozenset(_NAME.findall(text))


def touched_by(request: Request) -> frozenset[str]:
    """Return the names of the objects that a request reads, puts or deletes."""
    first = request.arguments[0]
    return NONE.union(*map(names_in, first if isinstance(first, tuple) else (first,)))


def carried_by(request: Request) -> frozenset[str]:
    """Return the names in what a request would write."""
    return NONE.union(*(names_in(one) for one in request.arguments[1:] if isinstance(one, bytes)))


def name_of(key: str) -> str:
    """Return the name in an object's key."""
    return key.rpartition("/")[2]
