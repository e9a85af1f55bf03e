"""JSON that knows when it was changed: the envelope of every document in a store. Pure.

Owns: canonical JSON and the self-digest. Invariants: equal values give equal bytes;
any changed, cut or added byte is found, since the digest at the front covers every
byte behind it. What a document means is for `format.py`.

A document is ``{"digest":"<sha256 hex>",`` followed by the rest of a canonical
JSON object (sorted keys, no spaces, ASCII); the digest is that of ``{`` and the
rest. This envelope stays in every later format, so that an old release can tell
"newer" from "damaged".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from cloudckpt.errors import CorruptCheckpointError

_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_HEAD = b'{"digest":"'
_REST = len(_HEAD) + 64 + 2
DIGEST = slice(len(_HEAD), len(_HEAD) + 64)
"""Where the digest of a sealed document is."""

_ENVELOPE = re.compile(rb'\{"digest":"([0-9a-f]{64})",(?=.)', re.DOTALL)


def canonical(value: object) -> bytes:
    """Return `value` as JSON whose bytes depend on nothing but the value."""
    return _json.encode(value).encode("ascii")


def seal(document: Mapping[str, Any]) -> bytes:
    """Return a document's bytes with the digest of itself in front."""
    return sealed(canonical(document))


def sealed(body: bytes) -> bytes:
    """Return canonical JSON of an object that is not empty, with the digest of itself in front."""
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + b'",' + body[1:]


def unseal(data: bytes) -> dict[str, Any]:
    """Return the document of `seal`.

    Raises:
        CorruptCheckpointError: A byte was changed, cut off or added.
    """
    found = _ENVELOPE.match(data)
    if found is None:
        raise CorruptCheckpointError("the document does not start as ours do; it is damaged or not ours")
    body = b"{" + data[_REST:]
    if hashlib.sha256(body).hexdigest().encode() != found[1]:
        raise CorruptCheckpointError("the document does not match its own digest; it was cut or changed")
    try:
        document = json.loads(body)
    except ValueError as error:  # unreachable unless somebody sealed what is no JSON
        raise CorruptCheckpointError("the document is not JSON") from error
    if not isinstance(document, dict):
        raise CorruptCheckpointError("the document is not a JSON object")
    return document
