"""Deletions that several threads of a process start at once, as `store.each` does with its sixteen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.effects import Effects
from cloudckpt.runner import DirectRunner
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.sweep import Sweeper
from cloudckpt.testing.driver import by_hand

WAIT = 60.0


class Shared(deque[str]):
    """What waits, of which another sweep takes the last just after this one has seen it."""

    def __len__(self) -> int:
        seen = super().__len__()
        if seen == 1:
            self.clear()
        return seen


@pytest.fixture
def effects() -> Effects:
    return DirectRunner(SystemClock()).effects


def test_two_sweeps_at_once_share_what_waits(effects: Effects) -> None:
    """Who came second to the last key had an `IndexError` for it: an operator, whose change had landed."""
    storage = MemoryStorage("sweep-shared")
    sweeper = Sweeper(storage, effects)
    sweeper._doomed = Shared()
    for key in ("a", "b"):
        by_hand(storage.put(key, b"x"))
    sweeper.doom({"a": 1, "b": 1})
    by_hand(sweeper.settle())
    assert "a" not in {row.key for row in by_hand(storage.list("")).rows}


class Slow(MemoryStorage):
    """Memory whose first deletion waits."""

    def __init__(self) -> None:
        super().__init__("sweep-slow")
        self.arrived, self.go_on = threading.Event(), threading.Event()

    async def delete(self, keys: Sequence[str]) -> None:
        if not self.arrived.is_set():
            self.arrived.set()
            assert self.go_on.wait(WAIT)
        await super().delete(keys)


def test_who_settles_waits_for_what_another_thread_deletes(effects: Effects) -> None:
    """Two threads saw that no sweep was under way, and each began one; only the last was waited for."""
    storage = Slow()
    by_hand(storage.put("a", b"x"))
    begun: list[Any] = []

    def spawn(work: Any) -> Any:
        begun.append(work)
        if len(begun) == 1:  # another thread is at the same place, and further
            sweeper._start()
            assert storage.arrived.wait(WAIT)
        return effects.spawn(work)

    sweeper = Sweeper(storage, replace(effects, spawn=spawn))
    sweeper.doom({"a": 1})
    sweeper._start()
    threading.Timer(0.2, storage.go_on.set).start()
    by_hand(sweeper.settle())
    assert by_hand(storage.list("")).rows == ()
