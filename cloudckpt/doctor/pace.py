"""How long a PUT and a GET take, one after the other and without retries."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cloudckpt.effects import Effects
from cloudckpt.errors import CloudckptError
from cloudckpt.storage.contract import Storage, Token
from cloudckpt.storage.findings import Finding, Level, ok, told, unknown, warning

SAMPLES = 10
BARS = 5
SLOW = 1.0
"""Seconds of a median PUT from which on a warning is due: every save costs that."""

VALUE = bytes(range(256)) * 16
"""4 KiB: about a pointer with a small state in it."""


async def measure(storage: Storage, effects: Effects, key: str, token: Token | None) -> list[Finding]:
    """Time some PUTs and GETs.

    Args:
        storage: The engine.
        effects: Has the clock.
        key: What the keys to write begin with, or the one key to write.
        token: None to write keys that don't exist, which must be deleted again; or that
            of the one key. Google takes one write a second to one key.
    """
    written = [f"{key}-{number}" for number in range(SAMPLES)] if token is None else [key] * SAMPLES
    newest = token

    async def put(each: str) -> None:
        nonlocal newest
        if newest is None:
            await storage.create(each, VALUE)
        else:
            newest = await storage.replace(each, VALUE, newest)

    puts = await _timed("latency-put", put, written, effects)
    gets = await _timed("latency-get", storage.read, written[: puts.facts.get("samples", 0)], effects)
    return [puts, gets]


async def _timed(
    check: str, call: Callable[[str], Awaitable[Any]], keys: Sequence[str], effects: Effects
) -> Finding:
    samples: list[float] = []
    try:
        for key in keys:
            before = effects.clock.monotonic()
            await call(key)
            samples.append(effects.clock.monotonic() - before)
    except CloudckptError as error:
        if not samples:
            return told(check, Level.UNKNOWN, error)
    return _finding(check, samples) if samples else unknown(check, "not tried, since nothing was written")


def _finding(check: str, samples: Sequence[float]) -> Finding:
    median = percentile(samples, 0.5)
    facts = {
        "samples": len(samples),
        "median_ms": _ms(median),
        "p90_ms": _ms(percentile(samples, 0.9)),
        "histogram": histogram(samples),
    }
    median_ms, p90_ms = facts["median_ms"], facts["p90_ms"]
    found = f"median {median_ms} ms, 90th percentile {p90_ms} ms, {len(samples)} requests of 4 KiB"
    if check == "latency-put" and median >= SLOW:
        return warning(check, found, "run nearer to the store: every save waits for a PUT at least", **facts)
    return ok(check, found, **facts)


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least this share of all does not exceed."""
    return sorted(samples)[max(math.ceil(share * len(samples)), 1) - 1]


def histogram(samples: Sequence[float]) -> list[dict[str, Any]]:
    """Return bars of equal width between the fastest and the slowest: milliseconds, and how many."""
    low, high = min(samples), max(samples)
    width = (high - low) / BARS
    counts = [0] * BARS
    for sample in samples:
        counts[min(int((sample - low) / width), BARS - 1) if width else 0] += 1
    return [
        {"from_ms": _ms(low + bar * width), "to_ms": _ms(low + (bar + 1) * width), "count": count}
        for bar, count in enumerate(counts)
    ]


def _ms(seconds: float) -> float:
    """Return milliseconds with three digits that count."""
    return float(f"{seconds * 1000:.3g}")
