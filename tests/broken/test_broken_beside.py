"""Wrong variants of what is done beside an agent: some order of `test_operators.py` must tell them."""

from __future__ import annotations

from typing import Any

import pytest

from cloudckpt import access, holding
from cloudckpt.model import Manifest
from cloudckpt.pointer import Base
from tests.broken.caught import check_caught
from tests.protocol.operators import PLOTS
from tests.protocol.plots import RIDES
from tests.protocol.test_operators import play

Patch = pytest.MonkeyPatch
SEEDS = 60


def tells(*plots: str) -> bool:
    """Whether a law fails in a run of one of these plots, and not the variant itself."""
    assert set(plots) <= set(PLOTS)
    for seed in range(SEEDS):
        for plot in plots:
            for ride in RIDES:
                try:
                    play(plot, ride, seed)
                except Exception as error:
                    check_caught(error)
                    return True
    return False


def test_a_writer_that_goes_on_from_what_its_process_wrote_before(monkeypatch: Patch) -> None:
    async def adopt(self: Any, base: Base) -> None:
        async with self._lock:
            if base.manifest.epoch == self._epoch:
                self._base = base
                self._folding.forget()

    monkeypatch.setattr(holding.Holding, "adopt", adopt)
    assert tells("tags")


def test_a_tag_on_what_has_expired_meanwhile(monkeypatch: Patch) -> None:
    """A checkpoint that has expired meanwhile is taken for one that has it already."""
    right = access.Access.edited

    async def edited(self: Any, manifest: Manifest, seq: int, change: Any) -> Any:
        try:
            return await right(self, manifest, seq, change)
        except KeyError:
            return None

    monkeypatch.setattr(access.Access, "edited", edited)
    assert tells("tags")
