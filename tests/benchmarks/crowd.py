"""Many runs that save at once in one process, beside the engine's bare writes at the same width.

Each of 64 writers has a run (or a key) of its own, and goes on to its next write when
the last one was answered. `save` is called from as many threads; `asave` is gathered
by one event loop. The bare writes are made where the engine makes them: by as many
threads, or gathered by the IO loop.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.benchmarks.engines import Bench, places
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, turns

WIDTH = 64
EACH = 4
"""Writes of each writer in a turn."""

LEAST = 0.7
"""Of the bare engine's throughput."""

ROUNDS = 12


def run(lab: Lab) -> Iterator[Table]:
    table = Table(
        f"{WIDTH} runs that save 2 KiB at once in one process, at no latency",
        ("bare", "save", "save / bare", "asave", "asave / bare"),
        (
            f"writes a second of {WIDTH} writers, {EACH} each in a turn; medians of turns",
            "bare: the engine's conditional writes of the same manifests, by as many threads or by one loop",
        ),
    )

    def say(note: str) -> None:
        table.notes += (note,)

    for place in places(lab, say):
        with Bench(place) as bench, ThreadPoolExecutor(WIDTH) as threads, asyncio.Runner() as loop:
            took = turns(_contestants(bench, threads, loop), rounds=lab.rounds(ROUNDS), pause=0.02)
        seconds = {name: statistics.median(values) for name, values in took.items()}
        rate = {name: Figure(WIDTH * EACH / value, "/s") for name, value in seconds.items()}
        table.add(
            place.label,
            rate["bare"],
            rate["save"],
            Figure(seconds["bare"] / seconds["save"], "x", least=LEAST),
            rate["asave"],
            Figure(seconds["bare"] / seconds["asave"], "x", least=LEAST),
        )
    yield table


def _contestants(
    bench: Bench, threads: ThreadPoolExecutor, loop: asyncio.Runner
) -> dict[str, Callable[[], float]]:
    names = [f"run-{number}" for number in range(WIDTH)]
    runs = list(threads.map(bench.filled, names))
    writes = [bench.bare(name) for name in names]
    saves = [partial(run.save, bench.state) for run in runs]
    asaves = [partial(run.asave, bench.state) for run in runs]
    drive = bench.runner.call
    return {
        "bare": (lambda: _by_threads(threads, [lambda write=write: drive(write()) for write in writes]))
        if bench.engine.blocking
        else (lambda: drive(_gathered(writes))),
        "save": lambda: _by_threads(threads, saves),
        "asave": lambda: loop.run(_gathered(asaves)),
    }


def _by_threads(threads: ThreadPoolExecutor, works: Sequence[Callable[[], object]]) -> float:
    """Return the seconds until all have ended, from when all have begun."""
    ready = threading.Barrier(len(works) + 1)

    def writer(work: Callable[[], object]) -> None:
        ready.wait()
        for _ in range(EACH):
            work()

    started = [threads.submit(writer, work) for work in works]
    ready.wait()
    start = time.perf_counter()
    for one in started:
        one.result()
    return time.perf_counter() - start


async def _gathered(works: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Return the seconds until all have ended."""

    async def writer(work: Callable[[], Awaitable[object]]) -> None:
        for _ in range(EACH):
            await work()

    start = time.perf_counter()
    await asyncio.gather(*map(writer, works))
    return time.perf_counter() - start
