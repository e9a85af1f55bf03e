"""What the tests of whole stores share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import core
from cloudckpt.storage import retry
from tests.protocol.scripted import OwnTime


@pytest.fixture
def own_time(monkeypatch: pytest.MonkeyPatch) -> OwnTime:
    """A clock for `open`, that gets on by what is waited between tries and by nothing else.

    An engine's patience with a silent server is real time, so it is as long as it may be.
    """
    monkeypatch.setattr(retry, "LEAST_PATIENCE", retry.MOST_PATIENCE)
    time, make = OwnTime(), core.make_runner

    def timed(**options: Any) -> Any:
        runner = make(**options)
        runner.effects = replace(runner.effects, sleep=time.sleep)
        return runner

    monkeypatch.setattr(core, "make_runner", timed)
    return time
