"""Events: what listeners are told, when, and what the log says of it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from cloudckpt import events, hooks
from cloudckpt.errors import ConflictError, FencedError, InFlightError
from tests.unit.machines import clock_of, stores

_names = itertools.count()


@pytest.fixture
def told() -> Iterator[list[events.Event]]:
    found: list[events.Event] = []
    end = hooks.listen(found.append)
    yield found
    end()


def kinds(told: list[events.Event]) -> list[str]:
    return [type(one).__name__ for one in told]


def test_saves_and_loads_are_told_with_their_sizes(told: list[Any]) -> None:
    (store,) = stores(1)
    with store.run("r") as run:
        info = run.save({"step": 4, "text": "x" * 1000})
        run.load()
    assert kinds(told) == ["Saved", "Loaded"]
    for one in told:
        assert (one.run, one.seq, one.step, one.size) == ("r", 1, 4, info.size)
        assert one.seconds >= 0


def test_a_save_in_the_background_is_told_when_it_is_durable(told: list[Any]) -> None:
    (store,) = stores(1)
    with store.run("r", cadence="background") as run:
        run.save({"step": 1}).wait()
        assert kinds(told) == ["Saved"]


def test_a_resume_is_told_with_who_had_it_before_and_how_long_ago(told: list[Any]) -> None:
    ours, theirs = stores()
    ours.run("r").save({"step": 17})
    clock_of(theirs).wall += timedelta(minutes=5)
    with theirs.run("r") as run:
        run.save({"step": 18})
    (one,) = [one for one in told if isinstance(one, events.Resumed)]
    assert (one.seq, one.step, one.age, one.epoch) == (1, 17, timedelta(minutes=5), 2)
    assert one.host
    assert one.pid


def test_a_first_start_is_no_resume(told: list[Any]) -> None:
    (store,) = stores(1)
    with store.run("r"):
        pass
    with store.run("r"):
        pass
    assert kinds(told) == []


def test_a_fence_and_a_lost_race_are_told(told: list[Any]) -> None:
    ours, theirs = stores()
    run = ours.run("r")
    run.save({})
    theirs.run("r").save({})
    with pytest.raises(FencedError):
        run.save({})
    (one,) = [one for one in told if isinstance(one, events.Conflicted)]
    assert one.fenced


def test_what_is_done_once_is_told_around_it(told: list[Any]) -> None:
    (store,) = stores(1)

    def fail() -> None:
        raise ZeroDivisionError

    with store.run("r") as run:
        run.once("a", lambda: told.append("inside"))
        run.once("a", lambda: None)
        with pytest.raises(ZeroDivisionError):
            run.once("b", fail)
        with pytest.raises(InFlightError):
            run.once("b", fail)
    assert told[1] == "inside"
    ends = [one for one in told if isinstance(one, events.Acted)]
    assert [(one.key, one.known, type(one.error).__name__) for one in ends] == [
        ("a", False, "NoneType"),
        ("a", True, "NoneType"),
        ("b", False, "ZeroDivisionError"),
        ("b", False, "InFlightError"),
    ]
    begins = [one for one in told if isinstance(one, events.Acting)]
    assert [one.call for one in begins] == [one.call for one in ends]


def test_the_coroutine_forms_are_told_the_same(told: list[Any]) -> None:
    (store,) = stores(1)

    async def main() -> None:
        async with store.run("r") as run:
            await run.asave({"step": 1})
            await run.aload()
            await run.aonce("a", asyncio.sleep, 0)

    asyncio.run(main())
    assert kinds(told) == ["Saved", "Loaded", "Acting", "Acted"]


def test_what_a_listener_raises_is_raised_and_the_save_is_done() -> None:
    (store,) = stores(1)

    def fail(event: events.Event) -> None:
        raise ZeroDivisionError

    end = hooks.listen(fail)
    try:
        with pytest.raises(ZeroDivisionError):
            store.run("r").save({"n": 1})
    finally:
        end()
    assert store.run("r").load() == {"n": 1}


def test_who_does_not_listen_any_more_is_told_nothing() -> None:
    (store,) = stores(1)
    found: list[Any] = []
    hooks.listen(found.append)()
    store.run("r").save({})
    assert found == []


def test_a_resume_is_one_line_of_the_log_with_run_and_seq(caplog: pytest.LogCaptureFixture) -> None:
    """Crash recovery is a line in a log, and at INFO that is all a run says."""
    ours, theirs = stores()
    ours.run("r").save({"step": 17})
    clock_of(theirs).wall += timedelta(hours=3)
    caplog.set_level(logging.INFO, logger="cloudckpt")
    with theirs.run("r") as run:
        run.save({"step": 18})
        run.once("a", int)
        run.load()
    (line,) = caplog.records
    assert line.getMessage().startswith("resumed run='r' from step=17 (seq=1), saved 3 h ago; before: host=")
    assert (line.levelno, line.name, line.run, line.seq) == (logging.INFO, "cloudckpt", "r", 1)  # type: ignore[attr-defined]


def test_every_event_is_a_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = stores()
    caplog.set_level(logging.DEBUG, logger="cloudckpt")
    run = ours.run("r")
    run.save({"step": 1})
    run.load()
    run.once("pay", int)
    theirs.run("r").save({"step": 2})
    with pytest.raises(ConflictError):
        run.save({"step": 2})
    lines = [line.getMessage().partition(" run=")[0] for line in caplog.records]
    assert lines == ["saved", "loaded", "once begins", "once done", "resumed", "saved", "fenced"]
    assert {line.run for line in caplog.records} == {"r"}  # type: ignore[attr-defined]


def test_a_process_without_a_log_imports_neither_log_nor_events() -> None:
    """A function that only loads waits for every import."""
    code = (
        "import sys, cloudckpt; s = cloudckpt.open('memory://x'); s.run('r').save({}); s.run('r').load(); "
        "print('logging' in sys.modules, 'cloudckpt.events' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    logged, made = done.stdout.split()
    assert made == "False" or logged == "True"


@pytest.mark.parametrize(
    ("age", "said"), [(0, "0 s"), (-5, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200000, "2 d")]
)
def test_an_age_is_said_in_one_unit(age: int, said: str) -> None:
    line = events.line(events.Resumed("r", 3, None, timedelta(seconds=age), "h", 1, 2))
    assert line == f"resumed run='r' from seq=3, saved {said} ago; before: host='h' pid=1; epoch=2"
