"""Bringing back a checkpoint from a cold tier, such as S3 Glacier or Azure's archive.

Owns: which objects a load would need, and asking the store for them. Invariant: it asks for
nothing that can be read already, and asking again is harmless; the run is not changed. It
does not read the checkpoint: `load.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloudckpt.access import Access
from cloudckpt.errors import (
    AmbiguousError,
    ArchivedError,
    CheckpointNotFoundError,
    InvalidInputError,
    ThrottledError,
)
from cloudckpt.history import Which, choose
from cloudckpt.storage.cold import Cold, Warmth, check_speed
from cloudckpt.storage.retry import within

FIRST_POLL, MOST_POLL = 1.0, 60.0
"""Seconds between two looks: it takes from a minute to two days."""

MOST_DAYS = 365


@dataclass(frozen=True, slots=True)
class Restored:
    """How far the objects of a checkpoint are.

    Attributes:
        run: The run's id.
        seq: The checkpoint; None when the page of history that tells is itself in a cold tier.
        objects: Key of each object that a load needs, to where it is.
        ready: Whether a load can read all of them.
    """

    run: str
    seq: int | None
    objects: Mapping[str, Warmth]
    ready: bool


async def restore(
    access: Access, which: Which, *, days: int = 7, speed: str = "standard", wait: bool = False
) -> Restored:
    """Ask for what a load of a checkpoint needs, and wait for it if told to. Safe to call again.

    Args:
        access: To the run.
        which: Which checkpoint.
        days: How long it can be read afterwards, where the store makes a copy for a time (S3).
        speed: One of `cold.SPEEDS`.
        wait: Return only when it can be read.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        RunNotFoundError, RunDeletedError: There is no such run.
        UnsupportedStoreError: It is in a cold tier, and this engine can't ask for it.
    """
    if type(days) is not int or not 1 <= days <= MOST_DAYS:
        raise InvalidInputError(f"days must be a whole number from 1 to {MOST_DAYS}", got=days)
    check_speed(speed)
    cold = Cold(access.storage)
    found = await _look(access, cold, which, days=days, speed=speed)
    pause = FIRST_POLL
    while wait and not found.ready:
        await access.effects.sleep(pause)
        pause = min(2 * pause, MOST_POLL)
        with within(access.policy, access.effects):  # each look has a call's time, however long the wait
            try:
                found = await _look(access, cold, which, days=days, speed=speed)
            except (AmbiguousError, ThrottledError):
                continue  # the wait may be two days long, and outlives an hour without the store
    return found


async def _look(access: Access, cold: Cold, which: Which, *, days: int, speed: str) -> Restored:
    base = await access.base()
    try:
        entry = await choose(access.pages, base.manifest, which)
    except ArchivedError as error:
        seq, needed = None, [str(error.facts["key"])]
    else:
        if entry is None:
            raise CheckpointNotFoundError("the run has no checkpoint yet", run=access.run)
        seq = entry.seq
        needed = [extent.key for extent in entry.extents if extent.key not in base.manifest.inline]
    objects: dict[str, Warmth] = {}
    for key in dict.fromkeys(needed):
        objects[key] = await cold.warmth(key)
        if objects[key] is Warmth.COLD:
            await cold.rewarm(key, days=days, speed=speed)
            objects[key] = await cold.warmth(key)
    ready = seq is not None and all(one is Warmth.WARM for one in objects.values())
    return Restored(access.run, seq, objects, ready)
