"""What a store must answer, told by a dict of lists. It shares no code with the product.

Owns: `World`, its runs as lists of what was saved, and `Handle`, what one holder of a
run knows and may do. Invariant: each method does in one step what the product does by
reads and conditional writes, and raises `Refused` with the name of the error where the
product must refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """The product must raise the error of this name."""


@dataclass(frozen=True)
class Fate:
    """What becomes of the next conditional write of a manifest.

    Attributes:
        arrives: Whether it reaches the store at all.
        answer: "right"; "none"; or "second", that of a repetition by the network.
        readable: Whether the reading that follows a doubtful answer succeeds.
    """

    arrives: bool = True
    answer: str = "right"
    readable: bool = True


FINE = Fate()
FAULTS = tuple(
    Fate(arrives, answer, readable)
    for arrives, answer in ((False, "none"), (True, "none"), (True, "second"))
    for readable in (True, False)
)


@dataclass(frozen=True)
class Saved:
    """One checkpoint. `kind` says what its state is an instance of."""

    state: Any
    kind: str
    step: int | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    epoch: int = 0


@dataclass(frozen=True)
class Life:
    """A run as it stands: `kept` is oldest first."""

    seq: int = 0
    epoch: int = 0
    kept: tuple[Saved, ...] = ()


class World:
    """All runs of one place; those that nobody ever became the writer of are not there."""

    def __init__(self) -> None:
        self.runs: dict[str, Life] = {}


class Handle:
    """One holder of a run, such as a process.

    Attributes:
        epoch: Of which it believes to be the writer, or None.
        view: The run as far as it knows without asking; None when it must ask.
        doubts: Saves of its own that happened without its knowing.
    """

    def __init__(self, world: World, run: str, keep_last: int) -> None:
        self.world = world
        self.run = run
        self.keep_last = keep_last
        self.closed = False
        self._forget()

    def _forget(self) -> None:
        self.epoch: int | None = None
        self.view: Life | None = None
        self.doubts: set[int] = set()

    @property
    def life(self) -> Life:
        """The run as it stands in the store."""
        return self.world.runs.get(self.run, Life())

    @property
    def overtaken(self) -> bool:
        return self.epoch is not None and self.life.epoch != self.epoch

    # ---- what its user does

    def enter(self, fate: Fate) -> None:
        self.closed = False
        self.acquire(fate)

    def acquire(self, fate: Fate) -> None:
        self._check_open()
        if self.epoch is None:
            self._become(None, fate)
        self._look()

    def close(self) -> None:
        self.closed = True
        self._forget()

    def save(self, saved: Saved, expect: int | None, fate: Fate) -> Saved:
        """Save; return the checkpoint."""
        self._check_open()
        if self.epoch is None:
            self._become(expect, fate)
            fate = FINE
        self._look()
        if self.view is None:
            raise Refused("FencedError")
        if expect is not None:
            self._check_expected(expect, self.view)
        assert self.epoch is not None
        new = Saved(
            saved.state, saved.kind, saved.step, saved.tags, saved.metadata, self.view.seq + 1, self.epoch
        )
        happens = fate.arrives and not self.overtaken
        if happens:
            kept = self._retained((*self.life.kept, new))
            self.world.runs[self.run] = Life(new.seq, self.epoch, kept)
        self.view = None
        if self._told(fate, happens=happens):
            self._look()
            return new
        if happens:
            self.doubts.add(new.seq)
        raise Refused("FencedError" if self.overtaken and fate.readable else "OutcomeUnknownError")

    def load(self, seq: int | None) -> list[Saved | str | None]:
        """Return each answer that is right: a checkpoint, None, or an error's name."""
        self.view = None  # the store is asked, and one that was overtaken learns of it
        self._look()
        return [_chosen(self.life, seq)]

    # ---- how that goes

    def _check_open(self) -> None:
        if self.closed:
            raise Refused("ClosedError")

    def _look(self) -> None:
        """Ask the store, unless it is known. Whoever is not the writer has to ask each time."""
        if self.view is None and self.epoch is not None and not self.overtaken:
            self.view = self.life

    def _become(self, expect: int | None, fate: Fate) -> None:
        if expect is not None:
            self._check_expected(expect, self.life)
        if fate.arrives:
            life = self.life
            self.world.runs[self.run] = Life(life.seq, life.epoch + 1, life.kept)
        if not self._told(fate, happens=fate.arrives):
            raise Refused("OutcomeUnknownError")
        self.epoch = self.life.epoch

    def _told(self, fate: Fate, *, happens: bool) -> bool:
        return happens and (fate.answer == "right" or fate.readable)

    def _check_expected(self, expect: int, life: Life) -> None:
        newer = set(range(expect + 1, life.seq + 1))
        if expect > life.seq or not newer <= self.doubts:
            raise Refused("StaleStateError")

    def _retained(self, all_kept: tuple[Saved, ...]) -> tuple[Saved, ...]:
        before = [saved.seq for saved in all_kept if saved.epoch != self.epoch]
        started_from = max(before, default=0)
        newest = [saved.seq for saved in all_kept][-self.keep_last :]
        return tuple(
            saved for saved in all_kept if saved.seq in newest or saved.tags or saved.seq == started_from
        )


def _chosen(life: Life, seq: int | None) -> Saved | str | None:
    if life.epoch == 0:
        return None
    if seq is None:
        return life.kept[-1] if life.kept else None
    return next((saved for saved in life.kept if saved.seq == seq), "CheckpointNotFoundError")
