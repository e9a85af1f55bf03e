"""Reading a run: how many requests, in which order things are believed, and what a race may show."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import keys, load, objects, runner, sweep
from cloudckpt.errors import CheckpointNotFoundError, CorruptCheckpointError, InvalidInputError
from cloudckpt.retention import Retention
from cloudckpt.run import Run
from cloudckpt.storage.memory import PAGE_ROWS
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol.scripted import AtOnce, OwnTime, ScriptedStorage

RUN = "r"
KEY = keys.manifest_key(RUN)


def blob(size: int = 40_000) -> bytes:
    return secrets.token_bytes(size)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ScriptedStorage:
    monkeypatch.setattr(runner, "_sleep", OwnTime().sleep)
    monkeypatch.setattr(runner, "_spawn_aside", AtOnce)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)
    return ScriptedStorage()


@pytest.fixture
def store(storage: ScriptedStorage) -> Store:
    return Store(lambda: storage, keep_last=2)


def reads(storage: ScriptedStorage) -> list[str]:
    """Return the keys of the reads since the last look; there must be nothing else."""
    found, storage.calls = storage.calls, []
    assert {op for op, _ in found} <= {"read"}
    return [key for _, key in found]


# What it costs.


@pytest.mark.parametrize("history", [1, 50])
def test_a_load_is_one_request_when_it_rides_and_two_when_not(
    store: Store, storage: ScriptedStorage, history: int
) -> None:
    """Whatever the length of the history; no listing and no look at the store's own document."""
    for state, requests in (({"n": 1}, 1), (blob(), 2)):
        with store.run(RUN) as run:
            for _ in range(history):
                run.save(state)
        storage.calls.clear()
        assert store.run(RUN).load() == state
        found = reads(storage)
        assert len(found) == requests
        assert found[0] == KEY


def test_history_is_one_request(store: Store, storage: ScriptedStorage) -> None:
    store.run(RUN).save(blob())
    storage.calls.clear()
    store.run(RUN).history()
    assert reads(storage) == [KEY]


def test_runs_are_listed_by_page_and_not_opened(store: Store, storage: ScriptedStorage) -> None:
    number = PAGE_ROWS + 5
    for n in range(number):
        by_hand(storage.inner.put(keys.manifest_key(f"run {n}"), b"not looked at"))
    by_hand(storage.inner.put("manifests/README.txt", b"somebody's"))
    by_hand(storage.inner.put("manifests/not ours.json", b"somebody's"))
    assert sorted(info.id for info in store.runs()) == sorted(f"run {n}" for n in range(number))
    assert reads(storage) == []
    assert [info.id for info in store.runs("run 100")] == [
        "run 100",
        "run 1000",
        "run 1001",
        "run 1002",
        "run 1003",
        "run 1004",
    ]


def test_parts_of_a_large_payload_are_read_side_by_side(
    store: Store, storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 7_000)
    state = blob()
    store.run(RUN).save(state)
    storage.calls.clear()
    assert store.run(RUN).load() == state
    assert len(reads(storage)) == 7


# What a race may show.


def between(storage: ScriptedStorage, act: Callable[[], Any], times: int = 1) -> None:
    """Let something happen after each of the next reads of the manifest."""

    async def then(go: Any) -> Any:
        found = await go()
        act()
        return found

    storage.reads.extend([then] * times)


def test_what_expires_under_a_load_is_loaded_anew(store: Store, storage: ScriptedStorage) -> None:
    """The writer deletes an object that the reader is about to ask for: no damage, just an old manifest."""
    writer = Run(Store(storage.again)._core, RUN, rules=Retention(keep_last=1))
    writer.save({"n": 0, "blob": blob()})

    def step() -> None:
        for _ in range(2):
            writer.save({"n": 1, "blob": blob()})

    between(storage, step)
    assert store.run(RUN).load()["n"] == 1
    between(storage, step)
    seq = writer.history()[0].seq
    with pytest.raises(CheckpointNotFoundError):
        store.run(RUN).load(seq=seq)


def test_a_load_that_is_overtaken_again_and_again_ends(store: Store, storage: ScriptedStorage) -> None:
    writer = Run(Store(storage.again)._core, RUN, rules=Retention(keep_last=1))
    writer.save(blob())
    between(storage, lambda: [writer.save(blob()) for _ in range(2)], times=1000)
    with pytest.raises(CorruptCheckpointError):
        store.run(RUN).load()
    assert len([key for key in reads(storage) if key == KEY]) <= 2 + load.REREADS
    storage.reads.clear()
    assert store.run(RUN).load()


# What may be asked for.


def test_a_seq_is_a_whole_number_from_one(store: Store) -> None:
    run = store.run(RUN)
    run.save({})
    bad: list[Any] = [0, -1, 1.0, "1", True]
    for seq in bad:
        with pytest.raises(InvalidInputError, match="seq"):
            run.load(seq=seq)


def test_an_expired_seq_and_one_to_come_are_told_apart(store: Store) -> None:
    run = store.run(RUN)
    for n in range(4):
        run.save({"n": n})
    for seq, said in ((1, "has expired"), (5, "no such checkpoint yet")):
        with pytest.raises(CheckpointNotFoundError, match=said) as caught:
            run.load(seq=seq)
        facts = dict(caught.value.facts)
        told = facts.pop("rule", None), bool(facts.pop("until", None))
        assert facts == {"run": RUN, "seq": seq, "retained": [4, 3]}
        assert told == (("keep_last=2", True) if seq == 1 else (None, False))
