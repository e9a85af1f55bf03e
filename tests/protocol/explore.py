"""Every run of a few processes, each state of their world visited once.

Owns: `explore`. Invariants: the laws are held in each state; a state is met with as few
faults as lead to it, and a run that breaks a law is told step by step. How states
follow each other is `world.py`'s.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.protocol.network import FINE
from tests.protocol.stage import KEEP_LAST, Plot
from tests.protocol.world import State, World

MANY = 10**9


@dataclass(frozen=True, slots=True)
class Found:
    """What was seen with so many faults.

    Attributes:
        faults: At most so many, in one run.
        complete: Whether that was all there is.
        finished: Whether more faults lead to nothing new.
        states: Different ones, all within the laws.
        steps: From a state to a state.
        moments: Of the processes' lives.
        ends: States in which nothing can happen any more.
        seconds: Since the beginning.
    """

    faults: int
    complete: bool
    finished: bool
    states: int
    steps: int
    moments: int
    ends: int
    seconds: float


class BrokenError(Exception):
    """A run that breaks a law, step by step; its cause says which."""

    def __init__(self, run: list[str], faults: int) -> None:
        super().__init__("\n".join([f"a run with {faults} faults breaks a law:", *run]))


def explore(
    plot: Plot,
    *,
    faults: int,
    patience: float = 0.0,
    keep_last: int = KEEP_LAST,
    epochs: int = MANY,
    merged: bool = True,
    short: bool = True,
    seconds: float = float("inf"),
    most: int = MANY,
    tell: Callable[[Found], None] = lambda _: None,
    ends: set[Any] | None = None,
) -> list[Found]:
    """Visit every state of every run; return what was seen without a fault, with one, and so on.

    Args:
        plot: Who acts.
        faults: How often at most the network does something else than what it should, in one run.
        patience: Seconds for which a request is tried again.
        keep_last: How many checkpoints a commit keeps.
        epochs: When the run has had more writers than this, it is not followed further: two that try to
            become the writer may overtake each other for ever while answers get lost.
        merged: False tells moments apart by their answers and not by their memory, which is slower.
        short: False takes no shortcuts, which is slower.
        seconds: No new state is visited after these,
        most: or when there are more than these.
        tell: Called now and then with what was seen until then.
        ends: Is given what every end means, see `World.end`.

    Raises:
        BrokenError: A law does not hold.
    """
    world = World(plot, patience=patience, keep_last=keep_last, merged=merged, short=short)
    try:
        return list(_Search(world, epochs, seconds, most, tell, ends).up_to(faults))
    finally:
        world.lives.close()


class _Search:
    """Goes through a world, states with fewer faults first."""

    def __init__(
        self,
        world: World,
        epochs: int,
        seconds: float,
        most: int,
        tell: Callable[[Found], None],
        ends: set[Any] | None,
    ) -> None:
        self._world = world
        self._epochs = epochs
        self._most = most
        self._tell = tell
        self._ends = ends
        self._begun = time.monotonic()
        self._until = self._begun + seconds
        self._packed = struct.Struct(f"{2 + len(world.first.moments)}I")
        self._seen: set[bytes] = set()
        self._states: list[bytes] = []  # in the order in which they were met,
        self._from = array("I")  # and the state before each
        self._steps = 0
        self._end_count = 0

    def up_to(self, most: int) -> Iterator[Found]:
        """Yield what was seen with no fault, with at most one, and so on."""
        layer = {self._packed.pack(*_flat(self._world.first)): 0}
        for faults in range(most + 1):
            done = len(self._states)
            for packed, before in layer.items():
                self._meet(packed, before, faults)
            layer = {}
            while done < len(self._states):
                if done % 1024 == 0:
                    if time.monotonic() > self._until or len(self._states) > self._most:
                        yield self._found(faults, complete=False)
                        return
                    self._tell(self._found(faults, complete=False))
                self._visit(done, layer, faults, spare=faults < most)
                done += 1
            finished = faults < most and not layer
            yield self._found(faults, complete=True, finished=finished)
            if finished:
                return

    def _visit(self, at: int, layer: dict[bytes, int], faults: int, *, spare: bool) -> None:
        state = self._state(at)
        if self._world.epoch(state) > self._epochs:
            return
        try:
            for step, there in self._world.steps(state, faults=spare):
                self._steps += 1
                packed = self._packed.pack(*_flat(there))
                if packed in self._seen:
                    continue
                if step.fate == FINE:
                    self._meet(packed, at, faults)
                else:
                    layer.setdefault(packed, at)
        except Exception as error:
            if isinstance(error, BrokenError):
                raise
            raise BrokenError([*self._run_to(at), "  and then a process fails"], faults) from error

    def _meet(self, packed: bytes, before: int, faults: int) -> None:
        if packed in self._seen:
            return
        self._seen.add(packed)
        self._states.append(packed)
        self._from.append(before)
        state = self._state(len(self._states) - 1)
        try:
            self._world.check(state)
        except Exception as error:
            raise BrokenError(self._run_to(len(self._states) - 1), faults) from error
        if self._world.is_end(state):
            self._end_count += 1
            if self._ends is not None:
                self._ends.add(self._world.end(state))

    def _state(self, at: int) -> State:
        disk, late, *moments = self._packed.unpack(self._states[at])
        return State(disk, late, tuple(moments))

    def _run_to(self, at: int) -> list[str]:
        """Return in words how a state was met."""
        told: list[str] = []
        while at:
            before = self._from[at]
            steps = self._world.steps(self._state(before), faults=True)
            told.append(self._world.tell(next(step for step, there in steps if there == self._state(at))))
            at = before
        return told[::-1]

    def _found(self, faults: int, *, complete: bool, finished: bool = False) -> Found:
        return Found(
            faults=faults,
            complete=complete,
            finished=finished,
            states=len(self._states),
            steps=self._steps,
            moments=len(self._world.lives.moments),
            ends=self._end_count,
            seconds=time.monotonic() - self._begun,
        )


def _flat(state: State) -> tuple[int, ...]:
    return (state.disk, state.late, *state.moments)
