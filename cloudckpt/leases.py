"""Leases: that somebody works on a run, so that others leave it alone. No safety rests on them.

Owns: what a writer asks for (`Terms`) and writes of it, and how long others have seen that
(`Sightings`). Invariants: a lease has expired only when this process has itself seen, by its
own monotonic clock, that its writer wrote nothing for as long as the lease says, so no two
machines' clocks are ever compared; whoever becomes the writer raises the epoch, lease or
not, and that alone fences. It writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cloudckpt.clock import Clock
from cloudckpt.errors import InvalidInputError, RunBusyError
from cloudckpt.model import Lease, Manifest

Busy = Literal["raise", "wait", "take"]
BUSY = ("raise", "wait", "take")

BEATS = 3
"""A lease is renewed when this part of its time went by without a write."""

MOST_SIGHTINGS = 100_000

RUN = "CLOUDCKPT_RUN"
CLAIM = "CLOUDCKPT_CLAIM"
"""What `cloudckpt work` tells the process that it starts for a run: the run's id, and the writer that
claimed it with the lease's seconds. So an agent that knows nothing of leases works under one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a writer wants to have its run.

    Attributes:
        lease: Seconds for which others leave the run alone after each write of its; None for no lease.
        busy: What to do when another one holds a lease, see `Store.run`.
        offers: Whether what it writes leaves the run free for whoever claims it.
        handed: Id of a writer whose lease is no obstacle, since it claimed the run for this process.
    """

    lease: float | None = None
    busy: Busy = "raise"
    offers: bool = False
    handed: str | None = None

    def first(self) -> Lease | None:
        """Return what becoming the writer writes."""
        return None if self.lease is None else Lease(self.lease, 1)

    def next(self, manifest: Manifest) -> Lease | None:
        """Return what a commit of the writer writes instead of the manifest's own."""
        if manifest.status in ("done", "failed"):
            return None
        if self.lease is None and not self.offers:
            return None
        beat = manifest.lease.beat if manifest.lease else 0
        return Lease(None if self.offers else self.lease, beat + 1)

    def allow(self, manifest: Manifest) -> bool:
        """Whether the lease in a manifest is no obstacle, whatever it says."""
        return self.busy == "take" or manifest.writer.id == self.handed


NO_LEASE = Terms()


def terms_for(
    run: str, lease: float | None, busy: Busy, environment: Mapping[str, str] = os.environ
) -> Terms:
    """Return the terms that a caller asks for, or that this process was started with.

    Raises:
        InvalidInputError: An argument is not usable.
    """
    if busy not in BUSY:
        raise InvalidInputError("unknown busy", got=busy, known=list(BUSY))
    lease = seconds("lease", lease)
    if environment.get(RUN) != run or CLAIM not in environment:
        return Terms(lease, busy)
    writer, _, handed = environment[CLAIM].partition(":")
    return Terms(float(handed) if lease is None else lease, busy, handed=writer)


def claim_of(run: str, writer: str, lease: float) -> dict[str, str]:
    """Return what a process that works on a claimed run finds in its environment."""
    return {RUN: run, CLAIM: f"{writer}:{lease!r}"}


def seconds(name: str, value: float | None) -> float | None:
    """Return a number of seconds over 0, or None.

    Raises:
        InvalidInputError: It is neither.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise InvalidInputError(f"{name} must be a number of seconds, over 0", got=value)
    return float(value)


class Sightings:
    """Since when a process has seen each run's lease as it is. Safe from any thread.

    Args:
        clock: Only its monotonic time is used.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, Lease], float]] = {}

    def left(self, manifest: Manifest) -> float:
        """Return the seconds after which the manifest's lease has expired if it stays as it is; 0: now."""
        lease = manifest.lease
        if lease is None or lease.seconds is None:
            self._seen.pop(manifest.run, None)
            return 0.0
        now = self._clock.monotonic()
        # The beat and not the nonce: what operators say of a run does not keep its worker alive.
        what = (manifest.epoch, lease)
        before = self._seen.get(manifest.run)
        if before is None or before[0] != what:
            self._seen[manifest.run] = before = (what, now)
            if len(self._seen) > MOST_SIGHTINGS:  # an older one then only takes its time once more
                self._seen.pop(next(iter(self._seen)), None)
        return max(0.0, before[1] + lease.seconds - now)

    def check(self, manifest: Manifest, terms: Terms) -> None:
        """Leave a run alone that another one holds.

        Raises:
            RunBusyError: Another one does.
        """
        left = 0.0 if terms.allow(manifest) else self.left(manifest)
        if left and manifest.lease is not None:
            writer = manifest.writer
            raise RunBusyError(
                "another worker holds the run's lease; wait until it ends or expires (busy='wait'), "
                "or take the run over (busy='take')",
                left=left,
                run=manifest.run,
                host=writer.host,
                pid=writer.pid,
                since=writer.since.isoformat(timespec="seconds"),
                lease=manifest.lease.seconds,
            )
