"""What of a value must not change when it is saved and loaded, where Python's == would say too little."""

from __future__ import annotations

import collections
import dataclasses
import struct
import types
import uuid
from collections.abc import Mapping
from datetime import datetime, time, timezone
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pydantic


def facts(value: Any) -> Any:
    """Return what must not change, as something that compares by value, NaN included."""
    kind = type(value)
    if isinstance(value, float):
        return kind, struct.pack(">d", value)
    if isinstance(value, complex):
        return kind, struct.pack(">dd", value.real, value.imag)
    if isinstance(value, np.ndarray | np.generic):
        order = value.flags.c_contiguous, value.flags.f_contiguous
        return kind, value.dtype, value.dtype.isalignedstruct, value.shape, order, _item_bytes(value)
    if kind in (list, tuple, collections.deque):
        return kind, getattr(value, "maxlen", None), [facts(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(map(repr, map(facts, value)))
    if isinstance(value, collections.ChainMap):
        return kind, facts(value.maps)
    if isinstance(value, types.MappingProxyType):
        return kind, facts(value.copy())
    if isinstance(value, slice | types.SimpleNamespace):
        return kind, facts(value.__reduce__()[1:])
    if isinstance(value, Mapping):
        return (
            kind,
            getattr(value, "default_factory", None),
            [(facts(key), facts(item)) for key, item in value.items()],
        )
    if isinstance(value, datetime | time):
        return kind, value.replace(tzinfo=None), value.fold, facts(value.tzinfo)
    if isinstance(value, timezone):
        return kind, value.__getinitargs__()
    if isinstance(value, Decimal):
        return kind, str(value)
    if isinstance(value, uuid.UUID):
        return kind, value.int, value.is_safe
    if dataclasses.is_dataclass(value):
        return kind, [facts(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return kind, [facts(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, pydantic.BaseModel):
        extra, private = value.__pydantic_extra__, value.__pydantic_private__
        parts = [facts(part) for part in (value.__dict__, extra, private) if part is not None]
        return kind, parts, value.__pydantic_fields_set__
    return kind, value


def _item_bytes(array: Any) -> Any:
    """The items of an array, without what lies between them."""
    if array.dtype.names is not None:
        return [_item_bytes(array[name]) for name in array.dtype.names]
    if array.dtype.char in "gG":
        return repr(array.tolist()), [f"{x!r}" for x in np.asarray(array).ravel()]
    return array.tobytes()
