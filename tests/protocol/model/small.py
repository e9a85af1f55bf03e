"""A product in which much happens in few steps: work aside is done at once, and windows are small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cloudckpt import folding, ledger, making, objects, pages, runner, sweep
from tests.protocol.scripted import AtOnce, no_sleep
from tests.protocol.windows import short_tail


@contextmanager
def at_once(*, small: bool) -> Iterator[None]:
    """Do work aside before its caller goes on, so that a sequence of calls is the same every time.

    Args:
        small: Also make the window two or three checkpoints and a few actions, pages of two, and
            let a payload ride when it is a few hundred bytes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_spawn_aside", AtOnce)
        patch.setattr(runner, "_sleep", no_sleep)
        patch.setattr(runner, "_uniform", lambda least, most: (least + most) / 2)
        if small:
            for module, name, value in SMALL:
                patch.setattr(module, name, value)
        yield


SMALL: tuple[tuple[Any, str, Any], ...] = (
    (folding, "WINDOW_BYTES", 1500),
    (folding, "MOST_WINDOW_BYTES", 2100),
    (folding, "WINDOW_LEFT", 900),
    (folding, "tail", short_tail),
    (folding, "LEAF_ENTRIES", 2),
    (folding, "SLACK", 2),
    (pages, "FAN", 2),
    (ledger, "WINDOW_BYTES", 900),
    (ledger, "WINDOW_LEFT", 400),
    (making, "INLINE_RESULT_BYTES", 100),
    (making, "INLINE_BYTES", 700),
    (objects, "RIDE_BYTES", 700),
    (objects, "MAX_RIDE_BYTES", 1400),
    (sweep, "SWEEP_KEYS", 1),
)
