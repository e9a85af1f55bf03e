"""Stores and runs in a folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cloudckpt
from cloudckpt.store import Store
from cloudckpt.testing.runs import RunConformance


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{tmp_path_factory.mktemp('store')}"


class TestRunsInAFolder(RunConformance):
    @pytest.fixture
    def make_store(self, url: str) -> Callable[..., Store]:
        return lambda **options: cloudckpt.open(url, **options)

    @pytest.fixture
    def recipe(self, url: str) -> tuple[str, str]:
        return f"open_store({url!r})", ""
