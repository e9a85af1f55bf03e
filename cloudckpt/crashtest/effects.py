"""What an agent does to the world, as a gauntlet counts it.

Owns: the log of effects: one JSON line each, in a file outside of every folder that is
lost with a process. Invariant: an effect that was told is in the log whatever kills the
process next, and of two calls with one key exactly one is told that it was first.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

EFFECTS: Final = "CLOUDCKPT_EFFECTS"
"""Environment variable with the log's path; without it nothing is logged."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An effect as it was told: its name, the key that it is done once under, and what it was about."""

    name: str
    key: str | None
    facts: str

    def __str__(self) -> str:
        about = [] if self.key is None else [f"key={self.key!r}"]
        return " ".join([self.name, *about, *([self.facts] if self.facts != "{}" else [])])


def effect(name: str, *, key: str | None = None, **facts: Any) -> bool:
    """Tell that something was done which no kill undoes: a mail sent, an invoice paid.

    Call it where the agent does it, or in place of doing it. Under a gauntlet it is
    written to a log and flushed before this returns; elsewhere nothing happens.

    Args:
        name: What was done.
        key: The idempotency key that the other side knows it by: a second call with the same
            one stands for a retry that the other side refuses, and doubles nothing.
        **facts: What it was about, as JSON values: two effects are the same when all of it is.

    Returns:
        Whether it happened now; False when it had happened under this key before.
    """
    path = os.environ.get(EFFECTS)
    if path is None:
        return True
    told = Happened(name, key, json.dumps(facts, sort_keys=True))
    line = json.dumps([told.name, told.key, told.facts]).encode() + b"\n"
    log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(log, fcntl.LOCK_EX)  # a killed process lets it go
        first = key is None or all((each.name, each.key) != (name, key) for each in read_effects(path))
        os.write(log, line)
        os.fsync(log)
    finally:
        os.close(log)
    return first


def read_effects(path: str | os.PathLike[str]) -> list[Happened]:
    """Return all that was told, in order; nothing when nobody told anything."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [Happened(*json.loads(line)) for line in lines]
