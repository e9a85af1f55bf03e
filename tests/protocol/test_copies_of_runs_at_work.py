"""Copies of a run that expires what is being sent, into a store where somebody deletes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import copying, keys, runner
from cloudckpt.errors import ConflictError, CorruptCheckpointError
from cloudckpt.retention import Retention
from cloudckpt.run import Run
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol import pairs, past
from tests.protocol.pairs import Pair, all_loads
from tests.protocol.past import RUN, state_of
from tests.protocol.scripted import AtOnce
from tests.protocol.test_copying_meanwhile import break_off, every_object

_names = (f"copied-at-work-{n}" for n in itertools.count())

pair = pairs.pair
one_at_a_time = pairs.one_at_a_time
small = past.small


@pytest.mark.parametrize("expires", [True, False])
def test_what_must_be_sent_again_and_has_expired_since_is_no_damage(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    expires: bool,
) -> None:
    """The copy had landed, and said that the source is damaged; what it left at the destination was."""
    store = pair.world.store
    break_off(pair, monkeypatch)
    right = copying._act
    sent_before = set(by_hand(every_object(pair.there)))

    def act(source: Any, to: Any, plan: Any, *rest: Any) -> Any:
        sent = right(source, to, plan, *rest)
        if not collected:
            collected.extend(key for key in plan.objects if key in sent_before)
            by_hand(pair.there.delete(collected))
            if expires:
                store.run(RUN).retain(Retention(keep_last=2))
            else:
                by_hand(pair.world.inner.delete(collected))
        return sent

    collected: list[str] = []
    monkeypatch.setattr(copying, "_act", act)
    if expires:
        store.copy(RUN, pair.to)
        assert all_loads(pair)
        assert pair.same()
    else:
        with pytest.raises(CorruptCheckpointError, match="missing"):
            store.copy(RUN, pair.to)
    assert collected


def test_what_a_copy_brings_back_stays_though_the_agent_there_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows of objects that it has put, of payloads that ride still; an operator's rules deleted them."""
    monkeypatch.setattr(runner, "_spawn_aside", AtOnce)
    here, there = MemoryStorage("brought-back"), MemoryStorage("brought-back-from")
    store, backup = Store(lambda: here), Store(lambda: there)
    with store.run(RUN) as run:
        for step in range(1, 6):
            run.save(state_of(step))
        store.copy(RUN, backup)
        assert by_hand(backup.run(RUN).access.base()).manifest.inline
        with Store(lambda: here) as operator:
            operator.run(RUN).retain(Retention(keep_last=1))
            backup.copy(RUN, operator)
        run.save(state_of(6))
    assert [info.seq for info in store.run(RUN).history()] == [6, 5, 4, 3, 2, 1]
    assert [problem for report in store.verify(depth=3) for problem in report.problems] == []


ACTS: dict[str, Callable[[Run], Any]] = {
    "save": lambda run: run.save(state_of(7)),
    "once": lambda run: run.once("pay", int, 7),
    "renew": lambda run: run._core.call(run._claimed().renew()),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_an_agent_did_on_top_of_a_copy_is_not_copied_over(act: Callable[[Run], Any]) -> None:
    """It had begun before the copy came, so it need not become the writer, and the copy seemed untouched."""
    here, there = (MemoryStorage(next(_names)) for _ in range(2))
    store, backup = Store(lambda: here), Store(lambda: there)
    with store.run(RUN, lease=60) as run:
        run.save(state_of(1))
        store.copy(RUN, backup)
        backup.copy(RUN, store)
        act(run)
        before = by_hand(run.access.base()).manifest
        assert before.copied is None
        if act is not ACTS["renew"]:
            with pytest.raises(ConflictError):
                backup.copy(RUN, store)
            assert by_hand(run.access.base()).manifest == before
        act(run)


def test_an_agent_whose_run_is_set_back_is_told_that() -> None:
    """By somebody who brings back an earlier manifest: else it would save another one of that number."""
    storage = MemoryStorage(next(_names))
    with Store(lambda: storage).run(RUN) as run:
        run.save(state_of(1))
        earlier = by_hand(storage.read(keys.manifest_key(RUN)))
        assert earlier is not None
        run.save(state_of(2))
        by_hand(storage.delete([keys.manifest_key(RUN)]))
        by_hand(storage.create(keys.manifest_key(RUN), earlier.data))
        with pytest.raises(ConflictError, match="load the run") as told:
            run.save(state_of(3))
        assert (told.value.facts["known"], told.value.facts["newest"]) == (2, 1)
        assert run.load() == state_of(1)
        assert run.save(state_of(3)).seq == 2


@pytest.mark.parametrize("saves", [1, 5, 40], ids=lambda n: f"{n} saves")
def test_a_source_that_has_begun_anew_does_not_take_the_copy_of_the_old_one(saves: int) -> None:
    """The nightly copy after the bucket was lost: it must not be what destroys the backup."""
    here, there, anew = (MemoryStorage(next(_names)) for _ in range(3))
    store, backup = Store(lambda: here), Store(lambda: there)
    with store.run(RUN) as run:
        for step in range(1, 6):
            run.save(state_of(step))
    store.copy(RUN, backup)
    anew.url = here.url
    with Store(lambda: anew).run(RUN) as run:
        for step in range(101, 101 + saves):
            run.save(state_of(step))
    for _ in range(2):
        with pytest.raises(ConflictError, match="another history"):
            Store(lambda: anew).copy(RUN, backup)
        assert backup.run(RUN).load() == state_of(5)


def test_a_source_that_was_set_back_does_not_take_what_only_the_copy_has_left() -> None:
    here, there = (MemoryStorage(next(_names)) for _ in range(2))
    store, backup = Store(lambda: here), Store(lambda: there)
    store.run(RUN).save(state_of(1))
    earlier = by_hand(here.read(keys.manifest_key(RUN)))
    assert earlier is not None
    store.run(RUN).save(state_of(2))
    store.copy(RUN, backup)
    by_hand(here.delete([keys.manifest_key(RUN)]))
    by_hand(here.create(keys.manifest_key(RUN), earlier.data))
    with pytest.raises(ConflictError, match="another history"):
        store.copy(RUN, backup)
    assert backup.run(RUN).load() == state_of(2)
    assert backup.copy(RUN, store).seq == 2, "the way back"
