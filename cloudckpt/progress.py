"""How far a run is: from its saves, to a callback or a bar.

Owns: the count of steps, their rate and the estimate. Invariant: an estimate is made of what this
process saw by its monotonic clock, so a run that waited three weeks for an answer is not
slow. It saves nothing and reads nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cloudckpt.clock import Clock
from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.labels import MAX_INT

if TYPE_CHECKING:
    from cloudckpt.model import Entry, Manifest

WINDOW = 32
"""Saves of which a rate is made: a run that has become slower shows it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, as of a save that is durable.

    Attributes:
        run: The run's id.
        seq: Number of the checkpoint.
        step: The state's step; where it has none, `seq`.
        max_steps: How many there will be at most, or None.
        rate: Steps a second, over the last saves of this process; None before there were two.
        remaining: Seconds until `max_steps` at that rate, or None.
    """

    run: str
    seq: int
    step: int
    max_steps: int | None
    rate: float | None
    remaining: float | None


Callback = Callable[[Progress], Any]


class Meter:
    """Makes `Progress` of one run's saves, and tells a callback.

    Args:
        clock: Only its monotonic time is used.
        callback: Told after each save, where the save is made: it must be quick, and must not call cloudckpt.
        max_steps: How many steps there will be at most; by default what the state says.
    """

    def __init__(self, clock: Clock, callback: Callback | None, max_steps: int | None) -> None:
        self._clock = clock
        self._callback = callback
        self.max_steps = max_steps
        self._seen: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    def most(self, state: object) -> int | None:
        """Return how many steps there will be at most, by the caller or else by the state."""
        if self.max_steps is not None:
            return self.max_steps
        found = state.get("max_steps") if isinstance(state, dict) else getattr(state, "max_steps", None)
        return found if type(found) is int and 0 <= found <= MAX_INT else None

    def saved(self, manifest: Manifest, entry: Entry) -> None:
        """Tell of a save that is durable."""
        if self._callback is None:
            return
        step, most = entry.seq if entry.step is None else entry.step, manifest.max_steps
        now = self._clock.monotonic()
        if self._seen and step < self._seen[-1][1]:  # it went back
            self._seen.clear()
        self._seen.append((now, step))
        rate = rate_of(self._seen[0], self._seen[-1])
        self._callback(Progress(manifest.run, entry.seq, step, most, rate, left(step, most, rate)))


def rate_of(first: tuple[float, int], last: tuple[float, int]) -> float | None:
    """Return the steps a second between two moments, each with its step; None when that can't be told."""
    seconds, steps = last[0] - first[0], last[1] - first[1]
    return steps / seconds if seconds > 0 and steps > 0 else None


def left(step: int, max_steps: int | None, rate: float | None) -> float | None:
    """Return the seconds until `max_steps` at a rate, or None when that can't be told."""
    if max_steps is None or rate is None:
        return None
    return max(0, max_steps - step) / rate


def check_max_steps(value: int | None) -> int | None:
    """Return a count of steps as it was given.

    Raises:
        InvalidInputError: It is no whole number from 0.
    """
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_INT):
        raise InvalidInputError("max_steps must be a whole number from 0", got=value)
    return value


class ProgressBar:
    """A bar on stderr, as a callback for ``store.run(id, progress=bar)``. A context manager. Needs rich.

    Args:
        label: What it says; by default the run's id.
        console: A `rich.console.Console`; by default one on stderr.
    """

    def __init__(self, label: str | None = None, *, console: Any = None) -> None:
        try:
            from rich import progress
            from rich.console import Console
        except ImportError as error:
            raise UnsupportedStoreError('a bar needs rich; pip install "cloudckpt[cli]"') from error
        self._label = label
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[remaining]}"),
            console=console or Console(stderr=True),
        )
        self._tasks: dict[str, Any] = {}

    def __call__(self, progress: Progress) -> None:
        """Show how far the run is."""
        rate = "" if progress.rate is None else f"{progress.rate * 60:,.1f} steps a minute"
        remaining = "" if progress.remaining is None else f"{clock_time(progress.remaining)} left"
        task = self._tasks.get(progress.run)
        if task is None:
            task = self._tasks[progress.run] = self._bar.add_task(
                self._label or progress.run, total=progress.max_steps, rate="", remaining=""
            )
        self._bar.update(
            task, completed=progress.step, total=progress.max_steps, rate=rate, remaining=remaining
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def clock_time(seconds: float) -> str:
    """Return seconds as ``0:42``, ``12:05`` or ``3:07:09``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


progress_bar = ProgressBar
