"""A loaded state as JSON that people and programs can read.

Owns: what stands in JSON for what JSON has no type for. Invariant: what is not plain is
an object whose first key begins with ``$``, and nothing else is, so nothing passes for
what it is not; where JSON can hold a value, it is that value.

    null, bool, str, whole number, finite float     themselves
    list, dict with str keys                        array, object
    object with fields                              {"$record": "Task/2", "title": ..., "done": ...}
    bytes                                           {"$bytes": "aGk="}, in base64
    NaN, infinities                                 {"$float": "nan"}
    tuple, set, frozenset, deque, ChainMap          {"$tuple": [...]}; a set in the order of its bytes
    other dicts, and those with a key from ``$``    {"$dict": [[key, value], ...]}
    numpy arrays                                    {"$ndarray": [...], "dtype": "<f8", "shape": [2, 3]}
    enum members without their class                as objects with fields
    all else                                        {"$datetime": "2026-01-02T03:04:05+00:00"}: type and text

It is for reading: a state is not built from it again.
"""

from __future__ import annotations

import base64
import enum
import sys
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Final

from cloudckpt.codec import views
from cloudckpt.codec.encoding import pack

_PLAIN: Final = frozenset({type(None), bool, int, str})


def readable(state: Any) -> Any:
    """Return a state as values that `json.dumps` takes.

    Args:
        state: As it was loaded, or a part of it.

    Raises:
        RecursionError: It is nested deeper than Python's recursion limit.
    """
    cls = type(state)
    if cls in _PLAIN:
        return state
    if cls is float:
        return state if state - state == 0 else {"$float": repr(state)}
    if cls in (bytes, bytearray, memoryview):
        return {"$bytes": base64.b64encode(state).decode()}
    items = views.items_of(state)
    if items is not None:
        return _mapping(state, items)
    places = sorted(state, key=_packed) if cls in views.SETS else views.places_of(state)
    if places is not None:
        found = [readable(item) for item in places]
        return found if cls is list else {f"${cls.__name__}": found}
    fields = views.fields_of(state)
    return _single(state) if fields is None else _record(fields)


def _packed(value: Any) -> bytes:
    return bytes(pack(value).value)


def _mapping(state: Any, items: Mapping[Any, Any]) -> Any:
    if all(type(key) is str and key[:1] != "$" for key in items):
        content: Any = {key: readable(item) for key, item in items.items()}
        if type(state) is dict:
            return content
    else:
        content = [[readable(key), readable(item)] for key, item in items.items()]
    return {f"${type(state).__name__}": content}


def _record(fields: views.Fields) -> dict[str, Any]:
    found: dict[str, Any] = {"$record": f"{fields.tag}/{fields.version}"}
    if any(name[:1] == "$" for name in fields.values):
        found["$fields"] = [[name, readable(item)] for name, item in fields.values.items()]
    else:
        found |= {name: readable(item) for name, item in fields.values.items()}
    if fields.unset:
        found["$unset"] = list(fields.unset)
    return found


def _single(value: Any) -> dict[str, Any]:
    """Return a value without parts: its type, and the text that is usual for it."""
    name = f"${type(value).__name__}"
    np: Any = sys.modules.get("numpy")
    if np is not None and isinstance(value, np.ndarray):
        dtype = value.dtype.str if value.dtype.names is None else str(value.dtype)
        return {name: readable(value.tolist()), "dtype": dtype, "shape": list(value.shape)}
    if np is not None and isinstance(value, np.generic):
        return {name: readable(value.item()), "dtype": value.dtype.str}
    if isinstance(value, enum.Enum):
        return {name: value.name}
    if isinstance(value, datetime | date | time):
        return {name: value.isoformat()}
    return {name: str(value)}
