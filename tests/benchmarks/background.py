"""What an agent feels of its saves: the time of a step, of its call of `save`, and of its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cloudckpt
from cloudckpt.codec import encode
from cloudckpt.pace import Cadence
from cloudckpt.run import Run
from cloudckpt.store import Store
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, milliseconds, seconds_of

LATENCIES = (0.02, 0.1)
MODEL = 0.05
CADENCES: tuple[Cadence, ...] = ("step", "background")
MB = 1_000_000


def run(lab: Lab) -> Iterator[Table]:
    yield _steps(lab)
    yield _callers(lab)
    yield _heartbeats(lab)


# ---- a step of an agent


def _steps(lab: Lab) -> Table:
    table = Table(
        f"a step of an agent whose model takes {MODEL * 1e3:.0f} ms",
        ("step", "background", "step / background", "lost by a crash at most"),
        (
            "means of a step, on a folder whose every request takes that much longer; state: a transcript",
            "in cadence step a crash loses the step under way; in background, the saves that are pending too",
        ),
    )
    for size in (30_000, 300_000):
        for latency in LATENCIES:
            steps = lab.rounds(40)
            times, pending = {}, 0
            for cadence in CADENCES:
                with (
                    cloudckpt.open(lab.folder(), latency=latency) as store,
                    store.run("r", cadence=cadence) as run,
                ):
                    times[cadence], most = _agent(run, size, steps)
                    pending = max(pending, most)
            ratio = times["step"] / times["background"]
            table.add(
                f"{size // 1000} KB, {latency * 1e3:.0f} ms a request",
                *(milliseconds(times[cadence]) for cadence in CADENCES),
                Figure(ratio, least=1.0),
                Figure(pending, " saves"),
            )
    return table


def _agent(run: Run, size: int, steps: int) -> tuple[float, int]:
    state = {"messages": _messages(size)}
    run.save(state)
    run.flush()
    most, start = 0, time.perf_counter()
    for step in range(steps):
        time.sleep(MODEL)
        state["messages"].append({"role": "assistant", "content": f"step {step}"})
        run.save(state)
        most = max(most, run.pending)
    return (time.perf_counter() - start) / steps, most


def _messages(size: int, content: int = 1000) -> list[dict[str, Any]]:
    words = random.Random(size)
    texts = [" ".join(f"{words.getrandbits(32):x}" for _ in range(content // 9)) for _ in range(50)]
    return [
        {"role": "user", "content": f"{n} {texts[n % len(texts)]}"} for n in range(max(1, size // content))
    ]


# ---- the caller of `save`


def _callers(lab: Lab) -> Table:
    table = Table(
        "the caller of save, 100 KB, cadence background",
        ("encode p50", "encode p99", "save p50", "save p99", "p99 over the encoding's"),
        (
            "encode: what cadence step does with the state before it sends anything, here in turns with the",
            "saves and just as often; each 5 ms after the other, of a state that changed",
        ),
    )
    state = {"messages": _messages(100_000)}
    rounds = lab.rounds(800)
    places: dict[str, Callable[[], Store]] = {
        "memory": lambda: cloudckpt.open(f"memory://{lab.name()}", latency=0.02),
        "folder": lambda: cloudckpt.open(lab.folder(), latency=0.02),
    }
    for name, make in places.items():
        with make() as store, store.run("r", cadence="background") as run:
            run.save(state)
            run.flush()
            calls: dict[str, Callable[[], object]] = {
                "encode": lambda: encode(state),
                "save": lambda run=run: run.save(state),  # type: ignore[misc]
            }
            times: dict[str, list[float]] = {"encode": [], "save": []}
            for number in range(rounds):
                for call, work in calls.items():
                    state["messages"][0]["content"] = f"{number} {call}"
                    time.sleep(0.005)
                    times[call].append(seconds_of(work)[0])
        found = {call: sorted(values) for call, values in times.items()}
        encoded, saved = ([one[rounds // 2], one[int(rounds * 0.99)]] for one in found.values())
        over = Figure((saved[1] - encoded[1]) * 1e3, " ms", most=1.0)
        table.add(name, *map(milliseconds, (*encoded, *saved)), over)
    return table


# ---- an event loop


def _heartbeats(lab: Lab) -> Table:
    size = (25 if lab.quick else 100) * MB
    rounds = 3
    table = Table(
        f"an event loop while {size // MB} MB are saved to a folder",
        ("asave itself", "longest gap", "without a save", "in cadence step"),
        (
            "gap: the longest wait of a task that asks for a turn each millisecond, less that millisecond;",
            f"each the least of {rounds} rounds, before the machine's other work where that may be asked for",
            "asave itself: how long the call took, on the loop; it is a part of the longest gap",
            "without a save: for a second; no target where memory must be copied, or a million objects",
            "looked at, at the call",
        ),
    )
    kinds: dict[str, tuple[Callable[[], Any], bool]] = {
        "texts of 100 KB": (lambda: {"messages": _messages(size, 100_000)}, True),
        "texts of 10 KB": (lambda: {"messages": _messages(size, 10_000)}, True),
        "texts of 100 bytes": (lambda: [f"{n:>100}" for n in range(size // 100)], False),
        "one large bytes": (lambda: {"blob": random.Random(1).randbytes(size)}, True),
        "arrays over bytes": (
            lambda: [np.frombuffer(random.Random(n).randbytes(MB)) for n in range(size // MB)],
            True,
        ),
        "arrays": (lambda: [np.random.default_rng(n).random(MB // 8) for n in range(size // MB)], False),
        "one bytearray": (lambda: bytearray(random.Random(1).randbytes(size)), False),
    }
    for name, (make, has_target) in kinds.items():
        state = make()
        gc.collect()
        gc.freeze()  # a collection of the state's own objects is no work of a save
        calls: list[float] = []
        gaps: dict[str, list[float]] = {cadence: [] for cadence in ("none", *CADENCES)}
        for _ in range(rounds):
            for cadence in CADENCES:
                with cloudckpt.open(lab.folder()) as store, _first():
                    call, gap = asyncio.run(_saving(store, state, cadence))
                gaps[cadence].append(gap)
                if cadence == "background":
                    calls.append(call)
        with _first():
            gaps["none"].append(asyncio.run(_idle(1.0)))
        gc.unfreeze()
        most = 10.0 if has_target else None
        table.add(
            name,
            milliseconds(min(calls)),
            Figure(min(gaps["background"]) * 1e3, " ms", most=most),
            milliseconds(min(gaps["none"])),
            milliseconds(min(gaps["step"])),
        )
    return table


@contextlib.contextmanager
def _first() -> Iterator[None]:
    """Let the threads of this process go before those of others, where that is allowed.

    They sleep or compress for a second; what other processes take from them is no gap of ours.
    """
    _schedule("SCHED_RR", 1)
    try:
        yield
    finally:
        _schedule("SCHED_OTHER", 0)


def _schedule(policy: str, priority: int) -> None:
    tasks = Path("/proc/self/task")
    if hasattr(os, policy) and tasks.is_dir():
        for task in tasks.iterdir():
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.sched_setscheduler(int(task.name), getattr(os, policy), os.sched_param(priority))


class _Heart:
    """A task beside others, and the longest wait for its turn."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task = asyncio.ensure_future(self._beat())

    async def _beat(self) -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - start - 0.001)

    async def stop(self) -> float:
        await asyncio.sleep(0)
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.longest


async def _idle(seconds: float) -> float:
    heart = _Heart()
    await asyncio.sleep(seconds)
    return await heart.stop()


async def _saving(store: Store, state: Any, cadence: Cadence) -> tuple[float, float]:
    """Return how long the call of asave took, and the longest wait of a task beside it."""
    async with store.run("r", cadence=cadence) as run:
        await asyncio.sleep(0.02)
        heart = _Heart()
        await asyncio.sleep(0)  # so that it waits already
        call, saving = seconds_of(lambda: run.asave(state))
        await saving
        await run.aflush()
        await asyncio.sleep(0.002)
        return call, await heart.stop()
