"""What a user holds of one run, beside the laws that hold on every engine."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

import cloudckpt
from cloudckpt.errors import ClosedError, FencedError
from cloudckpt.run import Run
from cloudckpt.store import Store

_names = itertools.count()


@pytest.fixture
def store() -> Store:
    return cloudckpt.open(f"memory://run-{next(_names)}")


@pytest.fixture
def run(store: Store) -> Run:
    return store.run("r")


def test_a_run_shows_its_id_and_its_store_and_no_secrets(store: Store, run: Run) -> None:
    assert repr(run) == f"<Run 'r' of {store.url}>"
    assert run.id == "r"


def test_head_and_epoch_are_known_while_it_is_the_writer(store: Store, run: Run) -> None:
    assert (run.head, run.epoch) == (None, None)
    run.acquire()
    assert (run.head, run.epoch) == (0, 1)
    run.save({})
    assert (run.head, run.epoch) == (1, 1)
    other = store.run("r")
    other.acquire()
    assert (other.head, other.epoch) == (1, 2)
    with pytest.raises(FencedError):
        run.save({})
    assert (run.head, run.epoch) == (None, None)
    other.close()
    assert (other.head, other.epoch) == (None, None)


@dataclass
class Counting:
    step: Any


@pytest.mark.parametrize(
    ("state", "step"),
    [
        ({"step": 3}, 3),
        (Counting(4), 4),
        (Counting(0), 0),
        ({"step": True}, None),
        ({"step": -1}, None),
        ({"step": "3"}, None),
        (Counting(2.0), None),
        ({}, None),
        ([1], None),
        (b"step", None),
    ],
)
def test_a_step_is_taken_from_the_state_where_it_has_one(run: Run, state: object, step: int | None) -> None:
    assert run.save(state).step == step
    assert run.save(state, step=9).step == 9


def test_closing_twice_and_before_any_use_is_fine(run: Run, store: Store) -> None:
    run.close()
    run.close()
    for call in (run.acquire, lambda: run.save({})):
        with pytest.raises(ClosedError, match=r"store\.run"):
            call()
    assert run.load() is None
    assert list(store.runs()) == []


def test_the_async_forms_of_the_block(store: Store) -> None:
    async def agent() -> None:
        run = store.run("r")
        await run.aacquire()
        assert run.epoch == 1
        await run.aclose()
        with pytest.raises(ClosedError):
            await run.asave({})
        async with run as same:
            assert same is run
        with pytest.raises(ClosedError):
            run.save({})

    asyncio.run(agent())


def test_an_unusable_state_is_refused_at_the_call_of_asave(run: Run) -> None:
    """Not at the await, which may be far away."""
    with pytest.raises(cloudckpt.SerializationError):
        run.asave({"bad": object()})


def test_a_run_of_another_keep_last(store: Store) -> None:
    run = store.run("r", keep_last=1)
    for _ in range(3):
        run.save({})
    assert len(run.history()) == 1
    with pytest.raises(cloudckpt.InvalidInputError, match="keep_last"):
        store.run("r", keep_last=0)
