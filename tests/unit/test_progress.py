"""Progress: counted from saves, and never from wall clocks."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pytest

import cloudckpt
from cloudckpt.progress import Progress, clock_time
from tests.unit.machines import Clock, clock_of, stores


@dataclass
class State:
    step: int = 0
    max_steps: int = 10


def told_of(*steps: tuple[float, int], **options: Any) -> list[Progress]:
    """Return what is told of a run that saves these steps at these times."""
    (store,) = stores(1)
    told: list[Progress] = []
    with store.run("r", progress=told.append, **options) as run:
        for seconds, step in steps:
            clock_of(store).seconds = seconds
            run.save(State(step))
    return told


def test_steps_rate_and_estimate_are_told_after_each_save() -> None:
    told = told_of((0, 1), (2, 2), (4, 3))
    assert told == [
        Progress("r", 1, 1, 10, None, None),
        Progress("r", 2, 2, 10, 0.5, 16.0),
        Progress("r", 3, 3, 10, 0.5, 14.0),
    ]


def test_the_caller_knows_better_than_the_state() -> None:
    assert told_of((0, 1), (1, 2), max_steps=4)[-1] == Progress("r", 2, 2, 4, 1.0, 2.0)
    assert told_of((0, 5), (1, 6), max_steps=4)[-1].remaining == 0.0


def test_a_run_that_has_become_slower_shows_it() -> None:
    fast = [(n * 0.1, n) for n in range(100)]
    slow = [(fast[-1][0] + n * 10.0, 99 + n) for n in range(1, 40)]
    assert told_of(*fast, *slow)[-1].rate == pytest.approx(0.1)


def test_a_run_that_goes_back_begins_a_new_estimate() -> None:
    """A rollback would make the rate negative, and the estimate nonsense."""
    told = told_of((0, 1), (1, 2), (2, 1), (3, 2))
    assert [one.rate for one in told] == [None, 1.0, None, 1.0]


def test_a_state_without_steps_counts_its_saves() -> None:
    (store,) = stores(1)
    told: list[Progress] = []
    store.run("r", progress=told.append).save([1, 2])
    assert told == [Progress("r", 1, 1, None, None, None)]


def test_everybody_can_read_how_many_steps_there_will_be() -> None:
    (store,) = stores(1)
    run = store.run("r")
    run.save({"step": 1, "max_steps": 5})
    assert store.run("r").summary().max_steps == 5
    run.save({"step": 2})
    assert store.run("r").summary().max_steps == 5, "a state that does not say it takes nothing back"
    run.save({"step": 2, "max_steps": True})
    assert store.run("r").summary().max_steps == 5


def test_saves_in_the_background_are_told_when_they_are_durable() -> None:
    (store,) = stores(1)
    told: list[Progress] = []
    with store.run("r", progress=told.append, cadence="background", overflow="block") as run:
        for n in range(1, 4):
            run.save(State(n))
    assert [one.step for one in told] == [1, 2, 3]


def test_what_the_callback_raises_is_raised_and_the_save_is_done() -> None:
    (store,) = stores(1)

    def fail(_: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.run("r", progress=fail).save({"n": 1})
    assert store.run("r").load() == {"n": 1}


def test_a_bar_shows_how_far_several_runs_are() -> None:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True)
    with cloudckpt.progress_bar(console=console) as bar:
        bar(Progress("nightly [42]", 1, 3, 10, None, None))
        bar(Progress("nightly [42]", 2, 4, 10, 0.5, 75.0))
        bar(Progress("other", 1, 1, None, None, None))
    shown = out.getvalue()
    for part in ("nightly [42]", "4/10", "30.0 steps a minute", "1:15 left", "other", "1/?"):
        assert part in shown, part


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0:00"), (59.6, "1:00"), (725, "12:05"), (11229, "3:07:09")]
)
def test_seconds_are_said_as_on_a_clock(seconds: float, said: str) -> None:
    assert clock_time(seconds) == said


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    assert Clock().monotonic() == 0.0
    assert told_of((0, 1), (0, 2))[-1].rate is None
