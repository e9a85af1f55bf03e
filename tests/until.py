"""Waiting for what must come: how fast it comes is the machine's affair, and no test's."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds until a test gives up."""


def until(true: Callable[[], object], otherwise: str = "it never came") -> None:
    """Return once something is so."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, otherwise
        time.sleep(0.002)
