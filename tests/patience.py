"""How long a test waits for what must come; how fast it comes is the machine's affair."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds until a test gives up."""


def until(true: Callable[[], object]) -> None:
    """Wait until something has come."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)
