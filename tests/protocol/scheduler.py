"""A scheduler that owns every interleaving of coroutines, and the chance and time they see.

Each storage call, lock and wait is a pause; at each pause the scheduler asks
its `Chooser` who goes on and what the network does. A run is its list of
choices, so it replays. No threads, no loop, no clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager
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

    def who(self, options: int) -> int:
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


class Pause:
    """Awaited: goes on when the scheduler says so, and not before `ready`."""

    def __init__(self, ready: Callable[[], bool] | None = None) -> None:
        self.ready = ready or (lambda: True)

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class Task:
    """A coroutine under way; what `Effects.spawn` returns."""

    def __init__(self, name: str, work: Coroutine[Any, Any, Any], group: str) -> None:
        self.name = name
        self.group = group
        self.work = work
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.pause = Pause()

    def done(self) -> bool:
        return self.ended

    async def wait(self) -> Any:
        if not self.ended:
            await Pause(self.done)
        if self.error is not None:
            raise self.error
        return self.result


class _Lock(AbstractAsyncContextManager[None]):
    def __init__(self) -> None:
        self._held = False

    async def __aenter__(self) -> None:
        await Pause(lambda: not self._held)
        self._held = True

    async def __aexit__(self, *_: object) -> None:
        self._held = False


class Scheduler:
    """Steps tasks until all have ended.

    Args:
        chooser: Who goes on.
        after_step: Called after each step.
    """

    def __init__(self, chooser: Chooser, after_step: Callable[[], None] = lambda: None) -> None:
        self.chooser = chooser
        self._after_step = after_step
        self._tasks: list[Task] = []
        self._last: Task | None = None
        self._seconds = 0.0
        self._ids = 0
        self._dead: set[str] = set()

    def spawn(self, name: str, work: Coroutine[Any, Any, Any], group: str | None = None) -> Task:
        """Start a coroutine; it waits for its first step."""
        self._tasks.append(Task(name, work, group or name))
        return self._tasks[-1]

    def kill(self, group: str) -> None:
        """Never step a task of this group again: its process is gone."""
        self._dead.add(group)

    def effects(self, group: str) -> Effects:
        """Return the effects of one process; what it starts aside dies with it."""
        return Effects(
            clock=self,
            new_id=self._new_id,
            uniform=lambda low, high: (low + high) / 2,
            sleep=self._sleep,
            spawn=lambda work: self.spawn(f"{group}, aside", work, group),
            lock=_Lock,
            offload=self._offload,
        )

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    async def _sleep(self, seconds: float) -> None:
        self._seconds += seconds
        await Pause()

    async def _offload(self, function: Callable[[], Any]) -> Any:
        return function()

    def run(self) -> None:
        """Step until nothing is left to step.

        Raises:
            AssertionError: The tasks wait for each other, or go on without end.
            BaseException: What a task that nobody waits for raised.
        """
        for _ in range(MOST_STEPS):
            alive = [task for task in self._tasks if not task.ended and task.group not in self._dead]
            able = [task for task in alive if task.pause.ready()]
            if not able:
                assert not alive, f"deadlock of {[task.name for task in alive]}"
                return
            able.sort(key=lambda task: task is not self._last)  # to go on is the calm choice
            self._last = able[self.chooser.who(len(able))] if len(able) > 1 else able[0]
            self._step(self._last)
            self._after_step()
        raise AssertionError("this has no end")

    def _step(self, task: Task) -> None:
        try:
            task.pause = task.work.send(None)
        except StopIteration as end:
            task.ended, task.result = True, end.value
        except Exception as error:
            task.ended, task.error = True, error
            if task.group == task.name:  # an agent's own: nobody waits for it
                raise

    def close(self) -> None:
        """Let go of what was killed in mid-run."""
        for task in self._tasks:
            task.pause = Pause()
            task.work.close()
