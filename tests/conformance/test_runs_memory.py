"""Stores and runs in memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

import cloudckpt
from cloudckpt.store import Store
from cloudckpt.testing.runs import RunConformance


@pytest.fixture(scope="module")
def url() -> str:
    return f"memory://{secrets.token_hex(4)}"


class TestRunsInMemory(RunConformance):
    shared = False

    @pytest.fixture
    def make_store(self, url: str) -> Callable[..., Store]:
        return lambda **options: cloudckpt.open(url, **options)

    @pytest.fixture
    def recipe(self, url: str) -> tuple[str, str]:
        return f"open_store({url!r})", ""
