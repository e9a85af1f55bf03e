"""Why a state can't be carried: every fault with its path.

Owns: the walk over a state that the packer refused. It runs only then, so it
may be slow, and it asks the same encoders. Invariant: it ends on any state,
cyclic and deep ones too; a value that is reached twice is walked once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cloudckpt.codec import wire
from cloudckpt.codec.encoders import parts_of, strays_of
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import SerializationError

_SHOWN: Final = 10
_LONGEST_PATH: Final = 160
_ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes, bytearray})


class Fault(NamedTuple):
    """Where, and what is wrong there."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Visit:
    """A value on the way; `leaving` when all its parts were looked at."""

    value: Any
    path: str
    depth: int
    leaving: bool = False


def explain(state: object, cause: Exception) -> SerializationError:
    """Return the error for a state that the packer refused with `cause`."""
    faults = list(_walk(state))
    if not faults:
        if isinstance(cause, RuntimeError) and "changed size" in str(cause):
            return SerializationError("the state was changed by another thread while it was encoded")
        if isinstance(cause, Unsupported):
            return SerializationError(f"state: {cause.reason}", paths=("state",))
        return SerializationError("the state can't be encoded; see the cause", kind="refused-by-packer")
    lines = [f"{_shorten(path)}: {reason}" for path, reason in faults[:_SHOWN]]
    if len(faults) > _SHOWN:
        lines.append(f"and {len(faults) - _SHOWN} more, see paths")
    return SerializationError("; ".join(lines), paths=tuple(_shorten(path) for path, _ in faults))


def _walk(state: object) -> Iterator[Fault]:
    """Look at every value once, in the order of the state, without recursion."""
    pending = [_Visit(state, "state", 0)]
    above: dict[int, str] = {}  # what the value at hand is inside of
    seen: dict[int, Any] = {}  # holds the values, so that no id is used twice
    while pending:
        visit = pending.pop()
        number = id(visit.value)
        if visit.leaving:
            del above[number]
        elif number in above:
            yield Fault(visit.path, f"leads back to {_shorten(above[number])}; a cycle is not serializable")
        elif visit.depth > wire.MAX_DEPTH:
            yield Fault(visit.path, f"is nested in more than {wire.MAX_DEPTH} levels")
        elif number not in seen and type(visit.value) not in _ATOMS:
            above[number] = visit.path
            pending.append(_Visit(visit.value, visit.path, visit.depth, leaving=True))
            found = list(_look_at(visit))
            if not any(isinstance(part, Fault) for part in found):  # a faulty one is named at each place
                seen[number] = visit.value
            yield from (part for part in found if isinstance(part, Fault))
            pending.extend(part for part in reversed(found) if isinstance(part, _Visit))


def _look_at(visit: _Visit) -> Iterator[Fault | _Visit]:
    value, path = visit.value, visit.path
    try:
        for suffix, reason in strays_of(value):
            yield Fault(path + suffix, reason)
        for suffix, part, levels in parts_of(value):
            yield _Visit(part, path + suffix, visit.depth + levels)
    except Unsupported as unsupported:
        yield Fault(path, unsupported.reason)
    except Exception as error:  # noqa: BLE001 - an object's own code may raise anything when it is read
        yield Fault(path, f"reading it raised {type(error).__name__}: {error}")


def _shorten(path: str) -> str:
    half = _LONGEST_PATH // 2
    return path if len(path) <= _LONGEST_PATH else f"{path[:half]}...{path[-half:]}"
