"""One thread of a process that calls functions at their times.

Owns: that thread, which lives while something is due. Invariants: each call has a thread of
its own, so a slow one delays no other; after a fork the child begins with nothing due.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(order=True, slots=True)
class Due:
    """A call that will be made at `when`, by `time.monotonic`; `number` tells equal times apart."""

    when: float
    number: int
    call: Callable[[], None] = field(compare=False)


class Ticker:
    """Calls functions later. Safe from any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._due: list[Due] = []
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Due:
        """Call a function once, so many seconds from now, in a thread of ours."""
        due = Due(time.monotonic() + seconds, next(self._numbers), call)
        with self._changed:
            heapq.heappush(self._due, due)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cloudckpt-ticker", daemon=True)
                self._thread.start()
            self._changed.notify()
        return due

    def cancel(self, due: Due) -> None:
        """Do not make a call, unless it has begun."""
        with self._changed:
            if due in self._due:
                self._due.remove(due)
                heapq.heapify(self._due)
                self._changed.notify()

    def _run(self) -> None:
        changed = self._changed
        with changed:
            while self._due:
                wait = self._due[0].when - time.monotonic()
                if wait > 0:
                    changed.wait(wait)
                    continue
                call = heapq.heappop(self._due).call
                threading.Thread(target=call, name="cloudckpt-tick", daemon=True).start()
            self._thread = None


ticker = Ticker()
