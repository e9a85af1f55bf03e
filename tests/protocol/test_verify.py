"""Verification finds each kind of damage, names the place, and takes nothing else for it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from cloudckpt import keys
from cloudckpt.errors import ArchivedError, InvalidInputError, RunNotFoundError, ThrottledError
from cloudckpt.examine import Problem, Verified
from cloudckpt.model import FORMAT_VERSION
from cloudckpt.sealed import seal, unseal
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import FaultyStorage
from tests.protocol import damaged as worlds
from tests.protocol.damaged import (
    KEY,
    LONG,
    RUN,
    ActiveWorld,
    LongWorld,
    World,
    damages,
    flipped,
    found,
    small_pages,
)

long_world = worlds.long_world
world = worlds.world

DEPTHS = (1, 2, 3)
_names = itertools.count()


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_whole_run_is_whole_at_any_depth_and_it_is_told_what_was_looked_at(
    world: LongWorld, depth: int
) -> None:
    report = world.run.verify(depth=depth)
    assert report.ok
    assert (report.checkpoints, report.objects) == (LONG, LONG + len(world.pages()))
    sizes = {key: len(data) for key, data in world.everything().items()}
    used = [world.object_of(seq) for seq in range(1, LONG + 1)]
    used += [keys.page_key(RUN, page.name) for page in world.pages()]
    assert report.bytes == sum(sizes[key] for key in used)
    assert report.read == (report.bytes if depth == 3 else sum(page.size for page in world.pages()))
    assert world.run.verify(deep=True).depth == 3


@pytest.mark.parametrize("seq", [LONG, LONG - 1, 12, 1])
def test_an_object_that_somebody_deleted_is_found_by_listing(world: LongWorld, seq: int) -> None:
    """As a lifecycle rule does it. At depth 1 nobody looks."""
    key = world.object_of(seq)
    world.write(key, None)
    assert found(world, 1) == []
    assert found(world, 2) == found(world, 3) == [("object-missing", seq, key)]


@pytest.mark.parametrize("seq", [LONG, 12])
def test_every_wrong_length_is_found_by_listing_and_every_wrong_byte_by_reading(
    world: LongWorld, seq: int
) -> None:
    key = world.object_of(seq)
    good = world.at(key)
    for damaged in damages(good):
        world.write(key, damaged)
        longer = len(damaged) != len(good)
        assert found(world, 2) == ([("object-length", seq, key)] if longer else [])
        assert found(world, 3) == [("object-length" if longer else "object-bytes", seq, key)]


def test_damage_of_a_page_is_found_at_once_and_hides_nothing_else(world: LongWorld) -> None:
    """A branch, a leaf below it, and a loose leaf: what stands beside it is looked at all the same."""
    for page in world.pages():
        key = keys.page_key(RUN, page.name)
        for damaged in (None, *damages(world.at(key))):
            with world.restored():
                world.write(key, damaged)
                assert found(world, 1) == [("page", page.newest, key)]
                report = world.run.verify(depth=2)
                assert report.checkpoints == LONG - page.count
                assert report.unreferenced == 0  # nobody knows what the page refers to


def test_the_objects_that_two_checkpoints_share_are_told_for_both(world: LongWorld) -> None:
    world.run.rollback(seq=12)
    key = world.object_of(12)
    world.write(key, None)
    assert found(world, 2) == [("object-missing", LONG + 1, key), ("object-missing", 12, key)]


def test_riding_payloads_need_no_object() -> None:
    world = World(large=False)
    assert found(world, 2) == found(world, 3) == []
    assert world.run.verify(depth=2).objects == 0


def test_what_nothing_refers_to_is_counted_and_is_no_damage(world: LongWorld) -> None:
    by_hand(world._storage.put(keys.object_key(RUN, 77, "0" * 64, "ab"), b"left behind"))
    before = world.run.verify(depth=2)
    assert before.ok
    removed = world.store.collect(RUN, dry_run=True)
    assert (before.unreferenced, before.unreferenced_bytes) == (removed.removed, removed.bytes)
    assert before.unreferenced > 0
    assert world.run.verify(depth=1).unreferenced == 0


# What an agent did once.


@pytest.fixture(scope="module")
def active_world() -> ActiveWorld:
    with small_pages():
        return ActiveWorld()


@pytest.fixture
def active(active_world: ActiveWorld) -> Iterator[ActiveWorld]:
    with active_world.restored():
        yield active_world


def test_the_ledger_of_actions_is_looked_at_too(active: ActiveWorld) -> None:
    """Its pages and results are in use: none of them is spare."""
    for depth in DEPTHS:
        assert found(active, depth) == []
    report = active.run.verify(deep=True)
    assert report.objects == len(active.ledger) + len(active.results)
    assert report.read - report.bytes == active.run.find().size  # which rides
    assert report.unreferenced == active.store.collect(RUN, dry_run=True).removed


def test_damage_of_the_ledger_is_found_and_hides_nothing_else(active: ActiveWorld) -> None:
    """Without it an agent would do again what it has done."""
    for key in active.ledger:
        with active.restored():
            for damaged in (None, *damages(active.at(key))):
                active.write(key, damaged)
                assert found(active, 1) == [("ledger", None, key)]


def test_a_result_that_is_lost_or_changed_is_found(active: ActiveWorld) -> None:
    for key in active.results:
        good = active.at(key)
        for damaged in (None, good[:-1], good + b"x", flipped(good, 99, 1)):
            active.write(key, damaged)
            same = damaged is not None and len(damaged) == len(good)
            assert found(active, 1) == []
            assert found(active, 2) == ([] if same else [("result", None, key)])
            assert found(active, 3) == [("result", None, key)]
        active.write(key, good)


def test_a_repair_drops_nothing_of_the_ledger(active: ActiveWorld) -> None:
    """It says what is damaged; what was done once must never be done again for a repair's sake."""
    active.write(active.ledger[0], None)
    active.write(active.results[0], None)
    before = active.everything()
    done = active.run.repair(drop_damaged=True)
    assert (done.back_to, done.dropped, done.lost) == (None, (), 0)
    assert {problem.kind for problem in done.left} == {"ledger", "result"}
    assert active.everything() == before


class Cold(MemoryStorage):
    """Memory of which all objects have gone to a cold tier."""

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        if key.startswith(keys.OBJECTS):
            raise ArchivedError("the object is in a cold tier; restore it first", key=key)
        return await super().read(key, offset=offset, length=length)


@pytest.mark.parametrize("kind", [LongWorld, ActiveWorld])
def test_what_is_in_a_cold_tier_is_told_and_is_no_damage_to_repair(kind: type[World]) -> None:
    with small_pages():
        world = kind()  # type: ignore[call-arg]
    store = Store(lambda: Cold(world._storage.url.removeprefix("memory://")))
    [report] = store.verify(deep=True)
    assert {problem.kind for problem in report.problems} == {"archived"}
    assert all(problem.key for problem in report.problems)
    if kind is LongWorld:
        with pytest.raises(ArchivedError):
            store.run(RUN).repair(drop_damaged=True)


# Manifests.


def test_a_damaged_manifest_is_reported_and_hides_no_other_run() -> None:
    """Also one with a long id, of which the key tells only the beginning."""
    world = World(large=False)
    others = ["a", "m" * 1000, "z"]
    for other in others:
        world.store.run(other).save({})
    for damaged in ("a", RUN, "m" * 1000):
        key = keys.manifest_key(damaged)
        for data in (b"", b"junk", flipped(world.at(key), 90, 1), world.at(keys.manifest_key("z"))):
            with world.restored():
                world.write(key, data)
                for depth in DEPTHS:
                    reports = list(world.store.verify(depth=depth))
                    [bad] = [report for report in reports if not report.ok]
                    assert len(reports) == 4
                    assert [(p.kind, p.seq, p.key) for p in bad.problems] == [("manifest", None, key)]
                    assert damaged.startswith(bad.run.removesuffix("…"))
    assert [report.run for report in world.store.verify("m")] == ["m" * 1000]
    assert [report.run for report in world.store.verify("m" * 999)] == ["m" * 1000]
    assert list(world.store.verify("m" * 999 + "x")) == []


def test_a_newer_format_is_told_from_damage(world: LongWorld) -> None:
    world.write(KEY, seal({**unseal(world.at(KEY)), "format": FORMAT_VERSION + 1}))
    assert found(world, 1) == [("newer-format", None, KEY)]


@pytest.mark.parametrize("run_id", [RUN, "x" * 1000])
def test_a_manifest_that_is_gone_is_found_by_what_it_left(run_id: str) -> None:
    """A rule that deletes what is old takes the manifest of a finished run first."""
    world = World(large=True)
    with world.store.run("x" * 1000) as run:
        run.save(world.state(1))
    key = keys.manifest_key(run_id)
    world.write(key, None)
    [problem] = world.store.run(run_id).verify().problems
    assert (problem.kind, problem.run, problem.key) == ("manifest-missing", run_id, key)
    [bad] = [report for report in world.store.verify(depth=2) if not report.ok]
    assert [(p.kind, p.key) for p in bad.problems] == [("manifest-missing", key)]
    assert run_id.startswith(bad.run.removesuffix("…"))
    assert [report.run for report in world.store.verify("other", depth=2)] == []


def test_a_deleted_run_is_whole_and_says_that_it_is_deleted(world: LongWorld) -> None:
    world.store.delete(RUN)
    assert found(world, 3) == []
    assert world.run.verify().deleted


def test_a_run_that_is_not_there_is_not_whole_either() -> None:
    store = Store(lambda: MemoryStorage("verify-nothing"))
    with pytest.raises(RunNotFoundError):
        store.run("nobody").verify()
    assert list(store.verify(depth=3)) == []


@pytest.mark.parametrize("depth", [0, 4, "2", True, None])
def test_a_depth_that_is_none_is_refused(world: LongWorld, depth: Any) -> None:
    with pytest.raises(InvalidInputError, match="depth"):
        world.run.verify(depth=depth)
    with pytest.raises(InvalidInputError, match="depth"):
        list(world.store.verify(depth=depth))


# Cost, and writers at work.


def test_depth_two_reads_no_payload(world: LongWorld) -> None:
    """And depth one lists nothing."""
    pages = len(world.pages())
    for depth, calls in ((1, {"read": 1 + pages}), (2, {"read": 1 + pages, "list": 1})):
        counted = FaultyStorage(world._storage)
        Store(lambda counted=counted: counted).run(RUN).verify(depth=depth)
        assert Counter(call.op for call in counted.calls) == calls


class Meanwhile(MemoryStorage):
    """Memory in which something happens just before the first listing of objects."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        super().__init__(name)
        self._act: Callable[[], None] | None = act

    async def list(self, prefix: str, *, cursor: str | None = None) -> Any:
        act, self._act = self._act, None
        if act is not None:
            act()
        return await super().list(prefix, cursor=cursor)


def test_what_expires_meanwhile_is_not_taken_for_damage_and_what_is_damaged_is_told() -> None:
    """The manifest that was read refers to objects that its run's writer has deleted since."""
    name = f"verify-{next(_names)}"
    store = Store(lambda: MemoryStorage(name), keep_last=2)

    def go_on() -> None:
        with store.run(RUN) as run:
            for n in range(6):
                run.save({"n": n, "blob": random.Random(n).randbytes(40_000)})

    go_on()
    assert Store(lambda: Meanwhile(name, go_on)).run(RUN).verify(depth=2).ok
    run = store.run(RUN)
    key = by_hand(run.access.base()).manifest.checkpoints[0].extents[0].key
    run.tag("kept")
    by_hand(MemoryStorage(name).delete([key]))
    [problem] = Store(lambda: Meanwhile(name, go_on)).run(RUN).verify(depth=2).problems
    assert (problem.kind, problem.key) == ("object-missing", key)


def test_the_awaited_twins_say_the_same(world: LongWorld) -> None:
    world.write(world.object_of(3), None)

    async def ask() -> tuple[Verified, list[Verified]]:
        return await world.run.averify(depth=2), [one async for one in world.store.averify(depth=2)]

    report = world.run.verify(depth=2)
    assert asyncio.run(ask()) == (report, [report])
    assert not report.ok


def test_a_problem_tells_the_place_and_what_to_do() -> None:
    problem = Problem("object-missing", "r", 3, "objects/r/3", "a checkpoint's object is missing")
    told = str(problem)
    assert told.startswith("a checkpoint's object is missing; bring its object back")
    assert told.endswith("run='r' seq=3 key='objects/r/3'")


class Hours:
    """A clock on which every look is an hour later."""

    def __init__(self) -> None:
        self._hours = 0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        self._hours += 1
        return self._hours * 3600.0


def test_what_may_take_hours_has_no_deadline_as_a_whole(world: LongWorld) -> None:
    """A request that fails in passing is tried again, however long it is since the call began."""

    class Flaky(MemoryStorage):
        failed: ClassVar[set[str]] = set()

        async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
            if key not in self.failed:
                self.failed.add(key)
                raise ThrottledError("slow down")
            return await super().read(key, offset=offset, length=length)

    name = world._storage.url.removeprefix("memory://")
    store = Store(lambda: Flaky(name), clock=Hours(), timeout=100_000)
    assert store.run(RUN).verify(deep=True).ok
    assert len(Flaky.failed) > LONG
    assert store.run(RUN).verify(deep=True) in list(store.verify(deep=True))
