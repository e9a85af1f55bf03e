"""Stores in one place, as so many machines have them, each with a clock that a test moves on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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


@contextmanager
def refused() -> Iterator[pytest.ExceptionInfo[RunBusyError]]:
    with pytest.raises(RunBusyError) as told:
        yield told
