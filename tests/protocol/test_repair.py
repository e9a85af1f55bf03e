"""A damaged run goes on: from its newest intact checkpoint, by a commit, and nothing is dropped unasked."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any

import pytest

from cloudckpt import keys, runner
from cloudckpt.errors import (
    CorruptCheckpointError,
    FencedError,
    HeldError,
    RunDeletedError,
    RunNotFoundError,
    StaleStateError,
)
from cloudckpt.model import Origin
from cloudckpt.repair import RULE, Repaired
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol import damaged as worlds
from tests.protocol.damaged import KEY, LONG, RUN, LongWorld, small_pages
from tests.protocol.scripted import AtOnce, no_sleep

long_world = worlds.long_world
world = worlds.world

_names = itertools.count()


def seqs(world: LongWorld) -> list[int]:
    return [info.seq for info in world.run.history()]


def lose(world: LongWorld, *gone: int) -> None:
    for seq in gone:
        world.write(world.object_of(seq), None)


def lose_page(world: LongWorld, *, level: int) -> Any:
    page = next(page for page in world.pages() if page.level == level)
    world.write(keys.page_key(RUN, page.name), b"")
    return page


def test_the_newest_intact_checkpoint_becomes_the_newest_by_a_commit(world: LongWorld) -> None:
    """And what was there stays there: history only grows."""
    lose(world, LONG, LONG - 1)
    done = world.run.repair()
    assert (done.newest, done.back_to, done.seq) == (LONG, LONG - 2, LONG + 1)
    assert world.run.load() == world.state(LONG - 2)
    assert seqs(world) == list(range(LONG + 1, 0, -1))
    [head, *_] = world.run.history(limit=1)
    assert (head.origin, head.step, head.parent) == (Origin(RUN, LONG - 2), LONG - 2, LONG)
    assert [problem.seq for problem in done.left] == [LONG, LONG - 1]


def test_damage_that_only_reading_shows_is_repaired_too(world: LongWorld) -> None:
    """The one to go back to is read whole, whatever the depth."""
    for seq in (LONG, LONG - 1):
        key = world.object_of(seq)
        world.write(key, world.at(key)[:-1] + b"\0")
    done = world.run.repair(depth=1)
    assert done.back_to == LONG - 2
    assert world.run.load() == world.state(LONG - 2)


def test_the_way_back_goes_through_damaged_pages(world: LongWorld) -> None:
    own = [entry.seq for entry in world.manifest.checkpoints]
    lose(world, *own)
    page = lose_page(world, level=0)
    assert page.newest == own[-1] - 1
    done = world.run.repair()
    assert done.back_to == page.oldest - 1
    assert world.run.load() == world.state(page.oldest - 1)


def test_a_second_repair_finds_nothing_to_do(world: LongWorld) -> None:
    lose(world, LONG)
    world.run.repair()
    before = world.everything()
    again = world.run.repair()
    assert (again.back_to, again.seq, again.dropped) == (None, None, ())
    assert world.everything() == before


@pytest.mark.parametrize("drop", [False, True])
def test_a_dry_run_says_what_would_be_done_and_writes_nothing(world: LongWorld, drop: bool) -> None:
    lose(world, LONG, 12)
    page = lose_page(world, level=1)
    before = world.everything()
    planned = world.run.repair(dry_run=True, drop_damaged=drop)
    assert world.everything() == before
    done = world.run.repair(drop_damaged=drop)
    assert planned.seq is None
    assert (planned.back_to, planned.dropped, planned.lost) == (done.back_to, done.dropped, done.lost)
    assert done.lost == (page.count if drop else 0)
    assert planned.left == done.left


def test_nothing_is_written_when_the_newest_is_intact(world: LongWorld) -> None:
    """An agent that is at work is not fenced for an old checkpoint's sake."""
    lose(world, 12)
    before = world.everything()
    done = world.run.repair()
    assert (done.back_to, done.seq) == (None, None)
    assert [problem.seq for problem in done.left] == [12]
    assert world.everything() == before


@pytest.mark.parametrize("gone", [(12,), (LONG, LONG - 1, 12, 11, 1), tuple(range(13, LONG + 1))])
def test_what_is_damaged_leaves_the_history_when_it_is_asked_for(
    world: LongWorld, gone: tuple[int, ...]
) -> None:
    """And nothing else does; retention and collecting go on; what is told says why it went."""
    lose(world, *gone)
    done = world.run.repair(drop_damaged=True)
    assert (sorted(done.dropped), done.left) == (sorted(gone), ())
    kept = [seq for seq in range(LONG, 0, -1) if seq not in gone]
    assert [seq for seq in seqs(world) if seq <= LONG] == kept
    assert all(world.run.load(seq=seq) == world.state(seq) for seq in kept)
    assert world.run.verify(deep=True).ok
    with pytest.raises(Exception, match=RULE):
        world.run.load(seq=gone[-1])
    world.store.collect(RUN)
    after = world.run.verify(deep=True)
    assert (after.ok, after.unreferenced) == (True, 0)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_page_that_cant_be_read_leaves_the_history_when_asked(world: LongWorld, level: int) -> None:
    """Without it nothing could be thinned or collected any more: nobody would know what is in use."""
    page = lose_page(world, level=level)
    with pytest.raises(CorruptCheckpointError):
        world.store.collect(RUN)
    done = world.run.repair(drop_damaged=True)
    assert (done.lost, done.seq, done.left) == (page.count, None, ())
    kept = [seq for seq in range(LONG, 0, -1) if not page.oldest <= seq <= page.newest]
    assert seqs(world) == kept
    assert all(world.run.load(seq=seq) == world.state(seq) for seq in kept)
    assert world.run.verify(deep=True).ok
    assert world.store.collect(RUN).removed >= page.count
    assert world.run.verify(deep=True).unreferenced == 0


def test_saves_go_on_while_a_page_is_damaged(world: LongWorld) -> None:
    """Also those that move older checkpoints into pages."""
    lose_page(world, level=2)
    with small_pages(), world.run as run:
        for n in range(LONG + 1, LONG + 20):
            run.save(world.state(n))
    assert len(world.run.verify().problems) == 1
    world.run.repair(drop_damaged=True)
    assert world.run.verify(deep=True).ok
    assert world.run.load() == world.state(LONG + 19)


def test_what_is_held_is_never_dropped(world: LongWorld) -> None:
    """The hold's maker decides; of a page that can't be read nobody knows what was held in it."""
    for seq in (LONG - 1, 12):
        with world.restored():
            world.run.hold("for the court", by="ann", seq=seq)
            lose(world, seq)
            before = world.everything()
            with pytest.raises(HeldError, match="for the court") as caught:
                world.run.repair(drop_damaged=True)
            assert caught.value.facts["seq"] == seq
            assert world.everything() == before
            assert world.run.repair().back_to is None
    with world.restored():
        world.run.hold("for the court", whole=True)
        lose(world, 12)
        with pytest.raises(HeldError, match="for the court"):
            world.run.repair(drop_damaged=True, dry_run=True)
    with world.restored():
        world.run.hold("for the court", seq=1)
        page = lose_page(world, level=2)
        with pytest.raises(HeldError, match="page of history") as caught:
            world.run.repair(drop_damaged=True)
        assert caught.value.facts["key"] == keys.page_key(RUN, page.name)


def test_when_nothing_is_intact_the_error_says_so_and_nothing_is_written(world: LongWorld) -> None:
    lose(world, *range(1, LONG + 1))
    before = world.everything()
    with pytest.raises(CorruptCheckpointError, match="no checkpoint of the run is intact") as caught:
        world.run.repair(drop_damaged=True)
    assert (caught.value.seq, caught.value.key) == (LONG, world.object_of(LONG))
    assert world.everything() == before


def test_a_damaged_manifest_is_not_repaired_and_the_error_says_what_to_do(world: LongWorld) -> None:
    world.write(KEY, world.at(KEY)[:-1])
    with pytest.raises(CorruptCheckpointError, match="bring back an earlier version"):
        world.run.repair()


def test_a_run_that_is_not_there_or_was_deleted_is_not_repaired(world: LongWorld) -> None:
    with pytest.raises(RunNotFoundError):
        world.store.run("nobody").repair()
    world.store.delete(RUN)
    with pytest.raises(RunDeletedError):
        world.run.repair()


def test_a_run_without_a_checkpoint_is_whole(world: LongWorld) -> None:
    with world.store.run("new"):
        assert world.store.run("new").repair() == Repaired("new", 0, None)


def test_the_writer_at_work_is_fenced_and_a_later_one_goes_on(world: LongWorld) -> None:
    agent = world.run
    agent.acquire()
    lose(world, LONG)
    world.run.repair(drop_damaged=True)
    with pytest.raises(FencedError):
        agent.save({"late": True})
    with world.run as run:
        assert run.load() == world.state(LONG - 1)
        assert run.save({"n": "on"}).seq == LONG + 2


def test_who_repairs_as_the_writer_stays_the_writer(world: LongWorld) -> None:
    lose(world, 12)
    with world.run as run:
        run.save({"n": 1})
        assert run.repair(drop_damaged=True).dropped == (12,)
        assert run.save({"n": 2}).seq == LONG + 2
        lose(world, 11)
        assert run.repair(drop_damaged=True).dropped == (11,)
        assert run.load() == {"n": 2}


class Late(MemoryStorage):
    """Memory in which somebody saves once, after the damage was seen and before it is repaired."""

    def __init__(self, name: str, key: str, save: Any) -> None:
        super().__init__(name)
        self._key = key
        self._save = save

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        found = await super().read(key, offset=offset, length=length)
        if key == self._key and self._save is not None:
            save, self._save = self._save, None
            save()
        return found


def test_a_save_that_comes_between_is_never_rolled_back(world: LongWorld) -> None:
    """The agent went on by itself from an intact state; the newest is intact now."""
    lose(world, LONG)
    name = world._storage.url.removeprefix("memory://")
    store = Store(lambda: Late(name, world.object_of(LONG - 1), lambda: world.run.save({"n": "newer"})))
    done = store.run(RUN).repair()
    assert (done.newest, done.back_to) == (LONG + 1, None)
    assert world.run.load() == {"n": "newer"}


def test_who_is_told_that_somebody_saves_all_the_time_has_repaired_nothing(world: LongWorld) -> None:
    lose(world, LONG)
    name = world._storage.url.removeprefix("memory://")
    late = Late(name, world.object_of(LONG - 1), None)

    def save() -> None:
        seq = world.run.save({"blob": world.state(77)["blob"]}).seq
        key = world.manifest.checkpoints[0].extents[0].key
        world.write(key, None)
        late._save = save if seq < LONG + 9 else None

    late._save = save
    with pytest.raises(StaleStateError):
        Store(lambda: late).run(RUN).repair()


def test_the_awaited_twin_does_the_same(world: LongWorld) -> None:
    lose(world, LONG)
    assert asyncio.run(world.run.arepair()).back_to == LONG - 1
    assert world.run.load() == world.state(LONG - 1)


def test_a_repair_that_ends_anywhere_is_finished_by_another(
    world: LongWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash or a lost answer at each of its storage calls."""
    monkeypatch.setattr(runner, "_spawn_aside", AtOnce)
    monkeypatch.setattr(runner, "_sleep", no_sleep)
    lose(world, LONG, 12)
    page = lose_page(world, level=0)
    gone = {LONG, 12, *range(page.oldest, page.newest + 1)}
    left = [seq for seq in range(LONG, 0, -1) if seq not in gone]

    def repair(plan: Plan) -> FaultyStorage:
        storage = FaultyStorage(world._storage, plan)
        store = Store(lambda: storage, timeout=1, keep_last=100)
        try:
            store.run(RUN).repair(drop_damaged=True)
        finally:
            store._core.closed = True
        return storage

    with world.restored():
        calls = len(repair(Plan()).calls)
    assert calls > 20
    for plan in every_fault(calls, (Effect.CRASH_BEFORE, Effect.CRASH_AFTER, Effect.LOST_ANSWER)):
        with world.restored():
            with suppress(SimulatedCrash):
                repair(plan)
            repair(Plan())
            assert world.run.load() == world.state(max(left))
            assert world.run.verify(deep=True).ok, plan
            assert seqs(world) == [LONG + 1, *left], plan
