"""How far the soak is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Protocol

LINE_SECONDS = 15.0
MOST_SHOWN = 4


class Progress(Protocol):
    """Told by the command what happens."""

    def begin(self, name: str, seconds: float) -> None:
        """A proof begins, which has so many seconds."""
        ...

    def tell(self, name: str, gone: float, seed: int, figures: Mapping[str, int]) -> None:
        """So many seconds are gone; this seed is next; these are the figures until now."""
        ...

    def end(self, name: str, said: str) -> None:
        """A proof has ended so."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class Lines:
    """A line at most every quarter of a minute, and one at the end of each proof."""

    def __init__(self) -> None:
        self._said = 0.0

    def begin(self, name: str, seconds: float) -> None:
        self._said = time.monotonic()
        print(f"{name}: {seconds:.0f} s", flush=True)

    def tell(self, name: str, gone: float, seed: int, figures: Mapping[str, int]) -> None:
        if time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            print(f"{name}: {gone:.0f} s, seed {seed}, {shown(figures)}", flush=True)

    def end(self, name: str, said: str) -> None:
        print(f"{name}: {said}", flush=True)

    def close(self) -> None:
        pass


class Bars:
    """A bar for each proof."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<20}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self._tasks: dict[str, TaskID] = {}
        self._bars.start()

    def begin(self, name: str, seconds: float) -> None:
        self._tasks[name] = self._bars.add_task(name, total=seconds, said="")

    def tell(self, name: str, gone: float, seed: int, figures: Mapping[str, int]) -> None:
        self._bars.update(self._tasks[name], completed=gone, said=f"seed {seed}, {shown(figures)}")

    def end(self, name: str, said: str) -> None:
        self._bars.update(self._tasks[name], said=said)
        self._bars.stop_task(self._tasks[name])

    def close(self) -> None:
        self._bars.stop()


def make_progress() -> Progress:
    """Return what suits where the output goes."""
    return Bars() if sys.stdout.isatty() else Lines()


def shown(figures: Mapping[str, int]) -> str:
    """Return the largest figures in a few words."""
    largest = sorted(figures.items(), key=lambda item: -item[1])[:MOST_SHOWN]
    return ", ".join(f"{count:,} {name}" for name, count in largest)
