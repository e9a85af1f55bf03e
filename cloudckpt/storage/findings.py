"""What a check of a store found, and what an engine may tell of its own store.

Owns: the words in which the doctor and the engines' inspections speak. A finding
is data: `cli/doctor.py` alone prints. Invariant: a finding never holds a secret,
and its facts are JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from cloudckpt.errors import CloudckptError


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and may cost space, money or secrecy."""
    FAULT = "fault"
    """Saves or loads fail, or what is saved can get lost."""
    UNKNOWN = "unknown"
    """It could not be told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: Its name: stable, for programs.
        level: How bad it is.
        found: What was seen, in a sentence.
        do: What to do about it, or "".
        facts: The same for programs, as JSON values.
    """

    check: str
    level: Level
    found: str
    do: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def ok(check: str, found: str, **facts: Any) -> Finding:
    """Return a finding that asks for nothing."""
    return Finding(check, Level.OK, found, facts=facts)


def warning(check: str, found: str, do: str, **facts: Any) -> Finding:
    """Return a finding of something that works and costs."""
    return Finding(check, Level.WARNING, found, do, facts)


def fault(check: str, found: str, do: str, **facts: Any) -> Finding:
    """Return a finding of something that breaks saves or loads."""
    return Finding(check, Level.FAULT, found, do, facts)


def unknown(check: str, why: str, do: str = "", **facts: Any) -> Finding:
    """Return the finding that it could not be told, and why."""
    return Finding(check, Level.UNKNOWN, why, do, facts)


def not_looked_at(why: str, do: str = "") -> Finding:
    """Return the finding that nobody looked at what the store is set up to do.

    Args:
        why: A sentence.
        do: What would change that, if anything.
    """
    look = "see to it that no rule deletes or archives current objects, and that old pointers expire"
    return unknown("settings", f"not looked at: {why}", f"{do}; or {look}" if do else look)


def told(check: str, level: Level, error: CloudckptError, do: str = "") -> Finding:
    """Return what an error says: its message is a sentence, a semicolon, and what to do."""
    found, _, advice = error.message.partition("; ")
    facts = {name: value for name, value in error.facts.items() if isinstance(value, str | int | float)}
    details = [str(facts[name]) for name in ("code", "reason", "why") if name in facts]
    found = f"{found} ({', '.join(details)})" if details else found
    return Finding(check, level, found, do or advice, {"kind": error.kind, **facts})


@dataclass(frozen=True, slots=True)
class Samples:
    """Two values that the doctor wrote a moment ago, as a save writes them.

    Attributes:
        pointer: Key of one that was written by `create`, as a manifest is; None
            when nothing may be written.
        payload: Key of one that was written by `put`, as an object is; likewise.
    """

    pointer: str | None = None
    payload: str | None = None


@runtime_checkable
class Inspectable(Protocol):
    """An engine that knows more of its store than the contract says. It need not be one."""

    async def inspect(self, samples: Samples) -> Sequence[Finding]:
        """Return what there is to say about the store, such as its lifecycle rules.

        What the store denies or does not know is a finding of level unknown, no error.
        """
        ...
