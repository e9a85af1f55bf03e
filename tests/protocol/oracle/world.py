"""One place: its runs, and how a manifest is written there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.protocol.oracle.values import Fate, Fates, Life, Refused, Saved

numbers = itertools.count(1)
"""Of versions, writers, commits and attempts."""


class World:
    """All runs of one place; those that nobody ever became the writer of are not there.

    Attributes:
        time: Its own clock.
        rules: Those of runs that begin here, as an operator said; None when nobody did.
        arriving: Runs of which a copy may have left objects here, and no manifest.
    """

    def __init__(self, url: str, time: Callable[[], datetime]) -> None:
        self.url = url
        self.time = time
        self.lives: dict[str, Life] = {}
        self.rules: Mapping[str, Any] | None = None
        self.arriving: set[str] = set()

    def get(self, run: str) -> Life | None:
        return self.lives.get(run)

    def existing(self, run: str, *, deleted: bool = False) -> Life:
        """Return the run, where there must be one."""
        life = self.get(run)
        if life is None:
            raise Refused("RunNotFoundError")
        if life.deleted and not deleted:
            raise Refused("RunDeletedError")
        return life

    def write(self, run: str, known: Life | None, new: Life, fate: Fate) -> bool:
        """Write over what is known to stand; return whether that is what stands then.

        Raises:
            Refused: Nobody can tell.
        """
        stands = self.get(run)
        fits = (stands and stands.version) == (known and known.version)
        if fits and fate.arrives:
            self.lives[run] = replace(new, version=next(numbers))
        if not fits:
            if not fate.readable:
                raise Refused("OutcomeUnknownError")
            return False
        if not fate.arrives or not (fate.answer == "right" or fate.readable):
            raise Refused("OutcomeUnknownError")
        return True

    def amend(
        self, run: str, edit: Callable[[Life], Life | None], fates: Fates, *, deleted: bool = False
    ) -> Life:
        """Change what is said of a run; return what stands then."""
        life = self.existing(run, deleted=deleted)
        new = edit(life)
        if new is None or new == life:
            return life
        self.write(run, life, replace(new, copied=None), fates.next())
        return self.existing(run, deleted=True)

    def load(self, run: str, which: Mapping[str, Any]) -> Saved | None:
        """Return a checkpoint, as whoever never asked before finds it."""
        life = self.get(run)
        return None if life is None else chosen(life, which)


def chosen(life: Life, which: Mapping[str, Any]) -> Saved | None:
    """Return the checkpoint; None when the newest is wanted of a run that has none."""
    if life.deleted:
        raise Refused("RunDeletedError")
    if not which:
        return life.kept[-1] if life.kept else None
    ((by, value),) = which.items()
    for saved in reversed(life.kept):
        if value in saved.tags if by == "tag" else value == getattr(saved, by):
            return saved
    raise Refused("CheckpointNotFoundError")


def found(life: Life, which: Mapping[str, Any]) -> Saved:
    """Return the checkpoint, where there must be one."""
    saved = chosen(life, which)
    if saved is None:
        raise Refused("CheckpointNotFoundError")
    return saved


class Desk:
    """One store that somebody opened on a place.

    Attributes:
        now: What time it is there.
        rules: Of its runs, as the code says.
    """

    def __init__(self, world: World, now: Callable[[], datetime], rules: Mapping[str, Any] | None) -> None:
        self.world = world
        self.now = now
        self.rules = rules
        self._sightings: dict[str, tuple[Any, datetime]] = {}

    def is_busy(self, run: str, life: Life) -> bool:
        """Whether somebody holds the run, as far as this machine has seen it unchanged."""
        if life.lease is None or life.lease[0] is None:
            self._sightings.pop(run, None)
            return False
        now, what = self.world.time(), (life.epoch, life.lease)
        if self._sightings.get(run, (None,))[0] != what:
            self._sightings[run] = what, now
        return (now - self._sightings[run][1]).total_seconds() < life.lease[0]

    def prepare(self) -> Mapping[str, Any] | None:
        """Return the place's own rules."""
        return self.world.rules

    def set_rules(self, rules: Mapping[str, Any] | None) -> None:
        self.world.rules = rules
