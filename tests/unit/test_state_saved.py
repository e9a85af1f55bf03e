"""The ready-made state in a store: whose save counts, and what a second try needs."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cloudckpt
from cloudckpt import Checkpoint, held
from cloudckpt.errors import (
    AmbiguousError,
    CorruptCheckpointError,
    DataError,
    FencedError,
    InvalidInputError,
    OutcomeUnknownError,
    SerializationError,
    StaleStateError,
    StorageError,
)
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store

RUN = "nightly/42"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with cloudckpt.open(url) as store:
        yield store


@pytest.fixture
def elsewhere(url: str) -> Iterator[Store]:
    """The same place as another process sees it: handles are held by store."""
    with cloudckpt.open(url) as store:
        yield store


@dataclass
class Research(Checkpoint):
    sources: list[str] = field(default_factory=list)
    budget: float = 1.5


class Plain(Checkpoint):
    """A subclass that is no dataclass by itself."""


def saved(store: Store, *, step: int = 1) -> Checkpoint:
    state = Checkpoint.new("task", step=step)
    state.save(RUN, store=store)
    return state


def seqs(store: Store) -> list[int]:
    return [info.seq for info in store.run(RUN).history()]


# ---- round trip


def test_what_is_loaded_is_what_was_saved(store: Store) -> None:
    state = Checkpoint.new({"do": ("this", b"raw")}, plan=["a"], notes=[{1: 2}], results={"r": (1,)})
    state.apply({"content": "", "tool_calls": [{"id": "a", "name": "look"}, {"id": 7, "name": "look"}]})
    state.record("a", {"bytes": b"\x00"})
    state.record(7, None)
    state.step = 1
    info = state.save(RUN, store=store)
    assert (info.seq, info.step, info.schema) == (1, 1, "Checkpoint")
    loaded = Checkpoint.load(RUN, store=store)
    assert loaded == state
    assert type(loaded) is Checkpoint


def test_where_it_came_from_is_not_stored(store: Store) -> None:
    """It would be wrong in every copy of the store, and would give the URL away."""
    state = saved(store)
    state.step = 2
    state.save(RUN, store=store)
    record = store.run(RUN).load()
    assert "step" in record.fields
    assert "_origin" not in record.fields


@pytest.mark.parametrize("cls", [Research, Plain])
def test_a_subclass_is_built_by_its_own_load(store: Store, cls: type[Checkpoint]) -> None:
    state = cls.new("task")
    if isinstance(state, Research):
        state.sources.append("a")
        state.budget = 0.5
    state.save(RUN, store=store)
    loaded = cls.load(RUN, store=store)
    assert loaded == state
    assert type(loaded) is cls


def test_a_load_of_another_class_is_refused(store: Store) -> None:
    Research.new("task").save(RUN, store=store)

    @dataclass
    class Other(Checkpoint):
        colour: str = ""

    with pytest.raises(DataError):
        Other.load(RUN, store=store)


def test_a_value_that_cannot_be_carried_is_named_and_nothing_is_written(store: Store) -> None:
    state = Checkpoint.new("task", notes=[print])
    with pytest.raises(SerializationError, match=r"state\.notes\[0\]"):
        state.save(RUN, store=store)
    assert list(store.runs()) == []


# ---- consistency


def test_an_inconsistent_state_is_not_saved(store: Store) -> None:
    state = saved(store)
    state.completed["ghost"] = 1
    with pytest.raises(InvalidInputError, match="'ghost' was answered") as caught:
        state.save(RUN, store=store)
    assert caught.value.kind == "inconsistent-state"
    assert seqs(store) == [1]


def test_an_inconsistent_state_is_not_loaded(store: Store) -> None:
    store.run(RUN).save(Checkpoint.new("task", done=True))
    with pytest.raises(DataError, match="done without a result") as caught:
        Checkpoint.load(RUN, store=store)
    assert caught.value.kind == "inconsistent-state"
    assert caught.value.facts == {"run": RUN, "seq": 1}


def test_a_step_never_goes_back(store: Store) -> None:
    """Against what it was loaded from, and against what it was last saved as."""
    state = saved(store, step=3)
    state.step = 2
    with pytest.raises(InvalidInputError, match="from 3 to 2"):
        state.save(RUN, store=store)
    loaded = Checkpoint.load(RUN, store=store)
    assert loaded
    loaded.step = 1
    with pytest.raises(InvalidInputError, match="from 3 to 1"):
        loaded.save(RUN, store=store)


# ---- whose save counts


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


# ---- damage


def test_a_load_with_fallback_goes_on_from_an_intact_checkpoint(store: Store, url: str) -> None:
    state = Checkpoint.new("task")
    for step in (1, 2):
        state.step = step
        state.notes = [os.urandom(60_000)]  # too large to ride in the manifest
        state.save(RUN, store=store)
    for path in Path(url, "objects").rglob("2-*"):
        path.write_bytes(b"damaged")
    with pytest.raises(CorruptCheckpointError):
        Checkpoint.load(RUN, store=store)
    older = Checkpoint.load(RUN, store=store, fallback=True)
    assert older
    assert older.step == 1
    assert older.save(RUN, store=store).seq == 3


# ---- async


def test_the_async_twins_do_the_same(store: Store) -> None:
    async def work() -> None:
        assert await Research.aload(RUN, store=store) is None
        state = Research.new("task")
        await state.asave(RUN, store=store)
        loaded = await Research.aload(RUN, store=store)
        assert loaded == state
        loaded.step = 1
        saving = loaded.asave(RUN, store=store)
        loaded.step = 9  # changed after the call: not saved, and not where it was saved as
        assert (await saving).step == 1
        assert loaded._origin is not None
        assert loaded._origin.step == 1
        with pytest.raises(FencedError):
            await state.asave(RUN, store=store)
        with pytest.raises(StaleStateError, match=r"load.*fork.*delete"):
            await Research.new("task").asave(RUN, store=store)

    asyncio.run(work())
    assert store.run(RUN).load(Research).step == 1  # type: ignore[union-attr]


# ---- the default store


def test_the_default_store_is_the_one_that_the_environment_names(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDCKPT_URL", url)
    Checkpoint.new("task").save(RUN)
    assert [info.id for info in cloudckpt.open(url).runs()] == [RUN]
    assert Checkpoint.load(RUN) == Checkpoint.new("task")
    assert held.default_store() is held.default_store()


def test_the_default_store_is_a_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "has space"))
    assert held.default_store().url == f"file://{tmp_path}/has space/cloudckpt"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert held.default_store().url == f"file://{tmp_path}/.local/share/cloudckpt"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert held.default_store().url == f"file://{tmp_path}/Library/Application Support/cloudckpt"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert held.default_store().url == f"file://{tmp_path}/local/cloudckpt"


def test_a_default_store_that_was_closed_is_opened_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDCKPT_URL", url)
    state = Checkpoint.new("task")
    with held.default_store():
        state.save(RUN)
    state.step = 1
    assert state.save(RUN).seq == 2


def test_a_reply_of_a_model_survives_the_store(store: Store) -> None:
    """What the next call is given after a resume is what it would have been given without."""
    state = Checkpoint.new("task")
    state.apply(
        SimpleNamespace(content=None, tool_calls=[SimpleNamespace(id="a", name="x", arguments={"n": None})])
    )
    state.record("a", {"ok": True})
    state.save(RUN, store=store)
    loaded = Checkpoint.load(RUN, store=store)
    assert loaded
    assert json.dumps(loaded.messages) == json.dumps(state.messages)
