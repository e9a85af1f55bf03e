"""The one thread that calls functions at their times: every heartbeat of the process hangs on it."""

from __future__ import annotations

import threading

import pytest

from cloudckpt import ticking
from cloudckpt.ticking import Ticker
from tests.until import PATIENCE


def test_a_call_in_a_thousand_years_is_no_obstacle_to_others() -> None:
    """What the platform can't wait for ended the thread, and with it every lease of the process."""
    ticker, called = Ticker(), threading.Event()
    far = ticker.after(1e30, lambda: None)
    ticker.after(0.01, called.set)
    assert called.wait(PATIENCE)
    again = threading.Event()
    ticker.after(0.01, again.set)
    assert again.wait(PATIENCE)
    ticker.cancel(far)


@pytest.mark.parametrize("which", ["cloudckpt-ticker", "cloudckpt-tick"])
def test_a_moment_without_threads_ends_no_heart(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """A process may have as many as it may for a moment; a call that was due then is made later."""
    refused: list[str] = []

    class Scarce(threading.Thread):
        def start(self) -> None:
            if self.name == which and not refused:
                refused.append(self.name)
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(ticking, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(ticking.threading, "Thread", Scarce)
    ticker, called = Ticker(), threading.Event()
    if which == "cloudckpt-ticker":
        with pytest.raises(RuntimeError):
            ticker.after(0.01, lambda: None)
    ticker.after(0.01, called.set)
    assert called.wait(PATIENCE)
    assert refused == [which]
