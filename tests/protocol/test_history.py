"""Pages of older checkpoints, and what operators do: a crash or a lost answer at every storage call.

The window of the manifest is small here, so that every life has pages of two
levels in it. After each fault the laws hold, and the operation done again has its
effect once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from cloudckpt import objects, runner
from cloudckpt.errors import (
    CheckpointNotFoundError,
    CloudckptError,
    HeldError,
    RunDeletedError,
    StaleStateError,
)
from cloudckpt.pointer import Pointer
from cloudckpt.retention import Retention
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol import past, scripted
from tests.protocol.past import RUN, SAVES, TAGGED, World, save, state_of
from tests.protocol.scripted import AtOnce, WhenAwaited

small = past.small
aside = scripted.aside


@pytest.mark.usefixtures("aside")
def test_the_laws_hold_after_every_save_of_a_long_run() -> None:
    world = World(saves=0)
    with world.store.run(RUN) as run:
        for step in range(1, 80):
            save(world, run, step)
            manifest = world.check()
            assert len(manifest.checkpoints) - sum(page.count for page in manifest.history) <= 7
    assert max(page.level for page in manifest.history) >= 2
    assert world.seqs() == list(range(79, 0, -1))


def test_an_object_is_put_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that is late sees payloads ride whose objects were put since: each was sent again."""

    def fold_late(work: Any) -> Any:
        return AtOnce(work) if "_put_behind" in work.__qualname__ else WhenAwaited(work)

    monkeypatch.setattr(runner, "_spawn_aside", fold_late)
    monkeypatch.setattr(objects, "RIDE_BYTES", 250)
    world = World(saves=0)
    counted = FaultyStorage(world.inner)
    with world.open(counted).run(RUN) as run:
        for step in range(1, 80):
            save(world, run, step)
    put = [call.key for call in counted.calls if call.op == "put"]
    assert len(put) == len(set(put)) > 79


@pytest.mark.parametrize("rules", [Retention(keep_last=9), Retention(keep_last=2, hourly=1, min_keep=5)])
@pytest.mark.parametrize("aside", [AtOnce], indirect=True)
@pytest.mark.usefixtures("aside")
def test_what_expired_in_pages_goes_too(rules: Retention) -> None:
    world = World(saves=0, rules=rules)
    most = 0
    with world.store.run(RUN) as run:
        for step in range(1, 80):
            save(world, run, step)
            world.check()
            most = max(most, len(world.seqs()))
        assert run.load(tag="good") == state_of(TAGGED)
    assert most <= (rules.keep_last or 0) * 5 // 4 + 20
    keep = max(rules.keep_last or 0, rules.min_keep)
    world.store.run(RUN).retain()
    assert world.seqs() == [*range(79, 79 - keep, -1), TAGGED]
    world.store.collect(RUN)
    left = by_hand(world.inner.list("objects/")).rows
    assert len(left) <= keep + 8, "payloads and a few pages"


def test_a_collector_after_every_save_takes_nothing_that_is_needed(aside: type) -> None:
    """Pages that were made ready, and are in no manifest yet, are what it removes."""
    world = World(saves=0)
    removed = 0
    with world.store.run(RUN) as run:
        for step in range(1, 40):
            save(world, run, step)
            before = {row.key for row in by_hand(world.inner.list("objects/")).rows}
            removed += world.open(world.inner).collect(RUN).removed
            after = {row.key for row in by_hand(world.inner.list("objects/")).rows}
            world.ledger.delete(before - after)
            world.check()
            if step % 3 == 0:
                run.load()  # the fence is in what is read, so the next save does not fail on it
    assert removed > 10 or aside is WhenAwaited
    assert world.seqs() == list(range(39, 0, -1))


@dataclass(frozen=True)
class Operation:
    """Something that a user does, and what must be so after it was done."""

    act: Callable[[World, Store], Any]
    done: Callable[[World], bool]
    told: tuple[type[CloudckptError], ...] = ()
    """What it may say when it is done again after it happened."""


def rollback(world: World, store: Store) -> None:
    with world.ledger.asking(state_of(TAGGED)) as told, store.run(RUN) as run:
        told(run.rollback(seq=TAGGED))


def next_saves(world: World, store: Store) -> None:
    with store.run(RUN) as run:
        world.ledger.took_over(run.epoch)
        for step in range(run.load()["step"] + 1, SAVES + 6):
            save(world, run, step)


OPERATIONS = {
    "save": Operation(next_saves, lambda w: w.store.run(RUN).load() == state_of(SAVES + 5)),
    "load": Operation(lambda _, s: s.run(RUN).load(seq=2), lambda _: True),
    "history": Operation(lambda _, s: s.run(RUN).history(), lambda _: True),
    "tag": Operation(
        lambda _, s: s.run(RUN).tag("late", seq=2), lambda w: w.store.run(RUN).find(tag="late").seq == 2
    ),
    "untag": Operation(
        lambda _, s: s.run(RUN).untag("good", seq=TAGGED),
        lambda w: not w.store.run(RUN).history(tag="good"),
    ),
    "annotate": Operation(
        lambda _, s: s.run(RUN).annotate({"why": "odd"}, seq=3),
        lambda w: w.store.run(RUN).find(seq=3).notes == {"why": "odd"},
    ),
    "hold": Operation(
        lambda _, s: s.run(RUN).hold("case 7", seq=3),
        lambda w: w.store.run(RUN).find(seq=3).hold is not None,
    ),
    "hold the run": Operation(
        lambda _, s: s.run(RUN).hold("case 7", whole=True), lambda w: w.check().hold is not None
    ),
    "release": Operation(lambda _, s: s.run(RUN).release(whole=True), lambda w: w.check().hold is None),
    "retain": Operation(
        lambda _, s: s.run(RUN).retain(Retention(keep_last=6)),
        lambda w: w.seqs() == [*range(SAVES, SAVES - 6, -1), TAGGED],
    ),
    "rollback": Operation(rollback, lambda w: w.store.run(RUN).load() == state_of(TAGGED)),
    "fork": Operation(
        lambda _, s: s.fork(RUN, "new", tag="good"),
        lambda w: w.store.run("new").load() == state_of(TAGGED),
        told=(StaleStateError,),
    ),
    "collect": Operation(
        lambda _, s: s.collect(RUN), lambda w: w.store.collect(RUN, dry_run=True).removed == 0
    ),
    "delete": Operation(lambda _, s: s.delete(RUN), lambda w: not by_hand(w.inner.list("objects/")).rows),
}


@pytest.mark.usefixtures("aside")
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_survives_a_fault_at_each_of_its_calls(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    operation = OPERATIONS[name]

    def attempt(world: World, plan: Plan) -> FaultyStorage:
        storage = FaultyStorage(world.inner, plan)
        store = world.open(storage)
        try:
            operation.act(world, store)
            store.close()
        except SimulatedCrash:
            assert storage.crashed
        finally:
            store._core.closed = True
        return storage

    def world_for() -> World:
        world = World()
        if name in ("retain", "delete", "release"):
            world.ledger.keep_last = 1
        return world

    calls = len(attempt(world_for(), Plan()).calls)
    assert calls > 0
    record_property("crash points", calls * len(Effect))
    for plan in every_fault(calls):
        world = world_for()
        try:
            attempt(world, plan)
            world.check()
            with suppress(*operation.told):
                operation.act(world, world.open(world.inner))
            world.check()
            assert operation.done(world)
        except BaseException as error:
            error.add_note(f"{name=} {plan=}")
            raise


def test_a_rolled_back_state_outlives_its_first_checkpoint() -> None:
    """Two checkpoints have one object, and the older one's page expires first."""
    world = World(rules=Retention(keep_last=6))
    world.ledger.keep_last = 6
    with world.store.run(RUN) as run:
        world.ledger.took_over(run.epoch)
        with world.ledger.asking(state_of(TAGGED)) as told:
            told(run.rollback(tag="good"))
        run.untag("good", seq=TAGGED)
        for ask in world.ledger.saved:
            if ask.told.seq == TAGGED:  # type: ignore[union-attr]
                ask.told = None
        rolled = run.head
        assert rolled
        run.tag("again")
        for step in range(SAVES + 1, SAVES + 30):
            save(world, run, step)
            run.retain()
            world.check()
        assert run.load(seq=rolled) == state_of(TAGGED)
        assert run.find(seq=rolled).origin.seq == TAGGED  # type: ignore[union-attr]
    world.store.collect(RUN)
    world.check()
    assert world.store.run(RUN).load(tag="again") == state_of(TAGGED)


def test_applying_rules_reads_each_page_twice_at_most() -> None:
    """Once for the plan, and once to make the pages anew."""
    world = World(saves=60)
    count = sum(
        row.key.rpartition("/")[2].startswith("h") for row in by_hand(world.inner.list("objects/")).rows
    )
    storage = FaultyStorage(world.inner)
    world.open(storage).run(RUN).retain(Retention(keep_last=9))
    reads = [call.key for call in storage.calls if call.op == "read" and "/h" in call.key]
    assert count > 5
    assert max(map(reads.count, reads)) == 2


def test_a_hold_refuses_expiry_and_deletion_until_it_is_released() -> None:
    world = World()
    run = world.store.run(RUN)
    run.hold("case 7", by="an auditor", seq=2)
    world.ledger.keep_last = 1
    run.retain(Retention(keep_last=2))
    assert world.seqs() == [SAVES, SAVES - 1, TAGGED, 2]
    with pytest.raises(HeldError, match="case 7") as caught:
        world.store.delete(RUN)
    assert (caught.value.facts["by"], caught.value.facts["seq"]) == ("an auditor", 2)
    run.release(seq=2)
    run.hold("the whole case", whole=True)
    assert run.retain().dropped == ()
    with pytest.raises(HeldError, match="the whole case"):
        world.store.delete(RUN)
    run.release(whole=True)
    assert run.retain().dropped == (2,)
    world.store.delete(RUN, why="done")
    with pytest.raises(RunDeletedError):
        run.load()


def test_a_zombie_does_not_revive_a_deleted_run() -> None:
    world = World()
    with world.store.run(RUN) as zombie:
        world.open(world.inner).delete(RUN, why="asked for")
        for _ in range(2):
            with pytest.raises(RunDeletedError):
                zombie.save({"step": 99, "blob": secrets.token_bytes(40_000)})
        with pytest.raises(RunDeletedError):
            zombie.tag("late")
    tombstone = by_hand(check_laws(world.inner, RUN, Ledger())).tombstone
    assert (tombstone.why, len(tombstone.digest)) == ("asked for", 64)
    assert world.store.run(RUN).history() == []
    assert world.store.collect(RUN).removed >= 1, "what the zombie put before it was told"


def test_a_tag_or_a_hold_of_an_operator_does_not_disturb_the_agent() -> None:
    world = World()
    with world.store.run(RUN) as run:
        world.ledger.took_over(run.epoch)
        for step in range(SAVES + 1, SAVES + 12):
            operator = world.open(world.inner).run(RUN)
            operator.tag(f"t{step}", seq=step - 20)
            operator.annotate({"n": step})
            save(world, run, step)
            world.check()
    assert run.find(tag=f"t{SAVES + 1}").seq == SAVES - 19


def test_an_edit_that_lost_the_race_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent saves between the operator's look and its write."""
    world = World()
    swap = Pointer.swap
    with world.store.run(RUN) as run:
        world.ledger.took_over(run.epoch)

        async def late(self: Any, *arguments: Any) -> Any:
            monkeypatch.setattr(Pointer, "swap", swap)
            save(world, run, SAVES + 1)
            return await swap(self, *arguments)

        operator = world.open(world.inner).run(RUN)
        monkeypatch.setattr(Pointer, "swap", late)
        assert operator.tag("late").seq == SAVES, "the one that was the newest when the operator looked"
    world.check()
    assert world.store.run(RUN).find(tag="late").seq == SAVES
    assert world.store.run(RUN).load() == state_of(SAVES + 1)


def test_an_expired_checkpoint_says_by_which_rule() -> None:
    world = World(rules=Retention(keep_last=3))
    with pytest.raises(CheckpointNotFoundError, match="keep_last=3") as caught:
        world.store.run(RUN).load(seq=2)
    assert "until" in caught.value.facts


def test_a_clock_that_goes_back_drops_nothing_that_the_order_keeps() -> None:
    world = World(rules=Retention(keep_within=1.0, min_keep=7))
    assert len(world.seqs()) >= 7
