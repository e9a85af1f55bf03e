"""How a world of a few processes goes on from a state to the next ones.

Owns: `World`. A state is what the disk holds, the requests that may still arrive, and
the moment of each process's life (see `lives.py`), so states are put together without
running anything twice. That a process dies needs no step of its own: it is one that
never goes on.

Two shortcuts leave out states that tell nothing, once nobody may list any more: an
object that neither the manifest, nor a process, nor a request under way names is as
good as gone; and a request about an object of which only its sender knows is done
before anybody else goes on, since no order of the two makes a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cloudckpt.errors import PreconditionFailedError
from cloudckpt.format import decode_manifest
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol.lives import Lives, Moment, Numbers
from tests.protocol.naming import NONE, carried_by, name_of, names_in, touched_by
from tests.protocol.network import CONDITIONAL, FATE_NAMES, FATES, FINE, Disk, Network
from tests.protocol.scheduler import Answer, Request
from tests.protocol.stage import MANIFEST, RUN, Plot, acknowledged

Contents = tuple[frozenset[tuple[str, bytes]], frozenset[str]]
"""Of a disk: its values, and the keys that were deleted."""

Names = tuple[frozenset[str], ...]
"""Of objects, by process."""


class State(NamedTuple):
    """One state of the world, by numbers."""

    disk: int
    late: int
    moments: tuple[int, ...]


class Step(NamedTuple):
    """A process's request met a fate and was answered, or, without a `who`, a late one arrived."""

    who: int | None
    request: int
    fate: int
    answer: int


class World:
    """How states follow each other.

    Args:
        plot: Who acts.
        patience: Seconds for which a request is tried again.
        keep_last: How many checkpoints a commit keeps.
        merged: See `Lives`.
        short: Whether to take the shortcuts.
    """

    def __init__(self, plot: Plot, *, patience: float, keep_last: int, merged: bool, short: bool) -> None:
        self.lives = Lives(plot, patience=patience, keep_last=keep_last, merged=merged)
        self._short = short
        self._keep_last = keep_last
        self._disks: Numbers[Contents] = Numbers()
        self._lates: Numbers[tuple[int, ...]] = Numbers()
        self._effects: dict[tuple[int, int, int], tuple[int, tuple[int, ...], int]] = {}
        self._tidied: dict[tuple[int, tuple[int, ...], Names | None], tuple[int, int]] = {}
        self._reached: dict[tuple[int, frozenset[str]], frozenset[str]] = {}
        self._unions: dict[Names, frozenset[str]] = {}
        self._epochs: dict[int, int] = {}
        self._lawful: set[tuple[int, ...]] = set()
        self.first = State(
            self._disks.of((frozenset(), frozenset())),
            self._lates.of(()),
            tuple(self.lives.begin(who).number for who in range(len(plot))),
        )

    def steps(self, state: State, *, faults: bool) -> Iterator[tuple[Step, State]]:
        """Yield every step from here, and where it leads; none that is a fault unless `faults`."""
        late = self._lates[state.late]
        moments = [self.lives.moments[number] for number in state.moments]
        alone = self._alone(state, moments)
        for moment in moments if alone is None else [alone]:
            for task, number in moment.asks:
                for fate, disk, delayed, answer in self._outcomes(state, moment, number, faults=faults):
                    step = Step(moment.who, number, fate, answer)
                    still_late = tuple(sorted(late + delayed)) if delayed else late
                    before, behind = state.moments[: moment.who], state.moments[moment.who + 1 :]
                    for after in self.lives.after(moment, task, answer):
                        yield step, self._tidy(disk, still_late, (*before, after.number, *behind))
        if alone is None:
            for at, number in enumerate(late):
                disk, _, answer = self._effect(state.disk, number, FINE)
                left = late[:at] + late[at + 1 :]
                yield Step(None, number, FINE, answer), self._tidy(disk, left, state.moments)

    def _outcomes(
        self, state: State, moment: Moment, number: int, *, faults: bool
    ) -> list[tuple[int, int, tuple[int, ...], int]]:
        """Return what may become of a request: its fate, the disk after it, what is late, and the answer."""
        request = self.lives.requests[number]
        if request.op == "acknowledged":
            told = max(acknowledged(self.lives.ledger_of(n)) for n in state.moments)
            return [(FINE, state.disk, (), self.lives.answers.of(Answer(told)))]
        assert request.op != "list" or moment.may_list, "it asks for more listings than `LISTS` says"
        fates = FATES[request.op] if faults else 1
        return [(fate, *self._effect(state.disk, number, fate)) for fate in range(fates)]

    def _effect(self, disk: int, request: int, fate: int) -> tuple[int, tuple[int, ...], int]:
        """Return the disk after a request, what of it is late, and what its sender gets."""
        found = self._effects.get((disk, request, fate))
        if found is None:
            late: list[Request] = []
            after = Disk(*self._disks[disk])
            answer = Network(after, late.append).answer(self.lives.requests[request], fate)
            contents = frozenset(after.values.items()), frozenset(after.deleted)
            delayed = tuple(map(self.lives.requests.of, late))
            found = self._disks.of(contents), delayed, self.lives.answers.of(answer)
            self._effects[disk, request, fate] = found
        return found

    def check(self, state: State) -> None:
        """Hold the laws in a state, and that somebody goes on who has not ended.

        Raises:
            AssertionError: It does not hold.
        """
        moments = [self.lives.moments[number] for number in state.moments]
        if not any(moment.asks for moment in moments):
            waiting = [self.lives.names[moment.who] for moment in moments if not moment.ended]
            assert not waiting, f"deadlock of {waiting}"
        key = (state.disk, *(moment.note for moment in moments))
        if key not in self._lawful:
            disk = Disk(*self._disks[state.disk])
            ledger = Ledger(keep_last=self._keep_last)
            for one in map(self.lives.ledger_of, state.moments):
                ledger.asked += one.asked
                ledger.epochs += one.epochs
                ledger.loaded += one.loaded
            ledger.delete(disk.deleted)
            by_hand(check_laws(disk, RUN, ledger))  # type: ignore[arg-type]
            self._lawful.add(key)

    def epoch(self, state: State) -> int:
        """Return how many writers the run has had."""
        if state.disk not in self._epochs:
            manifest = self._manifest(state.disk)
            self._epochs[state.disk] = decode_manifest(manifest, RUN).epoch if manifest else 0
        return self._epochs[state.disk]

    def is_end(self, state: State) -> bool:
        """Whether nothing can happen any more."""
        return not self._lates[state.late] and all(self.lives.moments[n].ended for n in state.moments)

    def end(self, state: State) -> tuple[Any, ...]:
        """Return what an end means: the disk, but for what nothing names, and what everybody was told."""
        alive = self._reach(state.disk, NONE)
        values = frozenset((k, v) for k, v in self._disks[state.disk][0] if _matters(k, alive))
        return values, tuple(map(self.lives.told, state.moments))

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        request, answer = self.lives.requests[step.request], self.lives.answers[step.answer]
        what = " ".join([request.op, *map(_shown, request.arguments)])
        if step.who is None:
            return f"  a late request arrives: {what}"
        got = answer.error.__name__ if answer.error else _shown(answer.value)
        return f"  {self.lives.names[step.who]}: {what}: {FATE_NAMES[step.fate]}, gets {got}"

    # ---- the shortcuts

    def _tidy(self, disk: int, late: tuple[int, ...], moments: tuple[int, ...]) -> State:
        """Return a state without what makes no difference."""
        lives = [self.lives.moments[number] for number in moments]
        lists = not self._short or any(moment.may_list for moment in lives)
        known = None if lists else tuple(moment.names for moment in lives)
        found = self._tidied.get((disk, late, known))
        if found is None:
            after, left = disk, tuple(request for request in late if not self._is_void(disk, request))
            if known is not None:
                after, left = self._without_lost(disk, left, self._union(known))
            found = self._tidied[disk, late, known] = after, self._lates.of(left)
        return State(*found, moments)

    def _is_void(self, disk: int, request: int) -> bool:
        """Whether a request will be refused whenever it arrives: a token does not come back."""
        if self.lives.requests[request].op not in CONDITIONAL:
            return False
        _, _, answer = self._effect(disk, request, FINE)
        return self.lives.answers[answer].error is PreconditionFailedError

    def _without_lost(
        self, disk: int, late: tuple[int, ...], known: frozenset[str]
    ) -> tuple[int, tuple[int, ...]]:
        """Leave out objects that nothing names, and requests about them."""
        requests = [(number, self.lives.requests[number]) for number in late]
        alive = self._reach(disk, known.union(*(carried_by(request) for _, request in requests)))
        late = tuple(
            number for number, request in requests if request.op in CONDITIONAL or touched_by(request) & alive
        )
        values, deleted = self._disks[disk]
        contents = (
            frozenset((key, value) for key, value in values if _matters(key, alive)),
            frozenset(key for key in deleted if _matters(key, alive)),
        )
        return self._disks.of(contents), late

    def _alone(self, state: State, moments: list[Moment]) -> Moment | None:
        """Return a process all of whose requests are about objects that only it knows of."""
        if not self._short or any(moment.may_list for moment in moments):
            return None
        for moment in moments:
            touched = self.lives.touches(moment)
            if touched is None:
                continue
            others = self._union(tuple(one.names for one in moments if one is not moment))
            for request in (self.lives.requests[number] for number in self._lates[state.late]):
                others |= touched_by(request) | carried_by(request)
            if touched.isdisjoint(self._reach(state.disk, others)):
                return moment
        return None

    def _union(self, sets: Names) -> frozenset[str]:
        found = self._unions.get(sets)
        if found is None:
            found = self._unions[sets] = NONE.union(*sets)
        return found

    def _reach(self, disk: int, names: frozenset[str]) -> frozenset[str]:
        """Return the names that one comes to from these and the manifest, over pages of history."""
        found = self._reached.get((disk, names))
        if found is None:
            inside = {name_of(key): names_in(value) for key, value in self._disks[disk][0]}
            reached = set(names | names_in(self._manifest(disk)))
            todo = list(reached)
            while todo:
                new = inside.get(todo.pop(), NONE) - reached
                reached |= new
                todo += new
            found = self._reached[disk, names] = frozenset(reached)
        return found

    def _manifest(self, disk: int) -> bytes:
        return dict(self._disks[disk][0]).get(MANIFEST, b"")


def _matters(key: str, alive: frozenset[str]) -> bool:
    return key == MANIFEST or name_of(key) in alive


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}…{hash(text) & 0xFFFF:04x}"
