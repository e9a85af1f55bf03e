"""Stores with many runs: what it takes to list them and to walk over them, at two sizes.

The runs are written raw (`filling.py`). Requests are counted where the engine is asked;
listings on MinIO are counted by a proxy too. Memory is what Python holds at most while
a walk goes on, over what it held before.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

import cloudckpt
from cloudckpt import keys
from cloudckpt.store import Store
from tests.benchmarks import filling
from tests.benchmarks.counting import Counting
from tests.benchmarks.engines import Place
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, mebibytes, medians
from tests.servers.base import Server, Unavailable
from tests.servers.proxy import Proxy

SIZES = (2_999, 9_999)
"""One short of full pages: MinIO at times, and obstore, can't tell that a full one is the last."""

QUICK = (99, 399)
PAGE = 1_000
FLAT = 1.5
"""Most that memory may grow by when the runs are three times as many, both of several pages."""

LINEAR = 1.02
"""The same of the requests a run."""

WORDS = {
    "LIST": ("list", "versions"),
    "GET": ("read",),
    "PUT": ("create", "replace", "put"),
    "DELETE": ("delete", "erase"),
}


def run(lab: Lab) -> Iterator[Table]:
    yield _listings(lab)
    yield _walks(lab)


# ---- runs


def _listings(lab: Lab) -> Table:
    table = Table(
        "runs of a store",
        ("LIST", "others", "on the wire", "runs", "bare list", "runs / bare", "memory", "/ few"),
        (
            "bare list: all pages of the engine object itself; on the wire: all requests, as a proxy counts",
            "/ few: memory over that at few runs; one that holds all it saw would need three times as much",
        ),
    )
    places = [Place("folder", "file", str(lab.folder()))]
    server: Server | None = None
    try:
        server = lab.server()
    except Unavailable as error:
        table.notes += (f"MinIO skipped: {error}",)
    else:
        places += [
            Place(f"{engine} on MinIO", engine, f"{server.url}/{lab.name()}", server.storage_options())
            for engine in ("s3fs", "obstore")
        ]
    for place in places:
        few = 0
        for size in QUICK if lab.quick else SIZES:
            found = _listing(lab, _inside(place, size), size, server if place.options else None)
            memory = found.pop()
            table.add(
                f"{size:,} runs, {place.label}",
                *found,
                mebibytes(memory),
                Figure(memory / few, "x", _flat(lab)) if few else "",
            )
            few = memory
    return table


def _flat(lab: Lab) -> float | None:
    """Return the target for memory: none where all runs are less than a page, which is held."""
    return None if lab.quick else FLAT


def _inside(place: Place, size: int) -> Place:
    """Return a place below another one, for a store of its own."""
    return Place(place.label, place.engine, f"{place.url}/{size}", place.options)


def _listing(lab: Lab, place: Place, size: int, server: Server | None) -> list[Any]:
    with ExitStack() as ends:
        engine, runner = filling.opened(place, ends)
        filling.fill(place, filling.names(size))
        counted = Counting(engine)
        store = ends.enter_context(Store(lambda: counted))

        def ours() -> None:
            _expect(sum(1 for _ in store.runs()), size)

        def bare() -> None:
            cursor = None
            while True:
                page = runner.call(engine.list(keys.MANIFESTS, cursor=cursor))
                if (cursor := page.cursor) is None:
                    return

        ours()
        requests = counted.taken()
        pages = -(-size // PAGE)
        took = medians({"ours": ours, "bare": bare}, rounds=lab.rounds(8))
        return [
            Figure(requests["list"], "", pages),
            Figure(requests.total() - requests["list"], "", 0),
            "" if server is None else Figure(_on_the_wire(place, server, size), "", pages),
            Figure(took["ours"], " s"),
            Figure(took["bare"], " s"),
            Figure(took["ours"] / took["bare"], "x"),
            _peak(ours),
        ]


def _on_the_wire(place: Place, server: Server, size: int) -> int:
    with Proxy(server.endpoint) as proxy:
        options = server.through(proxy.endpoint).storage_options()
        with cloudckpt.open(place.url, storage_options=options, engine=place.engine) as store:
            _expect(sum(1 for _ in store.runs()), size)
        return len(proxy.requests)


# ---- walks over all runs


def _walks(lab: Lab) -> Table:
    few, many = QUICK if lab.quick else SIZES
    table = Table(
        f"walks over {few:,} and {many:,} runs",
        (*WORDS, "a run", "/ few", "memory", "memory / few"),
        (
            "each run: 2 checkpoints with an object each, and 1 object too many",
            f"LIST to DELETE, a run: requests at {many:,} runs, divided by them; DELETE: of one or many keys",
            f"/ few: over the same at {few:,} runs; forget: of a tenth of them, by their prefix, with s3fs",
        ),
    )
    try:
        server = lab.server()
    except Unavailable as error:
        table.notes += (f"skipped, MinIO: {error}",)
        return table
    walks = {size: _Walks(lab, server, size) for size in (few, many)}
    for label, name in _Walks.NAMES.items():
        before, after = (walks[size].take(name) for size in (few, many))
        each = {word: sum(after.calls[op] for op in ops) / after.runs for word, ops in WORDS.items()}
        linear = (after.calls.total() / after.runs) / (before.calls.total() / before.runs)
        most_reads = 1 if name.startswith("verify") else None
        table.add(
            label,
            *(Figure(each[word], "", most_reads if word == "GET" else None) for word in WORDS),
            Figure(after.calls.total() / after.runs),
            Figure(linear, "x", LINEAR),
            mebibytes(after.memory),
            Figure(after.memory / before.memory, "x", _flat(lab)),
        )
    return table


class _Taken:
    """What a walk took.

    Attributes:
        runs: Over how many runs it went.
        calls: Requests by method.
        memory: Bytes that Python held at most.
    """

    def __init__(self, runs: int, calls: Counter[str], memory: int) -> None:
        self.runs, self.calls, self.memory = runs, calls, memory


class _Walks:
    """One store of many runs, and the walks over it, each done once and in this order."""

    NAMES: ClassVar[Mapping[str, str]] = {
        "runs": "runs",
        "verify, depth 1": "verify_1",
        "verify, depth 2": "verify_2",
        "collect, dry run": "collect_dry",
        "collect": "collect",
        "collect again": "collect_again",
        "retain(keep_last=1)": "retain",
        "copy": "copy",
        "copy again": "copy_again",
        "forget": "forget",
    }

    def __init__(self, lab: Lab, server: Server, size: int) -> None:
        self._size = size
        self._place = Place("MinIO", "obstore", f"{server.url}/{lab.name()}/{size}", server.storage_options())
        self._copies = Place("MinIO", "obstore", f"{self._place.url}-copies", server.storage_options())
        filling.fill(self._place, filling.names(size))

    def take(self, name: str) -> _Taken:
        """Do a walk, once over some runs to load what it needs and then over all."""
        return getattr(self, f"_{name}")()

    def _runs(self) -> _Taken:
        return self._over(lambda store, prefix: store.runs(prefix))

    def _verify_1(self) -> _Taken:
        return self._over(lambda store, prefix: _sound(store.verify(prefix, depth=1)))

    def _verify_2(self) -> _Taken:
        return self._over(lambda store, prefix: _sound(store.verify(prefix, depth=2)))

    def _collect_dry(self) -> _Taken:
        return self._each(partial(Store.collect, dry_run=True))

    def _collect(self) -> _Taken:
        return self._each(Store.collect)

    _collect_again = _collect

    def _retain(self) -> _Taken:
        return self._each(partial(_retained, rules=cloudckpt.Retention(keep_last=1)))

    def _copy(self) -> _Taken:
        with ExitStack() as ends:
            counted = Counting(filling.opened(self._copies, ends)[0])
            to = ends.enter_context(Store(lambda: counted, probed=True))
            found = self._each(partial(Store.copy, to=to), warm=False)
            found.calls.update(counted.taken())
            return found

    _copy_again = _copy

    def _forget(self) -> _Taken:
        tenth = "agent-" + "0" * (7 - len(str(self._size)))
        place = Place("MinIO", "s3fs", self._place.url, self._place.options)
        return self._each(partial(Store.forget, why="bench"), prefix=tenth, place=place)

    def _each(
        self,
        work: Callable[[Store, str], object],
        *,
        prefix: str = "",
        place: Place | None = None,
        warm: bool = True,
    ) -> _Taken:
        return self._over(
            lambda store, shard: _well(store.each(work, prefix=shard)), prefix=prefix, place=place, warm=warm
        )

    def _over(
        self,
        walk: Callable[[Store, str], Iterable[object]],
        *,
        prefix: str = "",
        place: Place | None = None,
        warm: bool = True,
    ) -> _Taken:
        with ExitStack() as ends:
            counted = Counting(filling.opened(place or self._place, ends)[0])
            store = ends.enter_context(Store(lambda: counted, probed=True))
            if warm:
                for _ in walk(store, "agent-000000"):
                    pass
            counted.taken()
            runs = 0

            def all_of_them() -> None:
                nonlocal runs
                runs = sum(1 for _ in walk(store, prefix))
                store._core.call(store._core._sweeper.settle())

            memory = _peak(all_of_them)
            return _Taken(runs, counted.taken(), memory)


def _retained(store: Store, run: str, *, rules: cloudckpt.Retention) -> object:
    return store.run(run).retain(rules)


def _sound(reports: Iterable[Any]) -> Iterator[object]:
    for report in reports:
        if not report.ok:
            raise RuntimeError(f"a sound run is called damaged: {report.problems}")
        yield report


def _well(outcomes: Iterable[Any]) -> Iterator[object]:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        yield outcome


# ---- what both need


def _expect(found: int, size: int) -> None:
    if found != size:
        raise RuntimeError(f"{found} runs instead of {size}")


def _peak(work: Callable[[], object]) -> int:
    """Return how many bytes Python held at most during some work, over what it held before."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
