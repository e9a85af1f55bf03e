"""The command that looks again and again: what it prints, and what ends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.cli import watch
from tests.unit.cli_lab import Lab, T, counted, nightly_lab


@pytest.fixture
def lab() -> Lab:
    return nightly_lab()


class _Sleeps:
    """Time in a watch: what happens while it sleeps."""

    def __init__(self, happens: Iterator[Any]) -> None:
        self._happens = happens
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        next(self._happens)

    def monotonic(self) -> float:
        return self.now


def test_a_watch_prints_what_is_new_until_the_run_ends(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def happens() -> Iterator[None]:
        yield  # nothing
        lab.store.run("nightly-42").save({"step": 4})
        yield
        lab.store.delete("nightly-42")
        yield

    monkeypatch.setattr(watch, "time", _Sleeps(happens()))
    with counted(monkeypatch) as calls:
        told = lab("watch", "nightly-42", "--json", "--interval", "10")
    assert told.code == 0
    assert [(row["status"], row["seq"], row["step"], row["rate"]) for row in told.rows] == [
        ("running", 3, 3, None),
        ("running", 4, 4, 3.0),
        ("deleted", 4, None, 2.0),
    ]
    assert calls.count(("read", keys.manifest_key("nightly-42"))) >= 4


def test_a_watch_ends_well_by_an_interrupt(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(_Sleeps):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "time", Interrupted(iter(())))
    assert lab("watch", "nightly-42").code == 0
    assert "nightly-42" in lab.terminal(monkeypatch, "watch", "nightly-42").out


def test_a_watch_looks_once_for_a_script(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(monkeypatch) as calls:
        [row] = lab("watch", "nightly-42", "--once", "--json").rows
    assert calls == [("read", keys.manifest_key("nightly-42"))]
    assert set(row) == {each.key for each in watch.COLUMNS}
    assert row["saved"] == T[2]
    assert lab("watch", "none", "--once").code == 3
