"""Stores in one place, as so many machines have them, each with a clock of its own.

Owns: a clock that goes on when the test says so, and how a test waits for what must come.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

import cloudckpt
from cloudckpt import Store
from cloudckpt.errors import RunBusyError
from cloudckpt.model import Manifest
from cloudckpt.testing.driver import by_hand

_names = itertools.count()
LONG = 1000.0
PATIENCE = 30.0
"""Seconds until a test gives up what must come; how fast it comes is the machine's affair."""


class Clock:
    """A clock that goes on when the test says so; its wall time may be anything."""

    def __init__(self, wall: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self.wall = wall
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds


def stores(count: int = 2, *, clocks: list[Any] | None = None) -> list[Store]:
    """Return stores in one place, as so many machines have them, each with a clock of its own."""
    name = f"memory://leases-{next(_names)}"
    return [cloudckpt.open(name, clock=clock) for clock in clocks or [Clock() for _ in range(count)]]


def clock_of(store: Store) -> Clock:
    clock = store._core.effects.clock
    assert isinstance(clock, Clock)
    return clock


def manifest(store: Store, run: str = "r") -> Manifest:
    return by_hand(store._core.access(run).base(deleted=True)).manifest


def until(true: Callable[[], Any]) -> None:
    """Wait until something has come."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


@contextmanager
def refused() -> Iterator[pytest.ExceptionInfo[RunBusyError]]:
    with pytest.raises(RunBusyError) as told:
        yield told
