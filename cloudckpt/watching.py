"""What goes on beside an open run: its lease is renewed, and somebody looks whether it was taken over.

Owns: when that is done, and what is told of it. Invariants: nothing is sent while saves do the
same; it ends with the run, and keeps no run alive that its caller has dropped; what its
caller must know is told once, by a callback in a thread of ours. What it could not do is
nobody's loss: a lease then expires early, and the next save tells of a fence.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cloudckpt.core import Core
from cloudckpt.errors import CloudckptError, FencedError, RunDeletedError
from cloudckpt.leases import BEATS
from cloudckpt.ticking import Due, ticker

if TYPE_CHECKING:
    from cloudckpt.commit import RunWriter

OnFenced = Callable[[FencedError | RunDeletedError], Any]

LEAST_SECONDS = 0.01


class Keeper:
    """Renews one writer's lease, and looks whether it is still the writer.

    Args:
        core: The store.
        writer: The claim to write the run.
        owner: Who holds the run; when it is gone, this ends.
        lease: Seconds of the lease, or None for none.
        watch: Look when nothing was sent for so many seconds; None for never.
        on_fenced: Called once, when the writer has learned that it is the writer no more.

    Attributes:
        error: What the callback raised, for the end of the run to raise.
    """

    def __init__(
        self,
        core: Core,
        writer: RunWriter,
        owner: object,
        *,
        lease: float | None,
        watch: float | None,
        on_fenced: OnFenced | None,
    ) -> None:
        self._core = core
        self._writer = writer
        self._owner = weakref.ref(owner)
        self._lease = lease
        self._watch = watch
        self._on_fenced = on_fenced
        self._looked = self._tried = core.effects.clock.monotonic()
        self._ended = False
        self.error: BaseException | None = None
        self._due: Due | None = None
        self._schedule()

    def end(self) -> None:
        """Do nothing more. Safe to call twice."""
        self._ended = True
        if self._due is not None:
            ticker.cancel(self._due)

    def _schedule(self) -> None:
        renew, look = self._left()
        self._due = ticker.after(max(LEAST_SECONDS, min(renew, look)), self._tick)
        if self._ended:  # in the meantime
            ticker.cancel(self._due)

    def _left(self) -> tuple[float, float]:
        """Return the seconds until the lease is to be renewed, and until it is time for a look."""
        now, renew, look = self._core.effects.clock.monotonic(), float("inf"), float("inf")
        written = self._writer.written if self._writer.is_writer else now  # else there is nothing to do yet
        if self._lease is not None:
            beat = self._lease / BEATS
            # One that failed is tried again twice before the next is due, and not all the time.
            renew = max(written + beat, self._tried + beat / BEATS) - now
        if self._watch is not None:
            look = max(written, self._looked) + self._watch - now
        return renew, look

    def _tick(self) -> None:
        if self._ended or self._owner() is None:
            return
        try:
            # The next save tells what is wrong: here nobody could do anything about it.
            with suppress(CloudckptError):
                self._core.call(self._keep())
            if self._core.closed:
                return
            if self._writer.fenced is None:
                self._schedule()
            elif self._on_fenced is not None and not self._ended:
                self._on_fenced(self._writer.fenced)
        except BaseException as error:  # noqa: BLE001 - the callback's: raised where the run ends
            self.error = error

    async def _keep(self) -> None:
        if not self._writer.is_writer:
            return
        renew, look = self._left()
        if renew <= 0 and self._lease is not None:
            self._tried = self._core.effects.clock.monotonic()
            await self._writer.renew(after=self._lease / BEATS)
        elif look <= 0:
            self._looked = self._core.effects.clock.monotonic()
            await self._writer.look()
