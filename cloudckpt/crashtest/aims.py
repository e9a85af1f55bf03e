"""Where the kills of a life are meant to fall. Pure: a seed and an undisturbed run decide.

Owns: the three kinds of aims and their choice. Invariants: one seed gives one life, whatever
other lives there are, so that a failed one can be lived again alone; as many lives
as there are lines, with seeds in a row, are first killed at each of them once, as far as by line.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from cloudckpt.crashtest.points import WHENS

KILLS_OF_A_LIFE: Final = (1, 1, 2, 3)
"""How often a life is killed, equally often: who was resumed and is killed again has more to get wrong."""

MOMENTS: Final = 0.2
"""How many of the kills fall at a time rather than at a line: also inside of a line that waits."""

EARLY: Final = 0.1
"""How many fall also at lines that come only before the first storage call, such as imports: nothing is
there yet to be lost."""


@dataclass(frozen=True, slots=True)
class AtLine:
    """Before the agent's own line runs for the `count`-th time in a process."""

    file: str
    line: int
    count: int

    def __str__(self) -> str:
        return f"{near(self.file)}:{self.line}, time {self.count}"


@dataclass(frozen=True, slots=True)
class AtTime:
    """After this share, from 0 to 1, of the time from the agent's own first line to its end."""

    share: float

    def __str__(self) -> str:
        return f"after {self.share:.0%} of the time"


@dataclass(frozen=True, slots=True)
class AtCall:
    """Before or after the process's storage call of this number, from 0."""

    number: int
    when: str

    def __str__(self) -> str:
        return f"{self.number}:{self.when}"


Aim: TypeAlias = AtLine | AtTime | AtCall


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """A line of the agent's own: how often it came to it, and whether also after the first storage call."""

    file: str
    number: int
    count: int
    late: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """What an undisturbed run was like.

    Attributes:
        lines: The agent's own; empty where they can't be seen.
        calls: How many calls its store got.
    """

    lines: tuple[Line, ...]
    calls: int


def random_aims(seed: int, profile: Profile) -> Iterator[Aim]:
    """Yield the aims of a life: one for each process that is to be killed."""
    chance = random.Random(seed)
    every = sorted(profile.lines)
    late = [line for line in every if line.late] or every
    for n in range(chance.choice(KILLS_OF_A_LIFE)):
        if not every or chance.random() < MOMENTS:
            yield AtTime(chance.random())
            continue
        lines = every if chance.random() < EARLY else late
        line = lines[chance.randrange(len(lines)) if n else seed * _stride(len(lines)) % len(lines)]
        yield AtLine(line.file, line.number, chance.randint(1, line.count))


def _stride(count: int) -> int:
    """Return a number whose multiples go through all of `count` before they repeat, by leaps."""
    return next(n for n in range(max(1, round(count * 0.618)), 2 * count + 2) if math.gcd(n, count) == 1)


def every_call(profile: Profile) -> Iterator[AtCall]:
    """Yield each storage call of an undisturbed run, before and after: a life for each."""
    for number in range(profile.calls):
        for when in WHENS:
            yield AtCall(number, when)


def near(file: str) -> str:
    """Return a file's name as seen from here, where that is shorter."""
    here = str(Path.cwd()) + "/"
    return file.removeprefix(here)
