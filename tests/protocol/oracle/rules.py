"""Which checkpoints stay, by sets: whatever keeps one keeps it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from tests.protocol.oracle.values import Saved

DEFAULT: Mapping[str, Any] = {"keep_last": 10}

BUCKETS: dict[str, Callable[[datetime], int]] = {
    "hourly": lambda time: int(time.timestamp()) // 3600,
    "daily": lambda time: time.toordinal(),
    "weekly": lambda time: (time.toordinal() - 1) // 7,
    "monthly": lambda time: time.year * 12 + time.month,
    "yearly": lambda time: time.year,
}


def survivors(
    newest_first: Sequence[Saved], rules: Mapping[str, Any], *, epoch: int, now: datetime, held: bool
) -> set[int]:
    """Return the seqs of those that stay."""
    if held:
        return {saved.seq for saved in newest_first}
    seqs = [saved.seq for saved in newest_first]
    stay = {saved.seq for saved in newest_first if saved.tags or saved.hold}
    stay |= set([saved.seq for saved in newest_first if saved.epoch < epoch][:1])
    stay |= set(seqs[: max(1, rules.get("keep_last", 0), rules.get("min_keep", 1))])
    # A checkpoint counts as no younger than one that was saved after it, whatever the clocks said.
    times = list(accumulate([now.astimezone(UTC), *[saved.time or now for saved in newest_first]], min))[1:]
    within = rules.get("keep_within")
    if within is not None:
        stay |= {
            seq for seq, time in zip(seqs, times, strict=True) if time >= now - timedelta(seconds=within)
        }
    for name, bucket in BUCKETS.items():
        newest_of = dict(reversed([(bucket(time), seq) for seq, time in zip(seqs, times, strict=True)]))
        youngest = sorted(newest_of, reverse=True)[: rules.get(name, 0)]
        stay |= {newest_of[one] for one in youngest}
    return stay
