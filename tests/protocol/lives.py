"""Every life that one process can lead, as a graph of moments.

Owns: `Lives`, which runs the real core, alone, on given answers. A moment is what a process
is after some answers; lives that come to the same memory share it (see `memory.py`).
Invariant: nothing reaches a process but answers, so a moment is found again by giving
the same answers to a new process.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cloudckpt.testing.invariants import Ledger
from tests.protocol.memory import read_memory
from tests.protocol.naming import NONE, touched_by
from tests.protocol.scheduler import Answer, Process, Request
from tests.protocol.stage import LISTS, Host, Plot

T = TypeVar("T")
MOST_AWAKE = 4000
"""So many processes are kept as they stand; any other is brought back by its answers."""


class Numbers(Generic[T]):
    """Gives each value a number, by which it can be had again."""

    def __init__(self) -> None:
        self._values: list[T] = []
        self._numbers: dict[T, int] = {}

    def of(self, value: T) -> int:
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)


@dataclass(slots=True, eq=False)
class Moment:
    """One process after some answers.

    Attributes:
        number: Its own, over all processes.
        who: The process's place in the plot.
        before: The moment it came from, and the task and answer that led here.
        asks: The tasks that wait for an answer, and their requests' numbers.
        sleeps: The tasks that may wake.
        note: What the ledger says, as a number.
        names: Of objects, that the process knows.
        may_list: How many more listings it may ask for.
        ended: Whether all of its tasks have.
        after: What follows, by task and answer.
    """

    number: int
    who: int
    before: tuple[Moment, int, int | None] | None
    asks: tuple[tuple[int, int], ...]
    sleeps: tuple[int, ...]
    note: int
    names: frozenset[str]
    may_list: int
    ended: bool
    after: dict[tuple[int, int], tuple[Moment, ...]] = field(default_factory=dict)


class Lives:
    """All moments of the processes of a plot.

    Args:
        plot: Who acts.
        patience: Seconds for which a request is tried again.
        keep_last: How many checkpoints a commit keeps.
        merged: False tells moments apart by their answers and not by their memory.
    """

    def __init__(self, plot: Plot, *, patience: float, keep_last: int, merged: bool) -> None:
        self.requests: Numbers[Request] = Numbers()
        self.answers: Numbers[Answer] = Numbers()
        self.moments: list[Moment] = []
        self._ledgers: list[Ledger] = []
        self.names = list(plot)
        self._acts = list(plot.values())
        self._patience = patience
        self._keep_last = keep_last
        self._merged = merged
        self._notes: Numbers[str] = Numbers()
        self._steps: dict[tuple[Moment, int, int | None], Moment] = {}
        self._touched: dict[Moment, frozenset[str] | None] = {}
        self._met: dict[tuple[Any, ...], Moment] = {}
        self._awake: dict[Moment, tuple[Process, Ledger]] = {}

    def begin(self, who: int) -> Moment:
        """Return a process's first moment."""
        return self._meet(who, *self._born(who), before=None, may_list=LISTS.get(self._acts[who], 0))

    def after(self, moment: Moment, task: int, answer: int) -> tuple[Moment, ...]:
        """Return the moments that may follow an answer.

        They are several when a task sleeps: it wakes before the next answer, or after. That nothing
        else can come between is no loss, since waking touches the process's memory alone.
        """
        found = moment.after.get((task, answer))
        if found is None:
            reached = [self._step(moment, task, answer)]
            for one in reached:  # which grows meanwhile
                for sleeper in one.sleeps:
                    woken = self._step(one, sleeper, None)
                    if woken not in reached:
                        reached.append(woken)
            found = tuple(one for one in reached if one.asks or not one.sleeps)
            moment.after[task, answer] = found
        return found

    def ledger_of(self, number: int) -> Ledger:
        """Return what a process has noted at a moment."""
        return self._ledgers[self.moments[number].note]

    def told(self, number: int) -> str:
        """Return in words what a process has noted at a moment."""
        return self._notes[self.moments[number].note]

    def touches(self, moment: Moment) -> frozenset[str] | None:
        """Return the names of the objects that its requests put or delete; None when it asks for more."""
        if moment not in self._touched:
            requests = [self.requests[number] for _, number in moment.asks]
            only = requests and all(request.op in ("put", "delete") for request in requests)
            self._touched[moment] = NONE.union(*map(touched_by, requests)) if only else None
        return self._touched[moment]

    def close(self) -> None:
        """Let go of all processes."""
        for process, _ in self._awake.values():
            process.close()
        self._awake.clear()

    def _step(self, moment: Moment, task: int, answer: int | None) -> Moment:
        event = moment, task, answer
        if event not in self._steps:
            process, ledger = self._waken(moment)
            self._go_on(process, task, answer)
            listed = answer is not None and self._is_listing(moment, task) and not self.answers[answer].error
            may_list = moment.may_list - listed
            self._steps[event] = self._meet(moment.who, process, ledger, before=event, may_list=may_list)
        return self._steps[event]

    def _is_listing(self, moment: Moment, task: int) -> bool:
        return self.requests[dict(moment.asks)[task]].op == "list"

    def _born(self, who: int) -> tuple[Process, Ledger]:
        process, ledger = Process(self.names[who]), Ledger(keep_last=self._keep_last)
        host = Host(ledger, patience=self._patience, keep_last=self._keep_last)
        process.spawn(self._acts[who](host, process.effects))
        process.settle()
        return process, ledger

    def _waken(self, moment: Moment) -> tuple[Process, Ledger]:
        if moment in self._awake:
            return self._awake.pop(moment)
        events = []
        one = moment
        while one.before is not None:
            one, *event = one.before
            events.append(event)
        process, ledger = self._born(moment.who)
        for task, answer in reversed(events):
            self._go_on(process, task, answer)
        return process, ledger

    def _go_on(self, process: Process, task: int, answer: int | None) -> None:
        process.step(process.tasks[task], None if answer is None else self.answers[answer])
        process.settle()

    def _meet(self, who: int, process: Process, ledger: Ledger, *, before: Any, may_list: int) -> Moment:
        memory = read_memory(*process.holds(), ledger)
        same = (who, may_list, memory.digest if self._merged else before)
        if same in self._met:
            process.close()
            return self._met[same]
        asks = [(n, task.pause.request) for n, task in enumerate(process.tasks) if task.able()]
        note = self._notes.of(repr([(name, value) for name, value in vars(ledger).items()]))
        if note == len(self._ledgers):
            self._ledgers.append(copy.deepcopy(ledger))
        moment = self._met[same] = Moment(
            number=len(self.moments),
            who=who,
            before=before,
            asks=tuple((n, self.requests.of(request)) for n, request in asks if request is not None),
            sleeps=tuple(n for n, request in asks if request is None),
            note=note,
            names=memory.names,
            may_list=may_list,
            ended=all(task.ended for task in process.tasks),
        )
        self.moments.append(moment)
        self._awake[moment] = process, ledger
        if len(self._awake) > MOST_AWAKE:
            eldest = next(iter(self._awake))
            self._awake.pop(eldest)[0].close()
        return moment
