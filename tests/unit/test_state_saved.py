"""The ready-made state in a store: what comes back, what is refused, and which store it is by default."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

import cloudckpt
from cloudckpt import Checkpoint, held
from cloudckpt.errors import (
    CorruptCheckpointError,
    DataError,
    FencedError,
    InvalidInputError,
    SerializationError,
    StaleStateError,
)
from cloudckpt.store import Store
from tests.unit import state_lab
from tests.unit.state_lab import RUN, saved, seqs

url = state_lab.url
store = state_lab.store


@dataclass
class Research(Checkpoint):
    sources: list[str] = field(default_factory=list)
    budget: float = 1.5


class Plain(Checkpoint):
    """A subclass that is no dataclass by itself."""


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
