"""Windows so small that a run of a few saves, or of a few dozen actions, has a past in pages."""

from __future__ import annotations

from typing import Any

import pytest

from cloudckpt import folding, ledger, pages

_tail = folding.tail


def short_tail(manifest: Any, most: int | None = None) -> Any:
    """Do what `folding.tail` does, whose own default is bound already."""
    return _tail(manifest, folding.WINDOW_LEFT if most is None else most)


def small_window(patch: pytest.MonkeyPatch) -> None:
    """Make the window three to five checkpoints, and pages of few pages."""
    for name, size in {"WINDOW_BYTES": 2600, "MOST_WINDOW_BYTES": 3600, "WINDOW_LEFT": 1600}.items():
        patch.setattr(folding, name, size)
    patch.setattr(folding, "tail", short_tail)
    patch.setattr(pages, "FAN", 3)


def small_ledger(patch: pytest.MonkeyPatch) -> None:
    """Make the window of the ledger less than twenty actions."""
    patch.setattr(ledger, "WINDOW_BYTES", 3000)
    patch.setattr(ledger, "WINDOW_LEFT", 1000)
