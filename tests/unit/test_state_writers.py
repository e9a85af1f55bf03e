"""Whose save of the ready-made state counts, and what a second try needs."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import cloudckpt
from cloudckpt import Checkpoint, held
from cloudckpt.errors import AmbiguousError, FencedError, OutcomeUnknownError, StaleStateError, StorageError
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.unit import state_lab
from tests.unit.state_lab import RUN, saved, seqs

url = state_lab.url
store = state_lab.store


@pytest.fixture
def elsewhere(url: str) -> Iterator[Store]:
    """The same place as another process sees it: handles are held by store."""
    with cloudckpt.open(url) as store:
        yield store


def test_a_run_that_is_empty_loads_as_none_and_takes_a_fresh_state(store: Store) -> None:
    assert Checkpoint.load(RUN, store=store) is None
    assert Checkpoint.new("task").save(RUN, store=store).seq == 1


def test_a_fresh_state_is_refused_by_a_run_with_checkpoints(store: Store, elsewhere: Store) -> None:
    """The run id was used before. The one at work there must not be fenced by the mistake."""
    at_work = saved(elsewhere)
    with pytest.raises(StaleStateError, match=r"load.*fork.*delete"):
        Checkpoint.new("another task").save(RUN, store=store)
    at_work.step = 2
    assert at_work.save(RUN, store=elsewhere).epoch == 1
    assert seqs(store) == [2, 1]


def test_a_state_that_is_not_the_newest_is_refused(store: Store) -> None:
    state = saved(store)
    older = pickle.loads(pickle.dumps(state))
    state.step = 2
    state.save(RUN, store=store)
    older.step = 2
    with pytest.raises(StaleStateError, match=r"load.*fork.*delete"):
        older.save(RUN, store=store)
    assert seqs(store) == [2, 1]


def test_of_two_loads_in_a_process_the_later_can_save(store: Store) -> None:
    """Both came from the same checkpoint, so only the order of the loads tells them apart."""
    saved(store)
    first, second = Checkpoint.load(RUN, store=store), Checkpoint.load(RUN, store=store)
    assert first
    assert second
    first.step = second.step = 2
    with pytest.raises(FencedError, match="loaded again since"):
        first.save(RUN, store=store)
    assert second.save(RUN, store=store).seq == 2


def test_of_two_loads_in_two_processes_the_later_can_save(store: Store, elsewhere: Store) -> None:
    saved(store)
    first, second = Checkpoint.load(RUN, store=store), Checkpoint.load(RUN, store=elsewhere)
    assert first
    assert second
    first.step = second.step = 2
    with pytest.raises(FencedError):
        first.save(RUN, store=store)
    assert second.save(RUN, store=elsewhere).seq == 2


def test_a_load_of_a_run_without_checkpoints_fences_too(store: Store, elsewhere: Store) -> None:
    """Both would begin the run; the later load's beginning counts."""
    Checkpoint.load(RUN, store=store)
    Checkpoint.load(RUN, store=elsewhere)
    with pytest.raises(FencedError):
        Checkpoint.new("task").save(RUN, store=store)
    assert Checkpoint.new("task").save(RUN, store=elsewhere).seq == 1


def test_a_state_that_is_passed_between_processes_can_be_saved_by_each(
    store: Store, elsewhere: Store
) -> None:
    """A pool of workers, one step each: whoever has the newest state goes on."""
    state = saved(store)
    for turn, place in enumerate([elsewhere, store, elsewhere, store, store], start=2):
        state = pickle.loads(pickle.dumps(state))
        state.step = turn
        assert state.save(RUN, store=place).seq == turn


def test_a_save_under_another_id_is_a_fork(store: Store) -> None:
    state = saved(store)
    assert state.save("fork", store=store).seq == 1
    state.step = 2
    assert state.save("fork", store=store).seq == 2
    assert seqs(store) == [1]
    with pytest.raises(StaleStateError):
        state.save(RUN, store=store)


def test_more_runs_than_handles_are_all_saved(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may work on thousands of runs in turn; what it holds of them is bounded."""
    monkeypatch.setattr(held, "HELD_RUNS", 2)
    states = {f"run-{i}": Checkpoint.new("task") for i in range(4)}
    for step in range(3):
        for run_id, state in states.items():
            state.step = step
            assert state.save(run_id, store=store).seq == step + 1
    assert len(held.process._runs) <= 2


FORK = """
import json, os, sys
from cloudckpt import Checkpoint, held
from cloudckpt.errors import CloudckptError

def attempt(state, step):
    state.step = step
    try:
        return state.save("r").seq
    except CloudckptError as error:
        return type(error).__name__

state = Checkpoint.new("task")
state.save("r")
read, write = os.pipe()
held.process._lock.acquire()  # as another thread's save might have, at this very moment
if os.fork() == 0:
    mine = Checkpoint.load("r") if sys.argv[1] == "child-loads" else state
    os.write(write, json.dumps([attempt(mine, 1), attempt(mine, 2)]).encode())
    os._exit(0)
held.process._lock.release()
os.wait()
print(json.dumps({"child": json.loads(os.read(read, 999)), "parent": attempt(state, 1)}))
"""


@pytest.mark.parametrize("who", ["child-loads", "child-saves"])
def test_a_forked_child_that_saves_fences_its_parent(url: str, who: str) -> None:
    """It has the parent's memory, and must not be taken for the parent: both would write."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, who],
        env={**os.environ, "CLOUDCKPT_URL": url, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert json.loads(done.stdout) == {"child": [2, 3], "parent": "FencedError"}


# ---- an unknown outcome


class Flaky(MemoryStorage):
    """A store whose connection breaks at a write, after it happened or before, and stays broken."""

    broken: str | None = None
    down = False

    async def read(self, key: str, **options: Any) -> Any:
        if self.down:
            raise AmbiguousError("broken on purpose")
        return await super().read(key, **options)

    async def replace(self, key: str, data: Any, token: str) -> str:
        self.down = self.broken is not None
        if self.broken != "before":
            token = await super().replace(key, data, token)
        if self.down:
            raise AmbiguousError("broken on purpose")
        return token

    def mend(self) -> None:
        self.broken, self.down = None, False


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("start", ["fresh", "loaded as none", "saved"])
def test_a_save_with_an_unknown_outcome_can_be_tried_again(when: str, start: str, request: Any) -> None:
    """Whether the first try landed or not: it is this state's own, and no reason to refuse it."""
    flaky = Flaky(request.node.name)
    store = Store(lambda: flaky, timeout=0.0, probed=True)
    if start == "loaded as none":
        Checkpoint.load(RUN, store=store)
    state = saved(store) if start == "saved" else Checkpoint.new("task")
    state.step = 2
    flaky.broken = when
    with pytest.raises(OutcomeUnknownError):
        state.save(RUN, store=store)
    with pytest.raises(StorageError):
        state.save(RUN, store=store)
    flaky.mend()
    info = state.save(RUN, store=store)
    state.step = 3
    assert state.save(RUN, store=store).seq == info.seq + 1
    assert store.run(RUN).load(Checkpoint) == state


def test_a_try_again_that_somebody_overtook_is_refused(request: Any) -> None:
    flaky = Flaky(request.node.name)
    store = Store(lambda: flaky, timeout=0.0, probed=True)
    state = saved(store)
    flaky.broken = "after"
    state.step = 2
    with pytest.raises(OutcomeUnknownError):
        state.save(RUN, store=store)
    flaky.mend()
    newer = Checkpoint.load(RUN, store=store)
    assert newer
    with pytest.raises(FencedError):
        state.save(RUN, store=store)
    assert newer.step == 2
