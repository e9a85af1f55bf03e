"""`make test` runs every test, once."""

from __future__ import annotations

from tests.servers.base import ROOT
from tests.together import NO_TESTS, halves, worst


def test_every_test_is_in_one_of_the_halves() -> None:
    first, second = halves()
    assert first
    assert second
    files = [path for folder in (*first, *second) for path in (ROOT / folder).rglob("test_*.py")]
    assert sorted(files) == sorted((ROOT / "tests").rglob("test_*.py"))


def test_a_process_that_a_signal_ended_has_failed() -> None:
    """Its code is below 0, so the largest of all would be that of one that passed."""
    assert worst({0, -9}) != 0
    assert worst({0, 1, NO_TESTS}) == 1
    assert worst({0, NO_TESTS}) == 0
    assert worst({NO_TESTS}) == NO_TESTS
