"""What the doctor finds about time: how far the clocks are apart, and how fast the store is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloudckpt.clock import SystemClock
from cloudckpt.doctor import Report
from cloudckpt.doctor.pace import histogram, percentile
from cloudckpt.doctor.visit import clock_finding
from cloudckpt.errors import ThrottledError
from cloudckpt.storage.contract import Data, Token
from cloudckpt.storage.findings import Level
from cloudckpt.storage.memory import MemoryStorage
from tests.unit.visits import Limited, found, hasty, levels, memory, visit

# ---- clock

WRITTEN = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ahead", "level", "told"),
    [
        (0.0, Level.OK, 0.0),
        (0.9, Level.OK, 0.0),  # the store rounds down to the second
        (-4.0, Level.OK, -3.8),
        (5.9, Level.OK, 4.9),
        (6.1, Level.WARNING, 5.1),
        (-60.0, Level.WARNING, -59.8),
        (3600.0, Level.FAULT, 3599.0),
        (-3600.0, Level.FAULT, -3599.8),
    ],
)
def test_the_clock_is_compared_with_the_stores(ahead: float, level: Level, told: float) -> None:
    """A write takes time, and most stores tell whole seconds: neither may look like a wrong clock."""
    before = WRITTEN + timedelta(seconds=ahead)
    finding = clock_finding(WRITTEN, before, before + timedelta(seconds=0.2))
    assert (finding.level, finding.facts["seconds_ahead"]) == (level, pytest.approx(told, abs=0.05))
    assert level is Level.OK or ("behind" in finding.found) is (ahead < 0)


def test_a_visit_compares_clocks() -> None:
    class Late(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(minutes=2)

    clock = found(visit(memory(), replace(hasty(), clock=Late())), "clock")
    assert (clock.level, clock.facts["seconds_ahead"]) == (Level.WARNING, pytest.approx(-120, abs=2))


# ---- pace


class SlowStore(MemoryStorage):
    """Each PUT takes as many seconds as it is told, on a clock of its own."""

    now = 0.0
    seconds: Iterable[float] = ()

    async def create(self, key: str, data: Data) -> Token:
        if len(data) > 1000:
            self.now += next(iter(self.seconds))
        return await super().create(key, data)


def slow(seconds: Iterable[float]) -> Report:
    engine = memory(SlowStore)
    assert isinstance(engine, SlowStore)
    engine.seconds = iter(seconds)

    class Clock(SystemClock):
        def monotonic(self) -> float:
            assert isinstance(engine, SlowStore)
            return engine.now

    return visit(engine, replace(hasty(), clock=Clock()))


def test_the_pace_is_told_as_percentiles_and_bars() -> None:
    pace = found(slow([0.010, 0.011, 0.012, 0.013, 0.014, 0.015, 0.016, 0.017, 0.018, 0.110]), "latency-put")
    assert (pace.level, pace.facts["median_ms"], pace.facts["p90_ms"]) == (Level.OK, 14.0, 18.0)
    assert [bar["count"] for bar in pace.facts["histogram"]] == [9, 0, 0, 0, 1]
    assert (pace.facts["histogram"][0]["from_ms"], pace.facts["histogram"][-1]["to_ms"]) == (10.0, 110.0)


def test_a_slow_store_is_a_warning() -> None:
    assert levels(slow([1.2] * 10))["latency-put"] is Level.WARNING


def test_a_store_that_slows_down_in_between_is_measured_until_then() -> None:
    """Google takes one write a second to one key, and a visit must not wait for it."""

    class Throttles(Limited):
        left = 3

        async def replace(self, key: str, data: Data, token: Token) -> Token:
            if len(data) > 1000:
                self.left -= 1
                if self.left < 0:
                    raise ThrottledError("the store asks to slow down")
            return await super().replace(key, data, token)

    engine = memory(Throttles)
    assert isinstance(engine, Throttles)
    engine.lacks = frozenset({"delete"})
    assert found(visit(engine), "latency-put").facts["samples"] == 3


def test_percentiles_and_bars_of_few_samples() -> None:
    assert [percentile([3, 1, 2], share) for share in (0.0, 0.5, 0.9, 1.0)] == [1, 2, 3, 3]
    assert [bar["count"] for bar in histogram([0.5])] == [1, 0, 0, 0, 0]
