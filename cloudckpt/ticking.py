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

AGAIN_SECONDS = 1.0
"""A call for which there was no thread is made so much later."""


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
        self._lock = threading.Lock()  # not the condition's own block, which an interrupt may part from it
        self._changed = threading.Condition(self._lock)
        self._due: list[Due] = []
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Due:
        """Call a function once, so many seconds from now, in a thread of ours."""
        due = Due(time.monotonic() + seconds, next(self._numbers), call)
        with self._lock:
            heapq.heappush(self._due, due)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="cloudckpt-ticker", daemon=True)
                thread.start()
                self._thread = thread  # only now: no thread may be to be had, or an interrupt come
            self._changed.notify()
        return due

    def cancel(self, due: Due) -> None:
        """Do not make a call, unless it has begun."""
        with self._lock:
            if due in self._due:
                self._due.remove(due)
                heapq.heapify(self._due)
                self._changed.notify()

    def _run(self) -> None:
        lock, changed = self._lock, self._changed  # of this process, also after a fork
        with lock:
            while self._due:
                wait = self._due[0].when - time.monotonic()
                if wait > 0:
                    changed.wait(min(wait, threading.TIMEOUT_MAX))
                    continue
                due = heapq.heappop(self._due)
                try:
                    threading.Thread(target=due.call, name="cloudckpt-tick", daemon=True).start()
                except RuntimeError:  # no more threads can be started for now; a heart must go on beating
                    due.when = time.monotonic() + AGAIN_SECONDS
                    heapq.heappush(self._due, due)
            self._thread = None


ticker = Ticker()
