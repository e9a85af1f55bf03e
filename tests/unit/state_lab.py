"""A store in a folder with a run of the ready-made state in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cloudckpt
from cloudckpt import Checkpoint
from cloudckpt.store import Store

RUN = "nightly/42"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with cloudckpt.open(url) as store:
        yield store


def saved(store: Store, *, step: int = 1) -> Checkpoint:
    state = Checkpoint.new("task", step=step)
    state.save(RUN, store=store)
    return state


def seqs(store: Store) -> list[int]:
    return [info.seq for info in store.run(RUN).history()]
