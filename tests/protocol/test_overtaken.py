"""An agent whose run was deleted or taken over is told that, wherever it looks first.

What it knows of the run refers to pages that are gone then; that they are missing is not the news.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cloudckpt
from cloudckpt.errors import CorruptCheckpointError, FencedError, RunDeletedError
from cloudckpt.run import Run
from cloudckpt.store import Store

ACTS = {
    "once": lambda run: run.once("one more", len, "x"),
    "once, as before": lambda run: run.once("job-0", str, 0),
    "wait": lambda run: run.wait("go?"),
    "wait_for": lambda run: run.wait_for("other"),
    "save": lambda run: run.save({"n": 1}),
}


@pytest.fixture
def store() -> Iterator[Store]:
    with cloudckpt.open(f"memory://overtaken-{os.urandom(4).hex()}") as store:
        yield store


@pytest.fixture
def resumed(store: Store) -> Run:
    """A run that knows of pages of its ledger, and has read none."""
    with store.run("r") as run:
        while not run._claimed().base or not run._claimed().base.manifest.ledger:
            for _ in range(20):
                n = len(run.actions())
                run.once(f"job-{n}", str, n)
    again = store.run("r")
    again.acquire()
    return again


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_one_whose_run_was_deleted_is_told_so(store: Store, resumed: Run, act: Callable[[Run], Any]) -> None:
    store.delete("r")
    with pytest.raises(RunDeletedError):
        act(resumed)


@pytest.mark.parametrize("act", [ACTS["once"], ACTS["once, as before"]], ids=["once", "as before"])
def test_one_that_knows_that_it_was_fenced_is_told_so_whatever_is_gone(
    store: Store, resumed: Run, act: Callable[[Run], Any]
) -> None:
    store.run("r").acquire()
    with pytest.raises(FencedError):
        resumed.save({"n": 1})
    newest = len(resumed.actions()) - 1
    assert resumed.once(f"job-{newest}", str, newest) == str(newest), "known is another's now"
    store.delete("r")
    with pytest.raises(FencedError):
        act(resumed)


@pytest.mark.parametrize("act", [ACTS["once"], ACTS["wait_for"]], ids=["once", "wait_for"])
def test_a_page_that_is_missing_in_a_run_of_ones_own_is_told_as_such(
    store: Store, resumed: Run, act: Callable[[Run], Any]
) -> None:
    base = resumed._claimed().base
    assert base is not None
    pages = [resumed.access.pages.key(page) for page in base.manifest.ledger]
    store._core.call(store._core.storage.delete(pages))
    with pytest.raises(CorruptCheckpointError):
        act(resumed)
