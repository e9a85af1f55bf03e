"""Where the kills of a life are meant to fall. Pure: a seed and an undisturbed run decide.

Owns: the three kinds of aims and their choice. Invariants: one seed gives one life, whatever
other lives there are, so that a failed one can be lived again alone; lives with seeds in
a row are first killed at lines far from each other, so that few lives come to most lines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from cloudckpt.crashtest.points import WHENS

KILLS_OF_A_LIFE: Final = (1, 1, 2, 3)
"""How often a life is killed, equally often: who was resumed and is killed again has more to get wrong."""

MOMENTS: Final = 0.25
"""How many of the kills fall at a time rather than at a line: also inside of a line that waits."""

EARLY: Final = 0.1
"""How many fall also at lines that come only before the first storage call, such as imports: nothing is
there yet to be lost."""

_GOLDEN: Final = 0.6180339887498949
"""Its multiples, less what is before the point, are spread over 0 to 1 however many there are."""


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
    """So many seconds after the agent's own first line."""

    seconds: float

    def __str__(self) -> str:
        return f"after {self.seconds:.3f} s"


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
        seconds: From its own first line to its end.
        calls: How many calls its store got.
    """

    lines: tuple[Line, ...]
    seconds: float
    calls: int


def random_aims(seed: int, profile: Profile) -> Iterator[Aim]:
    """Yield the aims of a life: one for each process that is to be killed."""
    chance = random.Random(seed)
    every = sorted(profile.lines)
    late = [line for line in every if line.late] or every
    for n in range(chance.choice(KILLS_OF_A_LIFE)):
        if not every or chance.random() < MOMENTS:
            yield AtTime(chance.random() * profile.seconds)
            continue
        lines = every if chance.random() < EARLY else late
        place = chance.random() if n else seed * _GOLDEN % 1.0
        line = lines[int(place * len(lines))]
        yield AtLine(line.file, line.number, chance.randint(1, line.count))


def every_call(profile: Profile) -> Iterator[AtCall]:
    """Yield each storage call of an undisturbed run, before and after: a life for each."""
    for number in range(profile.calls):
        for when in WHENS:
            yield AtCall(number, when)


def near(file: str) -> str:
    """Return a file's name as seen from here, where that is shorter."""
    here = str(Path.cwd()) + "/"
    return file.removeprefix(here)
