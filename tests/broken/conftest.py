"""What all wrong variants share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def slips() -> Iterator[None]:
    """Find a coroutine that a variant left unawaited in its own test: such a one is caught by no law."""
    yield
    gc.collect()
