"""How often a run's saves become durable: its cadence, as one frozen value.

Owns: what a cadence may be, and when a skipped save is due. Invariant: a pace that
exists is one that can be kept; what is not usable is refused when it is made. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from cloudckpt.errors import InvalidInputError

Cadence = Literal["step", "selective", "background"]
Overflow = Literal["latest", "block", "error"]

MOST_QUEUED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When a save is committed, and what a crash may cost.

    Attributes:
        cadence: "step": a save is durable when it returns, so a crash costs the step under way.
            "selective": it is committed when it is due; a crash costs what was saved since the last
            commit. "background": it returns at once; a crash costs what `Run.pending` counts, which is
            the save under way and at most `queue` behind it, or what these have taken the place of.
            However a run ends in order, its last state is durable then.
        every: Selective: so many saves after the last commit the next one is due.
        every_seconds: Selective: so many seconds after the last commit the next one is due.
        queue: Background: how many saves may wait behind the one under way.
        overflow: Background: what a save does when so many wait. "latest": it takes the place of the
            oldest of them that has neither tags nor `milestone`. "block": it waits. "error": it raises.
    """

    cadence: Cadence = "step"
    every: int | None = None
    every_seconds: float | None = None
    queue: int = 1
    overflow: Overflow = "latest"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("cadence", self.cadence, get_args(Cadence)),
            ("overflow", self.overflow, get_args(Overflow)),
        ):
            if value not in known:
                raise InvalidInputError(f"unknown {name}", got=value, known=list(known))
        if self.cadence != "selective" and (self.every is not None or self.every_seconds is not None):
            raise InvalidInputError(
                "every and every_seconds belong to cadence='selective'", cadence=self.cadence
            )
        if self.every is not None and (type(self.every) is not int or self.every < 1):
            raise InvalidInputError("every must be a whole number of saves from 1", got=self.every)
        seconds = self.every_seconds
        if seconds is not None and (
            not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e11
        ):
            raise InvalidInputError("every_seconds must be a number of seconds from 0", got=seconds)
        if type(self.queue) is not int or not 1 <= self.queue <= MOST_QUEUED:
            raise InvalidInputError(f"queue must be a whole number from 1 to {MOST_QUEUED}", got=self.queue)

    def is_due(self, saves: int, seconds: float) -> bool:
        """Return whether a save is committed now.

        Args:
            saves: How many there were since the last commit, with this one.
            seconds: How long ago the last commit was.
        """
        if self.cadence == "selective":
            by_count = self.every is not None and saves >= self.every
            return by_count or (self.every_seconds is not None and seconds >= self.every_seconds)
        return True


STEP: Final = Pace()
