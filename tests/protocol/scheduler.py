"""Processes as coroutines that are stepped by hand, and a scheduler that owns every interleaving of them.

Owns: `Process`, all that one process sees of time, chance and concurrency, and
`Scheduler`, which asks its `Chooser` at each pause who goes on. Invariant: what a
process does follows from the answers to its requests and the order in which its
tasks go on, and from nothing else. So a run is its list of choices and replays, and a
process's history stands for its memory (see `explore.py`). No threads, no loop,
no clock.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from cloudckpt.effects import Effects

MOST_STEPS = 20_000


class Chooser(Protocol):
    """Decides. Each returns a number below `options`; 0 is what a calm world does."""

    def who(self, options: int) -> int:
        """Say who goes on."""
        ...

    def fate(self, options: int) -> int:
        """Say what becomes of a request."""
        ...


class RandomChooser:
    """By a seed. One request in eight goes wrong."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.steps = 0

    def who(self, options: int) -> int:
        self.steps += 1
        return self._random.randrange(options)

    def fate(self, options: int) -> int:
        return 0 if self._random.randrange(8) else self._random.randrange(1, options)


class PathChooser:
    """Follows a path of choices, then goes on calmly; notes where it could have turned off."""

    def __init__(self, path: tuple[int, ...] = ()) -> None:
        self._path = path
        self.taken: list[tuple[int, int]] = []

    def who(self, options: int) -> int:
        at = len(self.taken)
        choice = self._path[at] if at < len(self._path) else 0
        self.taken.append((choice, options))
        return choice

    fate = who

    def turnings(self, budget: int) -> Iterator[tuple[int, ...]]:
        """Yield every path that first leaves this one behind its given part, with at most `budget` turns."""
        path = [choice for choice, _ in self.taken]
        if sum(choice != 0 for choice in self._path) == budget:
            return
        for at in range(len(self._path), len(path)):
            for other in range(1, self.taken[at][1]):
                yield (*path[:at], other)


class NumberChooser:
    """Makes choices of any numbers, then goes on calmly. Only a small one makes a request go wrong."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._left = iter(numbers)

    def who(self, options: int) -> int:
        return next(self._left, 0) % options

    def fate(self, options: int) -> int:
        fate = next(self._left, 0)
        return fate if fate < options else 0


@dataclass(frozen=True, slots=True)
class Request:
    """A call that leaves its process: the name of a method, and its arguments."""

    op: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What comes back: a value, or the kind of an error."""

    value: Any = None
    error: type[Exception] | None = None


class Pause:
    """Awaited: goes on when the scheduler says so, and not before `ready`.

    With a request, it goes on with the answer to that.
    """

    def __init__(
        self,
        ready: Callable[[], bool] | None = None,
        *,
        request: Request | None = None,
        sleeps: bool = False,
    ) -> None:
        self.ready = ready or (lambda: True)
        self.request = request
        self.sleeps = sleeps

    def __await__(self) -> Generator[Pause, Any, Any]:
        return (yield self)


class Task:
    """A coroutine under way; what `Effects.spawn` returns."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work = work
        self.ended = False
        self.result: Any = None
        self.error: Exception | None = None
        self.pause = Pause()

    def done(self) -> bool:
        return self.ended

    async def wait(self) -> Any:
        if not self.ended:
            await Pause(self.done)
        if self.error is not None:
            raise self.error
        return self.result

    def able(self) -> bool:
        """Whether it can go on now, given the answer if it waits for one."""
        return not self.ended and self.pause.ready()

    def step(self, answer: Answer | None) -> None:
        """Go on to the next pause."""
        try:
            if answer is not None and answer.error is not None:
                self.pause = self.work.throw(answer.error("on purpose"))
            else:
                self.pause = self.work.send(answer.value if answer else None)
        except StopIteration as end:
            self.ended, self.result = True, end.value
        except Exception as error:
            self.ended, self.error = True, error


class _Lock(AbstractAsyncContextManager[None]):
    def __init__(self) -> None:
        self._held = False

    async def __aenter__(self) -> None:
        await Pause(lambda: not self._held)
        self._held = True

    async def __aexit__(self, *_: object) -> None:
        self._held = False


class Process:
    """The tasks of one process: its first, and what that starts aside.

    Attributes:
        name: Its own; its ids begin with what follows from it.
        tasks: In the order in which they were started.
        effects: Time, chance and concurrency, as its tasks see them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: list[Task] = []
        self.effects = Effects(
            clock=self,
            new_id=self._new_id,
            uniform=lambda low, high: (low + high) / 2,
            sleep=self._sleep,
            spawn=self.spawn,
            lock=_Lock,
            offload=self._offload,
        )
        self._mark = hashlib.sha256(name.encode()).hexdigest()[:8]
        self._ids = 0
        self._seconds = 0.0

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Task:
        """Start a coroutine; it waits for its first step."""
        self.tasks.append(Task(work))
        return self.tasks[-1]

    def step(self, task: Task, answer: Answer | None = None) -> None:
        """Let a task go on.

        Raises:
            Exception: What its first task, which nobody waits for, raised.
        """
        task.step(answer)
        if task is self.tasks[0] and task.error is not None:
            raise task.error

    def settle(self) -> None:
        """Take the steps that leave no choice.

        A task that was started, or got what it waited for within the process, goes on at once; one that
        sleeps wakes when no other can go on.
        """
        while True:
            able = [task for task in self.tasks if task.able() and task.pause.request is None]
            alone = [task for task in self.tasks if task.able()] == able[:1]
            at_once = able if alone else [task for task in able if not task.pause.sleeps]
            if not at_once:
                return
            self.step(at_once[0])

    def holds(self) -> tuple[object, ...]:
        """Return all that decides what it does next, besides answers."""
        return self.tasks, self._ids, self._seconds

    def close(self) -> None:
        """Let go of what was under way."""
        for task in self.tasks:
            task.pause = Pause()
            task.work.close()

    def now(self) -> datetime:
        """Whole seconds: what differs only by a short wait is then the same."""
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=int(self._seconds))

    def monotonic(self) -> float:
        return self._seconds

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._mark}{self._ids:08x}"

    async def _sleep(self, seconds: float) -> None:
        self._seconds += seconds
        await Pause(sleeps=True)

    async def _offload(self, function: Callable[[], Any]) -> Any:
        return function()


class Scheduler:
    """Steps tasks until all have ended.

    Args:
        chooser: Who goes on.
        answer: Answers a request, when its task is chosen.
        after_step: Called after each step.
    """

    def __init__(
        self,
        chooser: Chooser,
        answer: Callable[[Request], Answer],
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.chooser = chooser
        self._answer = answer
        self._after_step = after_step
        self._processes: dict[str, Process] = {}
        self._dead: set[str] = set()
        self._last: Task | None = None

    def effects(self, process: str) -> Effects:
        """Return the effects of one process; what it starts aside dies with it."""
        return self._process(process).effects

    def spawn(self, name: str, work: Coroutine[Any, Any, Any], group: str | None = None) -> Task:
        """Start a coroutine of the process of this name, or of another; it waits for its first step."""
        return self._process(group or name).spawn(work)

    def kill(self, process: str) -> None:
        """Never step a task of this process again."""
        self._dead.add(process)

    def run(self) -> None:
        """Step until nothing is left to step.

        Raises:
            AssertionError: The tasks wait for each other, or go on without end.
            Exception: What a process's first task raised.
        """
        for _ in range(MOST_STEPS):
            living = [process for name, process in self._processes.items() if name not in self._dead]
            alive = [(task, process) for process in living for task in process.tasks if not task.ended]
            able = [(task, process) for task, process in alive if task.able()]
            if not able:
                assert not alive, f"deadlock of {sorted({process.name for _, process in alive})}"
                return
            able.sort(key=lambda one: one[0] is not self._last)  # to go on is the calm choice
            self._last, process = able[self.chooser.who(len(able))] if len(able) > 1 else able[0]
            request = self._last.pause.request
            process.step(self._last, self._answer(request) if request else None)
            self._after_step()
        raise AssertionError("this has no end")

    def close(self) -> None:
        """Let go of what was killed in mid-run."""
        for process in self._processes.values():
            process.close()

    def _process(self, name: str) -> Process:
        return self._processes.setdefault(name, Process(name))
