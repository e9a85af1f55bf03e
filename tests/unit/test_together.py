"""`make test` runs every test, once."""

from __future__ import annotations

from tests.servers.base import ROOT
from tests.together import halves


def test_every_test_is_in_one_of_the_halves() -> None:
    first, second = halves()
    assert first
    assert second
    files = [path for folder in (*first, *second) for path in (ROOT / folder).rglob("test_*.py")]
    assert sorted(files) == sorted((ROOT / "tests").rglob("test_*.py"))
