"""Ending in order when the process is told to: SIGTERM, as Kubernetes, ECS and spot machines send it.

Owns: the process's one handler of SIGTERM, and which runs it drains. Invariants: the
handler waits for nothing, since what it interrupted may hold what it would wait for,
so the draining is a thread's; the handler that was there is called after that, or the
process ends where there was none; once no run asks for it, all is as it was before.

The handler of an asyncio loop (`add_signal_handler`) is told by the loop at once, whatever
stands here. One that is set later takes the place of this one.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
import time
import weakref
from types import FrameType
from typing import Any, Protocol

from cloudckpt.errors import InvalidInputError


class Drains(Protocol):
    """What is made durable before the end: a run."""

    def drained(self, deadline: float) -> BaseException | None:
        """Make durable what can be in so many seconds; return why not all is."""
        ...


class _Sigterm:
    """The handler, and who asked for it."""

    def __init__(self) -> None:
        self._before: Any = None
        self._installed = False
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Have nobody to drain: at first, and in the child after a fork."""
        self._runs: weakref.WeakKeyDictionary[Drains, float] = weakref.WeakKeyDictionary()
        self._struck = False

    def watch(self, run: Drains, deadline: float) -> None:
        """Drain a run at the end."""
        if not self._installed:
            before = signal.getsignal(signal.SIGTERM)
            if before is None:
                raise InvalidInputError(
                    "there is a handler of SIGTERM that Python did not set, and so can't call after a drain"
                )
            try:
                signal.signal(signal.SIGTERM, self._strike)
            except ValueError as error:
                raise InvalidInputError("only the main thread may set a handler of SIGTERM") from error
            self._before, self._installed = before, True
        self._runs[run] = deadline

    def unwatch(self, run: Drains) -> None:
        """Drain a run no more."""
        self._runs.pop(run, None)
        self._uninstall()

    def _uninstall(self) -> None:
        if self._runs or self._struck or not self._installed:
            return
        if signal.getsignal(signal.SIGTERM) == self._strike:  # else somebody set theirs after ours
            try:
                signal.signal(signal.SIGTERM, self._before)
            except ValueError:  # not the main thread: ours stays, and calls what was there
                return
        self._installed = False

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._struck or not self._runs:  # drained, or told once more
            self._chain(number, frame)
            return
        self._struck = True
        # Not by `threading`, whose own locks the interrupted code may hold.
        _thread.start_new_thread(self._drain, (dict(self._runs),))

    def _drain(self, runs: dict[Drains, float]) -> None:
        start = time.monotonic()

        def drain(run: Drains, deadline: float) -> None:
            failure = run.drained(start + deadline - time.monotonic())
            if failure is not None:  # the process ends, so there is no call left to raise it
                logging.getLogger("cloudckpt").error("told to end, %r is not all saved: %s", run, failure)

        threads = [threading.Thread(target=drain, args=each, daemon=True) for each in runs.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if callable(self._before) and _is_loops(self._before):  # it was told at the first time
            self._struck = False
        else:
            os.kill(os.getpid(), signal.SIGTERM)  # for the main thread, which alone may go on from here

    def _chain(self, number: int, frame: FrameType | None) -> None:
        self._struck = False
        before = self._before
        self._uninstall()
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _is_loops(handler: Any) -> bool:
    """Whether it is what asyncio leaves in the place of a handler that the loop calls."""
    return getattr(handler, "__module__", "") == "asyncio.unix_events"


_sigterm = _Sigterm()
watch, unwatch = _sigterm.watch, _sigterm.unwatch
