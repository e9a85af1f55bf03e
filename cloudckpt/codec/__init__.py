"""State to bytes and back: lossless or loud.

Owns: `encode`, `decode` and what a user declares about classes. Invariant: no
pickle, and no import of a name that data holds; what can't be carried whole is
an error that names its path. It reads and writes no store.

    frame.py       header and compression        wire.py        extension numbers
    encoding.py    state to bytes                encoders.py    which encoder a value has
    decoding.py    bytes to state                faults.py      why a state is refused
    scalars.py     single values                 containers.py  collections
    arrays.py      numpy                         records.py     objects without their class
    shapes.py      which classes have fields     kinds.py       how each kind is put together
    registry.py    tags, versions, migrations    building.py    objects from records
    hints.py       type hints                    unknown.py     fields of a newer class
    intake.py      what is done before encoding  sizes.py       bytes by path
    redaction.py   secrets and decoration        paths.py       patterns of paths
"""

from __future__ import annotations

from cloudckpt.codec.decoding import decode
from cloudckpt.codec.encoding import Encoded, encode
from cloudckpt.codec.frame import MAX_STATE_BYTES
from cloudckpt.codec.records import Record
from cloudckpt.codec.redaction import Redacted
from cloudckpt.codec.registry import migration, register

__all__ = ["MAX_STATE_BYTES", "Encoded", "Record", "Redacted", "decode", "encode", "migration", "register"]
