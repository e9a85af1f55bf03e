"""State to bytes and back: lossless or loud.

Owns: `encode`, `decode` and what a user declares about classes. Invariant: no
pickle, and no import of a name that data holds; what can't be carried whole is
an error that names its path. It reads and writes no store. What a name needs is
imported when the name is first used: a load of plain values takes a tenth of it.

    frame.py       header and compression        wire.py        extension numbers
    encoding.py    state to bytes                encoders.py    which encoder a value has
    decoding.py    bytes to state                faults.py      why a state is refused
    reading.py     values of our own among them
    scalars.py     single values                 containers.py  collections
    arrays.py      numpy                         records.py     objects without their class
    shapes.py      which classes have fields     kinds.py       how each kind is put together
    registry.py    tags, versions, migrations    building.py    objects from records
    hints.py       type hints                    unknown.py     fields of a newer class
    intake.py      what is done before encoding  sizes.py       bytes by path
    redaction.py   secrets and decoration        paths.py       patterns of paths
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudckpt.codec.decoding import decode as decode
    from cloudckpt.codec.encoding import Encoded as Encoded
    from cloudckpt.codec.encoding import encode as encode
    from cloudckpt.codec.frame import MAX_STATE_BYTES as MAX_STATE_BYTES
    from cloudckpt.codec.records import Record as Record
    from cloudckpt.codec.redaction import Redacted as Redacted
    from cloudckpt.codec.registry import migration as migration
    from cloudckpt.codec.registry import register as register

__all__ = ["MAX_STATE_BYTES", "Encoded", "Record", "Redacted", "decode", "encode", "migration", "register"]

_HOMES = {
    "MAX_STATE_BYTES": "frame",
    "Encoded": "encoding",
    "Record": "records",
    "Redacted": "redaction",
    "decode": "decoding",
    "encode": "encoding",
    "migration": "registry",
    "register": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
