"""The type matrix: a value of every type that a state may hold, by a name that says which."""

from __future__ import annotations

import collections
import dataclasses
import enum
import ipaddress
import math
import os
import pathlib
import re
import struct
import types
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import attrs
import msgpack
import msgspec
import numpy as np
import pydantic

from cloudckpt.codec import register


@register("matrix-point")
@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@register("matrix-slotted/v3")
@dataclasses.dataclass(slots=True)
class Slotted:
    point: Point
    names: list[str] = dataclasses.field(default_factory=list)


@register("matrix-with-init-var")
@dataclasses.dataclass
class WithInitVar:
    seed: dataclasses.InitVar[int]
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, seed: int) -> None:
        self.total += seed


@register("matrix-model")
class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    name: str
    tags: set[str] = set()
    _private: int = 3


@register("matrix-frozen-model")
class FrozenModel(pydantic.BaseModel, frozen=True):
    n: int


@register("matrix-struct")
class Struct(msgspec.Struct, frozen=True):
    n: int
    pair: tuple[int, int] | None = None
    late: int | msgspec.UnsetType = msgspec.UNSET


@register("matrix-attrs")
@attrs.define
class Attrs:
    a: int
    _hidden_name: list[int] = attrs.Factory(list)


@register("matrix-attrs-frozen")
@attrs.frozen
class FrozenAttrs:
    a: int


@register("matrix-enum")
class Colour(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - another name of the same member
    GREEN = object()


@register("matrix-int-enum")
class Level(enum.IntEnum):
    LOW = 1


@register("matrix-str-enum")
class Word(enum.StrEnum):
    YES = "yes"


@register("matrix-flag")
class Right(enum.Flag):
    READ = 1
    WRITE = 2


@register("matrix-named-tuple")
class Place(NamedTuple):
    x: int
    note: str | None = None


Pair = register("matrix-pair")(collections.namedtuple("Pair", "left right"))  # noqa: PYI024 - the other kind


class Options(TypedDict, total=False):
    depth: int
    names: tuple[str, ...]


class Celsius:
    """A class without fields, as a library has them."""

    def __init__(self, degrees: float) -> None:
        self._degrees = degrees

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Celsius) and self._degrees == other._degrees

    def __hash__(self) -> int:
        return hash(self._degrees)

    def __repr__(self) -> str:
        return f"Celsius({self._degrees})"


register("matrix-celsius", to_fields=lambda c: {"degrees": c._degrees}, from_fields=lambda f: Celsius(**f))(
    Celsius
)

BERLIN = ZoneInfo("Europe/Berlin")
SURROGATES = "\ud800 lone, \udfff too"

HASHABLE: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "int zero": 0,
    "int 64 bits": 2**64 - 1,
    "int -64 bits": -(2**63),
    "int 65 bits": 2**64,
    "int -65 bits": -(2**63) - 1,
    "int of 4000 bits": -(3**2500),
    "float": 0.1,
    "float -0.0": -0.0,
    "float nan": math.nan,
    "float nan with payload": struct.unpack(">d", b"\x7f\xf8\x00\x00\x00\x00\x12\x34")[0],
    "float inf": math.inf,
    "float -inf": -math.inf,
    "float smallest": 5e-324,
    "complex": complex(-0.0, math.inf),
    "str": "text",
    "str empty": "",
    "str with nul": "a\0b",
    "str wide": "é漢😀",
    "str with lone surrogates": SURROGATES,
    "bytes": b"\x00\xff",
    "tuple": (1, "1", (2.0, ())),
    "tuple empty": (),
    "frozenset": frozenset({(1, 2), "x", frozenset({None, b""})}),
    "datetime naive": datetime(2024, 2, 29, 23, 59, 59, 999_999),
    "datetime first": datetime.min,
    "datetime utc": datetime(2024, 1, 1, tzinfo=UTC),
    "datetime offset": datetime(
        2024, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30, microseconds=7))
    ),
    "datetime named offset": datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET \ud800")),
    "datetime zoneinfo": datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
    "datetime zoneinfo fold": datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    "date": date(1, 1, 1),
    "time": time(12, 30, 1, 5),
    "time zoned fold": time(2, 30, tzinfo=BERLIN, fold=1),
    "timedelta": timedelta(days=-1, microseconds=1),
    "timedelta largest": timedelta.max,
    "timezone": timezone(timedelta(hours=5, minutes=45)),
    "timezone named": timezone(timedelta(0), "Zulu"),
    "zoneinfo": BERLIN,
    "uuid": uuid.UUID(int=2**128 - 1),
    "uuid known as safe": uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe),
    "decimal": Decimal("-1.50E-300"),
    "decimal -0": Decimal("-0E+5"),
    "decimal nan with payload": Decimal("-NaN123"),
    "decimal inf": Decimal("-Infinity"),
    "fraction": Fraction(-22, 7),
    "msgpack ext type": msgpack.ExtType(1, b"\x01"),
    "msgpack timestamp": msgpack.Timestamp(1, 2),
    "dataclass frozen": Point(1.5, math.nan),
    "dataclass nested in tuple": (Point(1, 2), Point(1, 2)),
    "range": range(10**30, 0, -3),
    "ellipsis": ...,
    "pattern": re.compile(r"(?P<a>\d+)\0", re.IGNORECASE | re.VERBOSE),
    "pattern of bytes": re.compile(rb"[\x80-\xff]", re.LOCALE),
    "path": pathlib.Path("a/../b c"),
    "path absolute": pathlib.Path("/é/x"),
    "path undecodable": pathlib.Path(os.fsdecode(b"/\xff")),
    "path pure posix": pathlib.PurePosixPath("//double/slash"),
    "path pure windows": pathlib.PureWindowsPath("C:\\Users\\x"),
    "path pure windows share": pathlib.PureWindowsPath("\\\\host\\share\\x"),
    "ipv4 address": ipaddress.ip_address("127.0.0.1"),
    "ipv6 address": ipaddress.ip_address("fe80::1%eth0"),
    "ipv4 network": ipaddress.ip_network("10.0.0.0/8"),
    "ipv6 network": ipaddress.ip_network("2001:db8::/32"),
    "ipv4 interface": ipaddress.ip_interface("10.1.2.3/8"),
    "ipv6 interface": ipaddress.ip_interface("2001:db8::1/64"),
    "ipv6 address that holds one of v4": ipaddress.ip_address("::ffff:1.2.3.4"),  # dotted in str from 3.13 on
    "ipv6 address that holds one of v4, scoped": ipaddress.ip_address("::ffff:255.0.0.16%1.2.3.4"),
    "ipv6 network that holds those of v4": ipaddress.ip_network("::ffff:0.0.0.0/96"),
    "ipv6 interface that holds one of v4": ipaddress.ip_interface("::ffff:192.168.1.2/96"),
    "enum": Colour.RED,
    "enum of an object": Colour.GREEN,
    "enum int": Level.LOW,
    "enum str": Word.YES,
    "flag": Right.READ,
    "flags combined": Right.READ | Right.WRITE,
    "flags none": Right(0),
    "named tuple": Place(1, "n"),
    "named tuple of collections": Pair((1,), None),
    "attrs frozen": FrozenAttrs(1),
    "class by functions": Celsius(21.5),
    "numpy int8": np.int8(-1),
    "numpy uint64": np.uint64(2**64 - 1),
    "numpy bool": np.True_,
    "numpy float16": np.float16(1.5),
    "numpy float64": np.float64(-0.0),
    "numpy longdouble": np.longdouble(1) / 3,
    "numpy complex64": np.complex64(1 - 2j),
    "numpy str": np.str_("é\ud800"),
    "numpy str with nul at its end": np.str_("a\0"),
    "numpy bytes": np.bytes_(b"\xff\0"),
    "numpy datetime64": np.datetime64("2024-01-01T00:00:00.5", "ms"),
    "numpy datetime64 nat": np.datetime64("NaT", "us"),
    "numpy timedelta64": np.timedelta64(-5, "25s"),
    "pydantic model frozen": FrozenModel(n=1),
    "msgspec struct frozen": Struct(1, (2, 3)),
}

UNHASHABLE: dict[str, Any] = {
    "list": [1, [2, []]],
    "set": {1, "1", (1,), None, 2.5},
    "set of tuples": {(1, frozenset({2})), ("a", "b")},
    "dict": {"b": 1, "a": {}},
    "dict with any keys": {
        1: "int",
        "1": "str",
        None: 0,
        (1, 2): "tuple",
        2.5: 0,
        b"1": 0,
        frozenset({1}): [],
    },
    "dict like an envelope": {
        "__type__": "tuple",
        "ckpt": [1, 2],
        "tag": "Point",
        "version": 1,
        "fields": {},
    },
    "list like an envelope": ["tuple", 1, 2],
    "list of mark-like bytes": [b"\xd4\xfe\x01", 1],
    "decimal signalling nan": Decimal("sNaN7"),
    "dataclass slotted": Slotted(Point(1), ["a"]),
    "dataclass with InitVar": WithInitVar(4),
    "slice": slice(None, "x", [1]),
    "deque": collections.deque([1, (2,)]),
    "deque with maxlen": collections.deque("abc", maxlen=3),
    "deque of none": collections.deque(maxlen=0),
    "ordered dict": collections.OrderedDict([("b", 1), (2, {"c": 3})]),
    "counter": collections.Counter({"a": 2, (1,): -1, "zero": 0}),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "defaultdict without factory": collections.defaultdict(None, {"a": 1}),
    "defaultdict of counters": collections.defaultdict(collections.Counter),
    "chain map": collections.ChainMap({"a": 1}, {"b": collections.OrderedDict(a=2)}),
    "mapping proxy": types.MappingProxyType({"a": [1], 2: "x"}),
    "mapping proxy of ordered dict": types.MappingProxyType(collections.OrderedDict(a=1)),
    "namespace": types.SimpleNamespace(a=1, b={"c": (1,)}),
    "typed dict": Options(depth=1, names=("a",)),
    "attrs": Attrs(1, [2]),
    "numpy array": np.arange(6).reshape(2, 3),
    "numpy array big-endian": np.arange(3, dtype=">u2"),
    "numpy array 0-d": np.array(5.0),
    "numpy array empty": np.zeros((2, 0, 3), np.int16),
    "numpy array fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "numpy array 3-d fortran": np.asfortranarray(np.arange(24, dtype=np.int8).reshape(2, 3, 4)),
    "numpy array of bool": np.array([True, False]),
    "numpy array of float16": np.array([1.5, np.nan, -0.0], np.float16),
    "numpy array of longdouble": np.array([1, 3], np.longdouble) / 7,
    "numpy array of clongdouble": np.array([1, 3j], np.clongdouble) / 7,
    "numpy array of complex": np.array([1 + 2j]),
    "numpy array of str": np.array(["é", "abc", ""]),
    "numpy array of empty str": np.array([""], "<U0"),
    "numpy array of bytes": np.array([b"a\0b", b""]),
    "numpy array of void": np.array([b"ab"], "V2"),
    "numpy array of datetime64": np.array(["2024-01-01", "NaT"], "M8[ns]"),
    "numpy array of timedelta64": np.array([1, 2], "m8[25s]"),
    "numpy array structured": np.array([(1, [2.5, 3], "x")], [("a", "u1"), ("b", "<f4", (2,)), ("c", "U3")]),
    "numpy array aligned": np.ones(2, np.dtype([("a", "u1"), ("b", "f8"), ("n", [("x", "i2")])], align=True)),
    "numpy array with gaps": np.ones(
        2, np.dtype({"names": ["b", "a"], "formats": ["i2", "u1"], "offsets": [4, 1], "itemsize": 9})
    ),
    "numpy array large": np.tile(np.arange(256, dtype="<u2"), (128, 1)),
    "numpy structured scalar": np.array([(1, 2.5)], [("a", "u1"), ("b", "f8")])[0],
    "pydantic model": Model(name="n", tags={"b", "a"}, more={"any": (1,)}),
    "pydantic model in list": [Model(name="n"), Model(name="n", tags=set())],
}

ROWS = {**HASHABLE, **UNHASHABLE}
