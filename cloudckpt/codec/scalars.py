"""Single values that msgpack has no type for: one extension each.

Owns: the payload of each such extension. Invariant: `load(dump(x))` equals `x`
in type and value, and equal values of one type have equal payloads. Any other
payload gives a value or an exception, in time linear in its length. Modules
that cost import time are imported when a value of theirs turns up.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cloudckpt.codec import wire
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import UnsupportedFormatError

if TYPE_CHECKING:
    import uuid
    from decimal import Decimal
    from fractions import Fraction
    from pathlib import PurePath
    from zoneinfo import ZoneInfo

_COMPLEX: Final = struct.Struct(">dd")
_DATE: Final = struct.Struct(">HBB")
_DATETIME: Final = struct.Struct(">HBBBBBIB")
_TIME: Final = struct.Struct(">BBBIB")
_DELTA: Final = struct.Struct(">iII")
_LENGTH: Final = struct.Struct(">I")

_FIXED_ZONE, _NAMED_ZONE, _REGION = b"\x01", b"\x02", b"\x03"
_REGION_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")

# From the start, so that a scope that looks like it stays as it is.
_DOTTED: Final = re.compile(r"(?<=^::ffff):([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)")

# A path's and an address's class is its place in these; they only ever grow at the end.
_PATHS: Final = ("PurePosixPath", "PureWindowsPath", "PosixPath", "WindowsPath")
_IPS: Final = (
    "IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface"
)  # fmt: skip

# The greatest common divisor takes time in the square of the length.
_MAX_FRACTION_BYTES: Final = 4096


class Scalar(NamedTuple):
    """One row: the extension's code, value to payload, payload to value."""

    code: int
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]


def find(cls: type) -> Scalar | None:
    """Return the row of exactly this class, not of a subclass."""
    if cls is type(...):  # the one whose name leads to nothing
        return SCALARS["builtins.ellipsis"]
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        return None
    return SCALARS.get(f"{cls.__module__}.{cls.__qualname__}")


def _dump_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _load_int(payload: bytes) -> int:
    return int.from_bytes(payload, "big", signed=True)


def _dump_complex(value: complex) -> bytes:
    return _COMPLEX.pack(value.real, value.imag)


def _load_complex(payload: bytes) -> complex:
    return complex(*_COMPLEX.unpack(payload))


def _dump_date(value: date) -> bytes:
    return _DATE.pack(value.year, value.month, value.day)


def _load_date(payload: bytes) -> date:
    return date(*_DATE.unpack(payload))


def _dump_datetime(value: datetime) -> bytes:
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    return _DATETIME.pack(value.year, value.month, value.day, *clock) + _dump_zone(value.tzinfo)


def _load_datetime(payload: bytes) -> datetime:
    *parts, fold = _DATETIME.unpack_from(payload)
    return datetime(*parts).replace(tzinfo=_load_zone(payload[_DATETIME.size :]), fold=fold)


def _dump_time(value: time) -> bytes:
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    return _TIME.pack(*clock) + _dump_zone(value.tzinfo)


def _load_time(payload: bytes) -> time:
    *parts, fold = _TIME.unpack_from(payload)
    return time(*parts).replace(tzinfo=_load_zone(payload[_TIME.size :]), fold=fold)


def _dump_timedelta(value: timedelta) -> bytes:
    return _DELTA.pack(value.days, value.seconds, value.microseconds)


def _load_timedelta(payload: bytes) -> timedelta:
    return timedelta(*_DELTA.unpack(payload))


def _dump_zone(zone: tzinfo | None) -> bytes:
    if zone is None:
        return b""
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        if not name:
            return _FIXED_ZONE + _dump_timedelta(offset)
        text: str = name[0]
        return _NAMED_ZONE + _dump_timedelta(offset) + text.encode("utf-8", "surrogatepass")
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is not None and type(zone) is zoneinfo.ZoneInfo:
        return _dump_region(zone.key)  # type: ignore[attr-defined]
    raise Unsupported(f"a time zone of type {type(zone).__qualname__} is not serializable; use zoneinfo")


def _dump_region(name: str | None) -> bytes:
    if name is None or not _REGION_NAME.fullmatch(name):
        raise Unsupported("a time zone that is not of the tz database is not serializable")
    return _REGION + name.encode()


def _load_zone(payload: bytes) -> tzinfo | None:
    if not payload:
        return None
    kind, rest = payload[:1], payload[1:]
    if kind == _FIXED_ZONE:
        return timezone(_load_timedelta(rest))
    if kind == _NAMED_ZONE:
        offset, name = rest[: _DELTA.size], rest[_DELTA.size :]
        return timezone(_load_timedelta(offset), name.decode("utf-8", "surrogatepass"))
    if kind == _REGION:
        return _load_region(rest.decode("ascii"))
    raise ValueError("unknown kind of time zone")


def _load_region(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if not _REGION_NAME.fullmatch(name):
        raise ValueError("not the name of a time zone")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise UnsupportedFormatError(
            "the state holds a time in a zone that this machine does not know; install tzdata",
            kind="unknown-zone",
            zone=name,
        ) from error


def _load_timezone(payload: bytes) -> tzinfo:
    zone = _load_zone(payload)
    if zone is None:
        raise ValueError("a time zone without content")
    return zone


def _dump_uuid(value: uuid.UUID) -> bytes:
    return value.bytes + (b"" if value.is_safe.value is None else _dump_int(value.is_safe.value))


def _load_uuid(payload: bytes) -> uuid.UUID:
    import uuid

    safe = _load_int(payload[16:]) if len(payload) > 16 else None
    return uuid.UUID(bytes=payload[:16], is_safe=uuid.SafeUUID(safe))


def _dump_decimal(value: Decimal) -> bytes:
    return str(value).encode("ascii")


def _load_decimal(payload: bytes) -> Decimal:
    from decimal import Decimal

    return Decimal(payload.decode("ascii"))


def _dump_fraction(value: Fraction) -> bytes:
    top, bottom = _dump_int(value.numerator), _dump_int(value.denominator)
    if max(len(top), len(bottom)) > _MAX_FRACTION_BYTES:
        raise Unsupported(f"a fraction of more than {_MAX_FRACTION_BYTES} bytes a side is not serializable")
    return _LENGTH.pack(len(top)) + top + bottom


def _load_fraction(payload: bytes) -> Fraction:
    from fractions import Fraction

    (length,) = _LENGTH.unpack_from(payload)
    top, bottom = payload[_LENGTH.size :][:length], payload[_LENGTH.size + length :]
    if max(len(top), len(bottom)) > _MAX_FRACTION_BYTES:
        raise ValueError("a fraction that is too long")
    return Fraction(_load_int(top), _load_int(bottom))


def _dump_path(value: PurePath) -> bytes:
    text = str(value)
    if type(value)(text) != value:
        raise Unsupported("a path that its own text does not name is not serializable")
    return _PATHS.index(type(value).__name__).to_bytes() + text.encode("utf-8", "surrogatepass")


def _load_path(payload: bytes) -> PurePath:
    import pathlib

    name, text = _PATHS[payload[0]], payload[1:].decode("utf-8", "surrogatepass")
    if name == type(pathlib.Path()).__name__:
        path: PurePath = pathlib.Path(text)
    else:  # a concrete path of another system can't exist here, so it is a pure one
        path = pathlib.PureWindowsPath(text) if "Windows" in name else pathlib.PurePosixPath(text)
    if str(path) != text:  # 3.12 has paths of Windows that 3.11 lacks, such as ./c:a, a file with a stream
        raise UnsupportedFormatError(
            "the state holds a path that this Python takes for another; load it with a newer Python",
            kind="unknown-path",
            path=text,
        )
    return path


def _dump_ip(value: Any) -> bytes:
    text = _DOTTED.sub(_as_groups, str(value)) if value.version == 6 else str(value)
    return _IPS.index(type(value).__name__).to_bytes() + text.encode("ascii")


def _as_groups(dotted: re.Match[str]) -> str:
    """Return the end of an address that holds one of version 4 as Python wrote it up to 3.12."""
    a, b, c, d = map(int, dotted.groups())
    return f":{a << 8 | b:x}:{c << 8 | d:x}"


def _load_ip(payload: bytes) -> Any:
    import ipaddress

    return getattr(ipaddress, _IPS[payload[0]])(payload[1:].decode("ascii"))


def _load_ellipsis(payload: bytes) -> Any:
    if payload:
        raise ValueError("an ellipsis with content")
    return ...


SCALARS: Final[dict[str, Scalar]] = {
    "builtins.int": Scalar(wire.INT, _dump_int, _load_int),
    "builtins.complex": Scalar(wire.COMPLEX, _dump_complex, _load_complex),
    "datetime.datetime": Scalar(wire.DATETIME, _dump_datetime, _load_datetime),
    "datetime.date": Scalar(wire.DATE, _dump_date, _load_date),
    "datetime.time": Scalar(wire.TIME, _dump_time, _load_time),
    "datetime.timedelta": Scalar(wire.TIMEDELTA, _dump_timedelta, _load_timedelta),
    "datetime.timezone": Scalar(wire.TIMEZONE, _dump_zone, _load_timezone),
    "zoneinfo.ZoneInfo": Scalar(wire.TIMEZONE, _dump_zone, _load_timezone),
    "uuid.UUID": Scalar(wire.UUID, _dump_uuid, _load_uuid),
    "decimal.Decimal": Scalar(wire.DECIMAL, _dump_decimal, _load_decimal),
    "fractions.Fraction": Scalar(wire.FRACTION, _dump_fraction, _load_fraction),
    "builtins.ellipsis": Scalar(wire.ELLIPSIS, lambda _: b"", _load_ellipsis),
    **{f"ipaddress.{name}": Scalar(wire.IP, _dump_ip, _load_ip) for name in _IPS},
    **{
        f"{module}.{name}": Scalar(wire.PATH, _dump_path, _load_path)
        for name in _PATHS
        for module in ("pathlib", "pathlib._local")  # where the classes are in 3.13
    },
}

LOADERS: Final = {scalar.code: scalar.load for scalar in SCALARS.values()}
