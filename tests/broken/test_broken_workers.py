"""Wrong variants of leases and claims; each must be found, or the suites prove nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloudckpt import commit
from cloudckpt.commit import RunWriter
from cloudckpt.leases import Sightings
from cloudckpt.model import Manifest
from cloudckpt.pointer import Base
from cloudckpt.testing.invariants import LawBrokenError
from tests.protocol.paying import Payday
from tests.protocol.scheduler import RandomChooser
from tests.protocol.stage import Stage
from tests.protocol.test_workers import PLOTS
from tests.protocol.workers import claimants
from tests.unit.test_leases import taken_by_a_machine_whose_clock_is_ahead

SEEDS = 100
Patch = pytest.MonkeyPatch


def first_broken() -> str | None:
    for seed in range(SEEDS):
        for plot in PLOTS.values():
            stage = Stage(RandomChooser(seed), faults=seed % 7, patience=seed % 2 * 0.1)
            for name, act in plot.items():
                stage.start(name, act)
            try:
                stage.run()
            except LawBrokenError as error:
                return error.law
    return None


def payday_breaks() -> bool:
    for seed in range(SEEDS * 10):
        day = Payday(seed, faults=seed % 9, deaths=seed % 3, patience=seed % 2 * 0.3)
        day.play()
        try:
            day.check()
        except AssertionError:
            return True
    return False


def test_a_lease_without_an_epoch(monkeypatch: Patch) -> None:
    """Whoever stalls for longer than its lease then goes on beside the one who took over."""

    def same_epoch(one: Any, **changes: Any) -> Any:
        if isinstance(one, Manifest) and "writer" in changes:
            changes["epoch"] = one.epoch
        return replace(one, **changes)

    monkeypatch.setattr(commit, "replace", same_epoch)
    assert first_broken() == "L6"


def test_a_lease_by_wall_clocks(monkeypatch: Patch) -> None:
    def left(self: Sightings, manifest: Manifest) -> float:
        if manifest.lease is None or manifest.lease.seconds is None:
            return 0.0
        end = manifest.writer.since + timedelta(seconds=manifest.lease.seconds)
        return max(0.0, (end - self._clock.now()).total_seconds())  # type: ignore[attr-defined]

    assert not taken_by_a_machine_whose_clock_is_ahead()
    monkeypatch.setattr(Sightings, "left", left)
    assert taken_by_a_machine_whose_clock_is_ahead()


def test_a_claim_without_a_condition(monkeypatch: Patch) -> None:
    """A worker that is slow then gets a run that another one has ended in between."""

    async def claim(self: RunWriter, base: Base) -> Manifest:
        return await self.become()

    monkeypatch.setattr(RunWriter, "claim", claim)
    assert any(len({run for run, _ in got}) < len(got) for got in map(claimants, range(SEEDS)))
    assert payday_breaks()


def test_a_zombie_that_pays(monkeypatch: Patch) -> None:
    plain = RunWriter._check

    def check(self: RunWriter, base: Base) -> None:
        if base.manifest.status == "deleted":
            plain(self, base)

    monkeypatch.setattr(RunWriter, "_check", check)
    assert payday_breaks()
