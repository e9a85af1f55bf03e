"""An object that several checkpoints refer to, as after a rollback, is there as long as one of them is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import cloudckpt
from cloudckpt import Retention
from cloudckpt.store import Store
from tests.protocol.model.small import at_once

LARGE = os.urandom(1500)


@pytest.fixture
def store() -> Iterator[Store]:
    with (
        at_once(small=True),
        cloudckpt.open(f"memory://shared-{os.urandom(4).hex()}", retention=Retention(keep_last=1)) as store,
    ):
        yield store


def test_the_first_expires_in_the_commit_that_moves_the_second_to_a_page(store: Store) -> None:
    """Neither the window nor an older page refers to the object then; the new page does."""
    run = store.run("r")
    run.save({"n": 1, "pad": LARGE}, tags=["first"])
    run.rollback(seq=1, metadata={"why": "x" * 600})
    run.tag("second", seq=2)
    run.untag("first", seq=1)
    run.save({"n": 3}, metadata={"why": "y" * 900})
    base = run._claimed().base
    assert base is not None
    assert [page.newest for page in base.manifest.history] == [2]
    assert [info.seq for info in run.history()] == [3, 2]
    run.close()
    assert store.run("r").load(tag="second") == {"n": 1, "pad": LARGE}
