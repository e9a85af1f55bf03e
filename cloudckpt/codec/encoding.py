"""State to bytes.

Owns: `encode`. Invariant: equal states give equal bytes, in every process; a
state that can't be carried whole raises before anything is written, with every
fault in it. A dict keeps its order, so two dicts are the same state only when
their order is the same too. An object that is reached twice is written twice,
and comes back as two.

Memory: the packed state and its compressed form exist together, nothing else
of that size does. The bytes of large arrays are packed by themselves, at once, and
joined to the value by the compressor. Plain values never enter Python code one by one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cloudckpt.codec import containers, faults, frame, registry
from cloudckpt.codec.encoders import encoder_of
from cloudckpt.codec.frame import CODEC, CODEC_VERSION, MAX_STATE_BYTES
from cloudckpt.codec.records import Record
from cloudckpt.codec.shapes import shape_of
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import SerializationError

LEAST_ASIDE: Final = 1 << 16
"""Bytes from which on an array lies behind the value, not in it; so each is msgpack's bin 32."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A state as bytes, and what describes them.

    Attributes:
        data: Exactly what is stored.
        encoded_size: Bytes of the encoded state before compression.
        encoded_digest: sha256 of the encoded state before compression, in hex.
        codec: Name and version, ``msgpack+zstd/1``.
        schema: Name of the state's class, or None for a plain value.
        schema_version: Version of that schema, or None.
    """

    data: bytes
    encoded_size: int
    encoded_digest: str
    codec: str
    schema: str | None
    schema_version: int | None


def encode(state: object, *, max_bytes: int = MAX_STATE_BYTES) -> Encoded:
    """Return `state` as bytes; a later change of it changes nothing.

    bytearray and memoryview come back as bytes, unless a type hint says
    bytearray; shared objects come back as copies.

    Args:
        state: Anything of `docs/state.md`.
        max_bytes: How large it may be before compression.

    Raises:
        SerializationError: It holds what can't be carried; `paths` says where.
    """
    return prepare(state, max_bytes=max_bytes).seal()


class Unsealed(NamedTuple):
    """A state that is packed, so that its owner may change it, and neither hashed nor compressed.

    Attributes:
        parts: The encoded state, in the order of its bytes.
        aside: What follows them.
        marks: Whether there are marks in it.
        schema, schema_version: As in `Encoded`.
    """

    parts: list[memoryview | bytes]
    aside: list[memoryview | bytes]
    marks: bool
    schema: str | None
    schema_version: int | None

    @property
    def size(self) -> int:
        """Bytes of all of it."""
        return sum(map(len, self.parts)) + sum(map(len, self.aside))

    def seal(self) -> Encoded:
        """Return it hashed and compressed; once, since the parts are let go. Leaves Python's lock free."""
        size, digest = self.size, hashlib.sha256()
        for part in (*self.parts, *self.aside):
            digest.update(part)
        if len(self.parts) == 1 and len(self.aside) <= 1:
            data = frame.seal(self.parts[0], *self.aside, marks=self.marks)
        else:
            data = frame.seal_parts(self.parts, self.aside, marks=self.marks)
        return Encoded(
            data=data,
            encoded_size=size,
            encoded_digest=digest.hexdigest(),
            codec=f"{CODEC}/{CODEC_VERSION}",
            schema=self.schema,
            schema_version=self.schema_version,
        )


def prepare(state: object, *, max_bytes: int = MAX_STATE_BYTES) -> Unsealed:
    """Return `state` as it is now, packed; the first half of `encode`.

    Raises:
        SerializationError: As `encode`.
    """
    encoding = Encoding()
    packed = encoding.pack_whole(state)
    aside = [packed.aside] if packed.aside else []
    return checked(Unsealed([packed.value], aside, encoding.marks, *schema_of(state)), max_bytes)


def checked(unsealed: Unsealed, max_bytes: int) -> Unsealed:
    """Return it; raise SerializationError when it is too large."""
    if unsealed.size > max_bytes:
        raise SerializationError(
            "the state is larger than it may be; keep large data outside and its address in the "
            "state, or raise max_bytes",
            kind="too-large",
            encoded_size=unsealed.size,
            max_bytes=max_bytes,
        )
    return unsealed


def schema_of(state: object) -> tuple[str, int] | tuple[None, None]:
    """Return the name and version of the schema of a state."""
    if isinstance(state, Record):
        return state.tag, state.version
    return (None, None) if shape_of(type(state)) is None else registry.identity(type(state))


class Packed(NamedTuple):
    """An encoded state: `aside` follows `value`."""

    value: memoryview
    aside: memoryview | bytes

    @property
    def size(self) -> int:
        """Bytes of both."""
        return len(self.value) + len(self.aside)


def pack(value: object) -> Packed:
    """Return the encoded bytes of one value, neither compressed nor framed.

    Raises:
        SerializationError: It can't be carried.
    """
    return Encoding().pack_whole(value)


class Encoding:
    """One call of `encode`: the packer's hook for what msgpack has no type for.

    Attributes:
        marks: Whether a mark was written; if not, reading needs no hook for lists.
    """

    def __init__(self) -> None:
        self.marks = False
        self._in_order: dict[int, tuple[Any, list[Any]]] = {}
        self._pattern_lengths = 0
        self._aside: Any = None
        self._ordering = False

    def pack_whole(self, state: object) -> Packed:
        """Return the state packed, in one go."""
        packer = self._packer(autoreset=False)
        try:
            # In a list, for the packer goes one level deeper than the unpacker reads.
            packer.pack([state])
        except Exception as error:
            raise faults.explain(state, error) from error
        packed: memoryview = packer.getbuffer()
        # Without that list's header.
        return Packed(packed[1:], b"" if self._aside is None else self._aside.getbuffer())

    def __call__(self, value: Any) -> Any:
        """Return what msgpack has a type for, in the place of what it has none for."""
        packable = encoder_of(type(value))(value, self)
        if type(packable) is list:
            self.marks = True
        return packable

    def in_order(self, items: frozenset[Any] | set[Any]) -> list[Any]:
        """Return `items` in the order of their encodings."""
        # Each is ordered once, or nested ones would be packed twice as often at each level.
        # The set is kept, since another could get its id; and looked at again, since a
        # `to_fields` may fill one set anew for each object.
        kept, found = self._in_order.get(id(items), (None, []))
        if kept is not items or len(found) != len(items) or not all(map(items.__contains__, found)):
            outer, self._ordering = self._ordering, True
            found = sorted(items, key=self._packer(autoreset=True).pack)
            self._in_order[id(items)] = items, found
            self._ordering = outer
        return found

    def spend(self, pattern_length: int) -> None:
        """Count a pattern's length, see `containers.Encoding`."""
        self._pattern_lengths += pattern_length
        if self._pattern_lengths > containers.MAX_PATTERNS:
            raise Unsupported(
                f"patterns of more than {containers.MAX_PATTERNS} characters in a state are not serializable"
            )

    def aside(self, data: bytes | memoryview) -> bytes | memoryview | None:
        """Put an array's bytes behind the value, if it is large."""
        # What is packed to be compared is not written, and is compared with all that is in it.
        if self._ordering or len(data) < LEAST_ASIDE:
            return data
        if self._aside is None:
            self._aside = self._packer(autoreset=False)
        self._aside.pack(data)  # now, for the array may be one that its owner fills anew for each object
        return None

    def _packer(self, *, autoreset: bool) -> Any:
        from msgpack import Packer

        return Packer(default=self, strict_types=True, unicode_errors="surrogatepass", autoreset=autoreset)
