"""What a stepped process holds in memory, as one value that can be compared.

Owns: `read_memory`. Two processes of equal memory do the same from there on. Coroutines
are read as they stand: where each is, its variables, and what it holds half-done.
Invariant: a kind of object that this module does not know is refused, never left out.
Left out are tracebacks and causes of errors, which no code under test looks at, and
`Effects`, which are what a process gets and not what it has.
"""

from __future__ import annotations

import gc
import hashlib
import marshal
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

from cloudckpt.effects import Effects
from tests.protocol.naming import names_in

OURS = ("cloudckpt", "tests", "contextlib")
"""Whose classes are made of nothing but their attributes."""

NO_VALUE = ("no value",)
_PLAIN = frozenset((type(None), bool, int, float, str, bytes))


class Memory(NamedTuple):
    """A digest of it all, and the names of objects that are anywhere in it."""

    digest: bytes
    names: frozenset[str]


def read_memory(*values: object) -> Memory:
    """Read everything that the values reach.

    Raises:
        TypeError: Something of it can't be read.
    """
    flat: list[Any] = []
    seen: dict[int, int] = {}
    kept = []  # an address means something only while its object lives
    todo: list[Any] = list(reversed(values))
    while todo:
        one = todo.pop()
        kind = type(one)
        if kind in _PLAIN:
            flat.append(one)
        elif id(one) in seen:
            flat.append((seen[id(one)],))
        else:
            seen[id(one)] = len(seen)
            parts = (_READERS.get(kind) or _reader(kind))(one)
            kept.append((one, parts))
            flat.append((kind.__qualname__, len(parts)))
            todo += reversed(parts)
    texts = (one for one in flat if type(one) is bytes or type(one) is str)
    names = frozenset().union(*map(names_in, texts))
    return Memory(hashlib.blake2b(marshal.dumps(flat, 2), digest_size=16).digest(), names)


def _reader(kind: type) -> Callable[[Any], list[Any]]:
    """Return what lists the parts of an object of this kind, in an order that depends on nothing else."""
    if issubclass(kind, type):
        found = _by_address
    elif issubclass(kind, BaseException):
        found = _of_error
    elif kind.__module__.partition(".")[0] in OURS:
        found = _of_object
    elif kind.__module__ == "builtins" and hasattr(kind, "__next__"):
        found = _of_iterator
    else:
        raise TypeError(f"its memory can't be read: {kind.__module__}.{kind.__qualname__}")
    _READERS[kind] = found
    return found


def _of_dict(one: dict[Any, Any]) -> list[Any]:
    return [part for item in one.items() for part in item]


def _of_running(one: Any) -> list[Any]:
    frame = one.cr_frame if type(one) is CoroutineType else one.gi_frame
    if frame is None:
        return []
    # What the collector of garbage sees: the variables, and what lies on the frame's stack, in order.
    return [frame.f_lasti, *(part for part in gc.get_referents(one) if type(part) is not FrameType)]


def _of_function(one: FunctionType) -> list[Any]:
    return [one.__code__, one.__defaults__, one.__kwdefaults__, *(one.__closure__ or ())]


def _of_cell(one: CellType) -> list[Any]:
    try:
        return [one.cell_contents]
    except ValueError:
        return []  # of a variable that has no value yet


def _of_error(one: BaseException) -> list[Any]:
    return [one.args, *_of_object(one)]


def _of_iterator(one: Any) -> list[Any]:
    return list(one.__reduce__())


def _of_object(one: Any) -> list[Any]:
    return [
        *_of_dict(getattr(one, "__dict__", {})),
        *(getattr(one, name, NO_VALUE) for name in _slots(type(one))),
    ]


@cache
def _slots(kind: type) -> list[str]:
    return [name for base in kind.__mro__ for name in base.__dict__.get("__slots__", ())]


def _by_address(one: object) -> list[Any]:
    return [id(one)]  # which lives as long as this program


_READERS: dict[type, Callable[[Any], list[Any]]] = {
    list: list,
    tuple: list,
    deque: list,
    dict: _of_dict,
    set: sorted,
    frozenset: sorted,
    CoroutineType: _of_running,
    GeneratorType: _of_running,
    FunctionType: _of_function,
    CellType: _of_cell,
    MethodType: lambda one: [one.__func__, one.__self__],
    BuiltinFunctionType: lambda one: [one.__name__, one.__self__],
    partial: lambda one: [one.func, one.args, one.keywords],
    datetime: lambda one: [one.isoformat()],
    range: lambda one: [one.start, one.stop, one.step],
    CodeType: _by_address,
    type: _by_address,
    MethodDescriptorType: _by_address,
    ModuleType: _by_address,
    Effects: lambda _: [],
}
