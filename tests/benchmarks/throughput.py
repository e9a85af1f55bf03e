"""Collecting and copying beside the same engine's bare calls, as many at once.

One large run is held against the listing and the deletes, or the reads and puts, of its objects
and nothing else; many small runs against all requests that their collection or copy takes, of
which there are several for each object: that both make the same is checked by counting. Each
turn has new runs, which are written before it.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from cloudckpt import keys
from cloudckpt.collect import objects_of
from cloudckpt.copying import AT_ONCE
from cloudckpt.fleet import THREADS, Outcome, each
from cloudckpt.runner import Runner
from cloudckpt.storage.contract import Storage
from cloudckpt.store import Store
from tests.benchmarks import filling
from tests.benchmarks.counting import Counting
from tests.benchmarks.engines import Place, places
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, timed, turns

LEAST = 0.6
"""Of the bare engine's throughput."""

ROUNDS = 8
QUICK = ("file", "s3fs")
"""Engines of a quick run."""

SPARE = 1_000
COPIED = 120
COPIED_BYTES = 20_000
SMALL_RUNS = 48


def run(lab: Lab) -> Iterator[Table]:
    table = Table(
        "objects a second, collected and copied",
        ("bare", "ours", "ours / bare", "/ deletes alone"),
        (
            f"collect a run: {SPARE:,} objects too many; bare: to list it, and to delete them in one call",
            f"copy a run: {COPIED} objects of 20 KB, {AT_ONCE} at once; bare: a read and a put of each",
            f"{SMALL_RUNS} runs: in {THREADS} threads, 2 checkpoints each, 1 object too many;",
            "bare: all requests that they take (list, manifest and its write, object) in as many threads",
        ),
    )

    def say(note: str) -> None:
        table.notes += (note,)

    for place in places(lab, say):
        if lab.quick and place.engine not in QUICK:
            continue
        for contest in (CollectOne, CollectMany, CopyOne, CopyMany):
            with ExitStack() as ends:
                _add(table, lab, contest(place, ends))
    yield table


def _add(table: Table, lab: Lab, contest: Contest) -> None:
    contestants = {name: timed(work) for name, work in contest.contestants().items()}
    before = dict.fromkeys(contestants, contest.prepare)
    samples = turns(contestants, rounds=lab.rounds(ROUNDS), before=before)
    took = {name: statistics.median(values) for name, values in samples.items()}
    contest.check()
    table.add(
        f"{contest.label}, {contest.place.label}",
        Figure(contest.objects / took["bare"], "/s"),
        Figure(contest.objects / took["ours"], "/s"),
        Figure(took["bare"] / took["ours"], "x", least=LEAST),
        Figure(took["alone"] / took["ours"], "x") if "alone" in took else "",
    )


class Contest:
    """Something done to runs that were just written, bare and by us.

    Attributes:
        label: What.
        runs, checkpoints, spare, size: Of the runs, see `filling.fill`.
        objects: How many objects are collected or copied in a turn.
    """

    label: str
    runs = 1
    checkpoints = 2
    spare = 1
    size = 100
    objects: int

    def __init__(self, place: Place, ends: ExitStack) -> None:
        self.place = replace(place, url=f"{place.url}/{type(self).__name__.lower()}")
        self.engine, self.runner, self.store, self.counted = _sides(self.place, ends)
        self.threads = ends.enter_context(ThreadPoolExecutor(THREADS))
        self.names: list[str] = []
        self.objects_of: dict[str, list[str]] = {}
        self._numbers = itertools.count()

    def prepare(self) -> None:
        """Write new runs."""
        self.names = [f"run-{next(self._numbers):06}" for _ in range(self.runs)]
        filling.fill(self.place, self.names, checkpoints=self.checkpoints, spare=self.spare, size=self.size)
        self.objects_of = {name: list(self.runner.call(objects_of(self.engine, name))) for name in self.names}

    def contestants(self) -> dict[str, Callable[[], None]]:
        """Return what takes turns."""
        return {"bare": self.bare, "ours": self.ours}

    def bare(self) -> None:
        """Do it by the engine alone."""
        raise NotImplementedError

    def ours(self) -> None:
        """Do it by the store."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise when the two ask for something else."""

    def spared(self, run: str) -> list[str]:
        """Return the keys of a run's objects that nothing refers to."""
        return [key for key in self.objects_of[run] if keys.object_seq(key) > self.checkpoints]

    def each_by_threads(self, work: Callable[[str], Awaitable[object]]) -> None:
        """Do something bare to each run, as many at once as `Store.each` does."""
        list(self.threads.map(lambda run: self.runner.call(work(run)), self.names))

    def check_counts(self, bare: Iterable[Counting], ours: Iterable[Counting]) -> None:
        """Raise when the requests differ; the first copies read the settings of their store."""
        bare_calls, our_calls = (sum((one.calls for one in some), Counter()) for some in (bare, ours))
        if sum(((our_calls - bare_calls) + (bare_calls - our_calls)).values()) > THREADS:
            raise RuntimeError(f"{self.label} takes {our_calls}, and bare {bare_calls}")


class CollectOne(Contest):
    label = "collect a run"
    spare = objects = SPARE

    def contestants(self) -> dict[str, Callable[[], None]]:
        return {**super().contestants(), "alone": self.alone}

    def bare(self) -> None:
        self.runner.call(objects_of(self.engine, self.names[0]))
        self.alone()

    def alone(self) -> None:
        """Delete what is to be deleted, without listing what there is."""
        self.runner.call(self.engine.delete(self.spared(self.names[0])))

    def ours(self) -> None:
        _expect(self.store.collect(self.names[0]).removed, self.objects)


class CollectMany(Contest):
    label = f"collect {SMALL_RUNS} runs"
    runs = objects = SMALL_RUNS

    def __init__(self, place: Place, ends: ExitStack) -> None:
        super().__init__(place, ends)
        self.plain = Counting(self.engine)

    async def _bare(self, run: str) -> None:
        engine = self.plain
        await engine.list(keys.objects_prefix(run))
        base = await engine.read(keys.manifest_key(run))
        assert base is not None
        await engine.replace(keys.manifest_key(run), base.data, base.token)
        await engine.delete(self.spared(run))

    def bare(self) -> None:
        self.each_by_threads(self._bare)

    def ours(self) -> None:
        _expect(
            sum(one.value.removed for one in _well(each(self.store, Store.collect, self.names))), self.runs
        )

    def check(self) -> None:
        self.check_counts([self.plain], [self.counted])


class CopyOne(Contest):
    label = "copy a run"
    checkpoints = objects = COPIED
    spare = 0
    size = COPIED_BYTES

    def __init__(self, place: Place, ends: ExitStack) -> None:
        super().__init__(place, ends)
        self.there, _, self.to, self.counted_there = _sides(
            replace(self.place, url=f"{self.place.url}-copies"), ends
        )

    async def _bare(self, key: str) -> None:
        stored = await self.engine.read(key)
        assert stored is not None
        await self.there.put(f"bare/{key}", stored.data)

    def bare(self) -> None:
        wanted = self.objects_of[self.names[0]]
        if self.engine.blocking:
            with ThreadPoolExecutor(AT_ONCE) as threads:
                list(threads.map(lambda key: self.runner.call(self._bare(key)), wanted))
        else:
            self.runner.call(_in_lanes(wanted, self._bare))

    def ours(self) -> None:
        _expect(self.store.copy(self.names[0], self.to).sent, self.objects)


class CopyMany(CopyOne):
    label = f"copy {SMALL_RUNS} runs"
    runs = SMALL_RUNS
    checkpoints = 2
    objects = 2 * SMALL_RUNS
    spare = 1

    def __init__(self, place: Place, ends: ExitStack) -> None:
        super().__init__(place, ends)
        self.plain, self.plain_there = Counting(self.engine), Counting(self.there)

    async def _bare(self, run: str) -> None:
        here, there = self.plain, self.plain_there
        manifest = await here.read(keys.manifest_key(run))
        assert manifest is not None
        await there.read(f"bare/{run}")
        await there.list(f"bare-objects/{run}/")
        await here.list(keys.objects_prefix(run))
        for key in set(self.objects_of[run]) - set(self.spared(run)):
            stored = await here.read(key)
            assert stored is not None
            await there.put(f"bare-{key}", stored.data)
        await there.create(f"bare/{run}", manifest.data)

    def bare(self) -> None:
        self.each_by_threads(self._bare)

    def ours(self) -> None:
        copied = each(self.store, partial(Store.copy, to=self.to), self.names)
        _expect(sum(one.value.sent for one in _well(copied)), self.objects)

    def check(self) -> None:
        self.check_counts([self.plain, self.plain_there], [self.counted, self.counted_there])


def _sides(place: Place, ends: ExitStack) -> tuple[Storage, Runner, Store, Counting]:
    """Return an engine, a runner for its bare calls, a store on it, and the counts of what that asks."""
    engine, runner = filling.opened(place, ends)
    counted = Counting(engine)
    return engine, runner, ends.enter_context(Store(lambda: counted, probed=True)), counted


async def _in_lanes(wanted: Sequence[str], work: Callable[[str], Awaitable[object]]) -> None:
    """Do something to each, some side by side, for an engine that suspends."""

    async def lane(some: Sequence[str]) -> None:
        for one in some:
            await work(one)

    await asyncio.gather(*(lane(wanted[number::AT_ONCE]) for number in range(AT_ONCE)))


def _well(outcomes: Iterable[Outcome[Any]]) -> Iterator[Any]:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        yield outcome


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found} objects instead of {wanted}")
