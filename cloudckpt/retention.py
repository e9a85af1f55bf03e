"""Which checkpoints a commit keeps. Pure.

Invariant: the newest checkpoint, tagged ones, and the one that the running
writer started from are always kept, whatever the rule says.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloudckpt.errors import InvalidInputError
from cloudckpt.model import Entry

KEEP_LAST = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rule keeps and drops, each newest first."""

    kept: tuple[Entry, ...]
    dropped: tuple[Entry, ...]


def check_keep_last(keep_last: int) -> int:
    """Return `keep_last` if it is a whole number from 1.

    Raises:
        InvalidInputError: It is not.
    """
    if type(keep_last) is not int or keep_last < 1:
        raise InvalidInputError("keep_last must be a whole number from 1", got=keep_last)
    return keep_last


def plan_expiry(checkpoints: tuple[Entry, ...], *, keep_last: int, epoch: int) -> Plan:
    """Say which checkpoints stay.

    Args:
        checkpoints: Newest first.
        keep_last: How many of the newest stay, from 1.
        epoch: The writer's; the newest checkpoint of an earlier epoch is what it started from.
    """
    started_from = next((entry.seq for entry in checkpoints if entry.epoch < epoch), None)
    kept: list[Entry] = []
    dropped: list[Entry] = []
    for age, entry in enumerate(checkpoints):
        stays = age < keep_last or bool(entry.tags) or entry.seq == started_from
        (kept if stays else dropped).append(entry)
    return Plan(tuple(kept), tuple(dropped))
