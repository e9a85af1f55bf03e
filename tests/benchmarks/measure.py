"""Turns, medians and tables.

Owns: how contestants take turns, and how a figure with a target is shown and
kept. Invariant: all contestants of one call are measured in the same rounds, so
their ratio is of the same minutes on the same machine. It knows no store.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value.

    Attributes:
        value: The number; an int is shown whole.
        unit: As it is printed behind the number.
        most: The target, inclusive, where less is better; None for a figure without one.
        least: The target, inclusive, where more is better.
    """

    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def target(self) -> str | None:
        """The target for people."""
        if self.most is not None:
            return f"<= {self.most:g}"
        return None if self.least is None else f">= {self.least:g}"

    @property
    def met(self) -> bool | None:
        """Whether the target is met, as far as the printed digits tell; None without a target."""
        shown = float(_digits(self.value))
        if self.most is not None:
            return shown <= self.most
        return None if self.least is None else shown >= self.least

    def __str__(self) -> str:
        shown = f"{_digits(self.value)}{self.unit}"
        if self.target is None:
            return shown
        return f"{shown} ({self.target}: {'met' if self.met else 'MISSED'})"


Cell: TypeAlias = Figure | str


@dataclass
class Table:
    """Rows of figures under a title.

    Attributes:
        title: What was measured.
        columns: Their heads.
        notes: How it was measured, one sentence a line.
        rows: Label, and a cell for each column.
    """

    title: str
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()
    rows: list[tuple[str, tuple[Cell, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"two columns of one name: {self.columns}")

    def add(self, label: str, *cells: Cell) -> None:
        """Append a row."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append((label, cells))

    def targets(self) -> Iterable[tuple[str, Figure]]:
        """Yield each figure that has a target, with where it stands."""
        for label, cells in self.rows:
            for column, cell in zip(self.columns, cells, strict=True):
                if isinstance(cell, Figure) and cell.target is not None:
                    yield f"{self.title}: {label}: {column}", cell

    def document(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {
            "title": self.title,
            "notes": list(self.notes),
            "rows": [
                {"label": label, "cells": dict(zip(self.columns, map(_plain, cells), strict=True))}
                for label, cells in self.rows
            ],
        }

    def __str__(self) -> str:
        grid = [("", *self.columns), *((label, *map(str, cells)) for label, cells in self.rows)]
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        lines = [_line(row, widths) for row in grid]
        rule = "  ".join("-" * width for width in widths)
        notes = [f"  {note}" for note in self.notes]
        return "\n".join([self.title, *notes, lines[0], rule, *lines[1:]])


def medians(
    contestants: Mapping[str, Work],
    *,
    rounds: int,
    burst: int = 1,
    pause: float = 0.0,
    before: Mapping[str, Work] | None = None,
) -> dict[str, float]:
    """Let contestants take turns; return each one's median seconds a call.

    One more round goes before and is not counted: it opens connections and fills
    caches. Every second round runs in reverse, so that nobody always follows the
    same neighbour.

    Args:
        contestants: Name to one call.
        rounds: Turns that count.
        burst: Calls a turn, back to back. A sample is the mean of a burst, since a
            wait that only every third call pays must not vanish in a median.
        pause: Seconds of rest after each turn, for what a call leaves running.
        before: What a contestant does before each of its turns, not timed.
    """
    calls = {name: timed(work, burst=burst) for name, work in contestants.items()}
    samples = turns(calls, rounds=rounds, pause=pause, before=before)
    return {name: statistics.median(values) for name, values in samples.items()}


def turns(
    contestants: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    pause: float = 0.0,
    before: Mapping[str, Work] | None = None,
) -> dict[str, list[float]]:
    """Let contestants that measure themselves take turns, see `medians`; return what each returned."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        order = list(contestants.items())
        for name, measured in order if number % 2 else reversed(order):
            if before is not None and name in before:
                before[name]()
            value = measured()
            if number:
                samples[name].append(value)
            time.sleep(pause)
    return samples


def timed(work: Work, *, burst: int = 1) -> Callable[[], float]:
    """Return a function that does `work` that many times and returns the mean seconds."""

    def measured() -> float:
        start = time.perf_counter()
        for _ in range(burst):
            work()
        return (time.perf_counter() - start) / burst

    return measured


def seconds_of(work: Callable[[], T]) -> tuple[float, T]:
    """Return how long a call took, and what it returned."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def milliseconds(seconds: float) -> Figure:
    """Return a time for people."""
    return Figure(seconds * 1e3, " ms")


def mebibytes(size: float) -> Figure:
    """Return a size for people."""
    return Figure(size / (1 << 20), " MiB")


def _digits(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _plain(cell: Cell) -> Any:
    if isinstance(cell, str):
        return cell
    return {"value": cell.value, "unit": cell.unit.strip(), "target": cell.target, "met": cell.met}


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = (text.ljust(width) for text, width in zip(row, widths, strict=True))
    return "  ".join([first, *rest]).rstrip()
