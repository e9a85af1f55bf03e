"""The real core, a few processes, and every run of them: all interleavings, all fates of all requests.

How that is done is in `explore.py`. Here are the short forms; ``python -m tests.soak
exhaustive`` goes as far as time and memory allow.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.protocol.explore import MANY, Found, explore
from tests.protocol.memory import read_memory
from tests.protocol.plots import EXHAUSTIVE, RIDES, riding
from tests.protocol.scheduler import Pause, Process

Awake = Callable[[Found], None]

ALONE = ("a writer and a collector", "a writer whose run is deleted", "a reader of what expires")
"""Plots with one writer."""

BOUNDS = [
    ("two writers and a collector", "none rides", 1),
    ("two writers whose run is deleted", "none rides", 1),
    ("two writers", "none rides", 1),
    ("three become the writer", "none rides", 0),
    ("two writers", "some ride", 0),
    ("two writers", "all ride, put behind at once", 0),
    ("two writers and a collector", "all ride, put behind at once", 0),
]
"""Plots with more of them, and how many faults a run has at most."""


@pytest.fixture
def awake(pytestconfig: pytest.Config) -> Awake:
    """Start the watch for deadlocks anew whenever a search tells how far it is: it is long, and not stuck."""
    seconds = float(pytestconfig.getini("faulthandler_timeout"))
    file = pytestconfig.stash[fault_handler_stderr_fd_key]
    return lambda _: faulthandler.dump_traceback_later(seconds, exit=True, file=file)


def all_runs(plot: str, ride: str, *, faults: int, **options: Any) -> Found:
    bounds = EXHAUSTIVE[plot]
    with riding(ride):
        *_, found = explore(
            bounds.plot, faults=faults, keep_last=bounds.keep_last, epochs=bounds.epochs, **options
        )
    return found


@pytest.mark.parametrize("ride", RIDES)
@pytest.mark.parametrize("plot", ALONE)
def test_the_laws_hold_whatever_the_network_does(plot: str, ride: str, awake: Awake) -> None:
    """Every request of every run may go wrong in every way; more faults lead to nothing new."""
    found = all_runs(plot, ride, faults=MANY, tell=awake)
    print(found)
    assert found.finished
    assert found.ends > 10


@pytest.mark.parametrize(("plot", "ride", "faults"), BOUNDS)
def test_the_laws_hold_in_every_run_with_so_many_faults(
    plot: str, ride: str, faults: int, awake: Awake
) -> None:
    found = all_runs(plot, ride, faults=faults, tell=awake)
    print(found)
    assert found.complete
    assert found.ends > 100


# What is left out tells nothing.


@pytest.mark.parametrize(
    ("plot", "ride", "faults"),
    [
        ("a writer and a collector", "none rides", 2),
        ("a writer and a collector", "some ride, all but the newest are history", 1),
        ("a writer whose run is deleted", "some ride", 1),
        ("a reader of what expires", "all ride, put behind at once", 1),
        ("two writers", "none rides", 0),
    ],
)
def test_no_end_of_a_run_is_lost_by_a_shortcut(plot: str, ride: str, faults: int, awake: Awake) -> None:
    """Two lives are one when they come to the same memory; requests that commute have one order."""
    found: list[set[object]] = []
    counts = []
    for merged in (True, False):
        for short in (True, False):
            ends: set[object] = set()
            counts.append(
                all_runs(plot, ride, faults=faults, merged=merged, short=short, ends=ends, tell=awake).states
            )
            found.append(ends)
    assert all(ends == found[0] for ends in found)
    assert counts[0] < counts[-1]


# What a process holds in memory.


def held(*answers: object) -> bytes:
    """Return the memory of a process that counts answers, in a loop and half-way through an expression."""

    async def act() -> None:
        total = 0
        for _ in (7, 7, 7):
            total = total + [1, await Pause(), 2][1]  # type: ignore[func-returns-value]

    process = Process("p")
    task = process.spawn(act())
    task.step(None)
    for answer in answers:
        task.pause = task.work.send(answer)
    digest = read_memory(*process.holds()).digest
    process.close()
    return digest


def test_memory_is_the_same_however_it_came_about() -> None:
    assert held(1, 2) == held(2, 1)


@pytest.mark.parametrize(("one", "other"), [((1,), (2,)), ((1,), (1.0,)), ((0,), (0, 0))])
def test_memory_differs_by_a_value_a_type_and_a_place(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """How often a loop has gone round is nowhere but on the frame's stack."""
    assert held(*one) != held(*other)


def test_memory_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(TypeError, match="can't be read"):
        read_memory({"key": memoryview(b"hidden")})
