"""States of every kind of class that hold a secret, and what is in their bytes.

Owns: one class of each library, with a field for the secret, and the look at the bytes
before they are compressed. The rules are the tests' own.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

import attrs
import msgspec
import pydantic

from cloudckpt.codec import decode, encode, frame, register
from cloudckpt.codec.redaction import Rules

SECRET = "sk-abcdefghij0123456789"
KEY = re.compile(r"sk-[A-Za-z0-9]{20,}")


@dataclasses.dataclass
class User:
    name: str
    token: str = ""
    image: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    token: str
    rest: list[Any] = dataclasses.field(default_factory=list)


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, strict=True)
    token: str
    count: int = 0
    _private: str = pydantic.PrivateAttr(default="")


class Struct(msgspec.Struct, frozen=True):
    token: str
    note: str | msgspec.UnsetType = msgspec.UNSET


@attrs.frozen
class Attrs:
    token: str = attrs.field(validator=attrs.validators.instance_of(str))
    note: str = ""


class Named(typing.NamedTuple):
    token: str
    note: str = ""


class Plain:
    def __init__(self, token: str) -> None:
        self.token = token


register("test-redaction-plain", to_fields=lambda p: {"token": p.token}, from_fields=lambda f: Plain(**f))(
    Plain
)


def packed(state: object) -> bytes:
    """Return the bytes of a state before compression."""
    return frame.unseal(encode(state).data, max_bytes=1 << 30)[0]


def holds_secret(state: object) -> bool:
    found = packed(state)
    return any(SECRET.encode(each) in found for each in ("utf-8", "utf-16-le", "utf-32-le"))


def saved(state: Any, *redact: Any, exclude: tuple[str, ...] = ()) -> Any:
    """Return what comes back of a state; the state itself stays as it was."""
    before = packed(state)
    returned = decode(encode(Rules(exclude, redact).apply(state)).data)
    assert packed(state) == before
    return returned
