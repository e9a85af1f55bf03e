"""A run that saves behind its caller: what it is spared, the order of saves, and who is told of errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cloudckpt.errors import (
    ClosedError,
    ConflictError,
    FencedError,
    InvalidInputError,
    SerializationError,
    StorageError,
    ThrottledError,
)
from cloudckpt.run import Run
from cloudckpt.store import Store
from tests.protocol.gated import WAIT, Gated
from tests.unit import cadenced
from tests.unit.cadenced import durable, elsewhere, states
from tests.until import until

storage = cadenced.storage
store = cadenced.store

LARGE = 3 << 20


def test_a_save_returns_while_the_store_stands_still(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="background") as run:
        storage.shut()
        saved = [run.save({"n": n}) for n in range(1, 6)]
        assert states(storage) == []
        assert run.pending == 5
        assert not any(one.done for one in saved)
        storage.open()
        run.flush()
        assert run.pending == 0
        assert states(storage) == [{"n": 1}, {"n": 5}]
        assert [durable(one).seq for one in saved] == [1, 2, 2, 2, 2]
        assert saved[4].seq == 2


def test_leaving_the_block_leaves_the_last_save_as_head(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="background") as run:
        for n in range(1, 6):
            run.save({"n": n})
    assert states(storage)[-1] == {"n": 5}


def test_the_async_forms(storage: Gated, store: Store) -> None:
    async def agent() -> None:
        async with store.run("r", cadence="background") as run:
            storage.shut()
            saved = [await run.asave({"n": n}) for n in range(1, 6)]
            assert run.pending == 5
            assert await run.adrain(0.001) == 5
            storage.open()
            assert (await saved[4]).seq == 2
            await run.aflush()
            run.save({"n": 6})
            assert await run.aload() == {"n": 6}
            assert (await run.afinish({"n": 7})).seq == 4
            await run.async_before_return()
        assert (await elsewhere(storage).asummary()).status == "done"

    asyncio.run(agent())
    assert states(storage)[-1] == {"n": 7}


@dataclass
class Plan:
    steps: list[Any] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize("cadence", ["background", "selective"])
@pytest.mark.parametrize("size", [1, LARGE])
def test_what_the_caller_changes_at_once_is_not_saved(
    storage: Gated, store: Store, cadence: Any, size: int
) -> None:
    """Small states are packed at the call; of large ones a frozen copy is packed later."""
    with store.run("r", cadence=cadence) as run:
        plan = Plan([["first"], bytearray(b"x")], {"pad": "x" * size, "deep": {"er": [1, {2}]}})
        for turn in range(2):  # the size of the first is not known, that of the second is
            storage.shut()
            saved = run.save(plan, metadata={"turn": turn})
            plan.steps[0].append("later")
            plan.steps[1][0] = 0
            plan.notes["deep"]["er"][1].add(3)
            plan.notes["new"] = 1
            storage.open()
            info = durable(saved)
            found = run.load(Plan, seq=info.seq)
            assert found == Plan([["first"], b"x"], {"pad": "x" * size, "deep": {"er": [1, {2}]}})
            plan = Plan([["first"], bytearray(b"x")], {"pad": "x" * size, "deep": {"er": [1, {2}]}})


def test_a_state_that_cant_be_carried_is_refused_at_the_call(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="background") as run:
        for _ in range(2):
            with pytest.raises(SerializationError, match=r"state\.bad"):
                run.save({"bad": print, "pad": "x" * LARGE})
            with pytest.raises(SerializationError):
                run.asave({"bad": print})
        run.save({"n": 1})
    assert states(storage) == [{"n": 1}]


def test_a_large_state_over_the_limit_is_told_by_the_next_call(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="background", max_state_bytes=1000) as run:
        pending = run.save({"pad": "x" * 2000})
        with pytest.raises(InvalidInputError, match="max_state_bytes"):
            durable(pending)
        assert run.save({"n": 1})
    assert states(storage) == [{"n": 1}]


CALLS: dict[str, Callable[[Run], Any]] = {
    "load": lambda run: run.load(),
    "history": lambda run: run.load(seq=run.history(limit=1)[0].seq),
    "once": lambda run: run.once("pay", lambda: {"n": 2}),
    "tag": lambda run: {"n": run.tag("best").seq - 1},
    "find": lambda run: {"n": run.find().seq - 1},
    "expect": lambda run: {"n": run.save({"n": 2}, expect=3).seq - 2},
    "rollback": lambda run: {"n": run.rollback(seq=3).seq - 2},
    "finish": lambda run: {"n": run.finish({"n": 9}).seq - 2},
}


def waiting(run: Run) -> threading.Event:
    """Return what is set when a call waits for what was saved before it."""
    saver, waits = run._saver, threading.Event()
    assert saver is not None
    flush = saver.flush

    def flushed() -> None:
        waits.set()
        flush()

    saver.flush = flushed  # type: ignore[method-assign]
    return waits


@pytest.mark.parametrize("call", CALLS)
def test_every_other_call_comes_after_what_was_saved(storage: Gated, store: Store, call: str) -> None:
    """A ledger that is ahead of its state, or a load that is behind it, would lie."""
    with store.run("r", cadence="background", queue=5) as run:
        durable(run.save({"n": 0}))
        storage.shut()
        run.save({"n": 1})
        run.save({"n": 2})
        assert storage.arrived.wait(WAIT)
        waits, before = waiting(run), len(storage.calls)
        answer: list[Any] = []
        thread = threading.Thread(target=lambda: answer.append(CALLS[call](run)))
        thread.start()
        until(lambda: waits.is_set() or run.pending > 2 or answer or storage.calls[before:])
        early = answer or storage.calls[before:]
        storage.open()
        thread.join(WAIT)
        assert not early
        assert answer == [{"n": 2}]
        assert states(storage)[:3] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_full_queue_waits_or_says_so(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="background", overflow="error", queue=2) as run:
        storage.shut()
        for n in range(1, 4):
            run.save({"n": n})
        with pytest.raises(ThrottledError):
            run.save({"n": 4})
        run.pace("background", overflow="block", queue=2)
        thread = threading.Thread(target=run.save, args=({"n": 5},))
        thread.start()
        thread.join(0.02)
        assert thread.is_alive()
        storage.open()
        thread.join(WAIT)
        run.flush()
        assert states(storage) == [{"n": n} for n in (1, 2, 3, 5)]


def test_a_save_that_is_cancelled_while_it_waits_for_room_never_was(storage: Gated, store: Store) -> None:
    async def agent() -> None:
        async with store.run("r", cadence="background", overflow="block") as run:
            storage.shut()
            await run.asave({"n": 1})
            await run.asave({"n": 2})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run.asave({"n": 3}), 0.01)
            storage.open()

    asyncio.run(agent())
    assert states(storage) == [{"n": 1}, {"n": 2}]


def test_one_run_serves_one_loop_after_the_other(storage: Gated, store: Store) -> None:
    """Nothing stays bound to a loop that was closed, though a save of it was still under way."""
    run = store.run("r", cadence="background")

    async def part(n: int) -> None:
        await run.asave({"n": n})

    for n in range(3):
        storage.shut()
        asyncio.run(part(n))
        storage.open()
    run.close()
    assert states(storage)[-1] == {"n": 2}


# ---- errors


def test_the_first_error_is_raised_by_the_next_save_and_the_run_goes_on(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="background") as run:
        storage.errors.append(StorageError("down"))
        run.save({"n": 1})
        run.drained(WAIT)
        with pytest.raises(StorageError, match="down"):
            run.save({"n": 2})
        run.save({"n": 3})
    assert states(storage) == [{"n": 3}]


def test_an_error_that_nobody_was_told_of_is_raised_where_the_block_ends(
    storage: Gated, store: Store
) -> None:
    run = store.run("r", cadence="background")
    run.acquire()
    storage.errors.append(StorageError("down"))
    with pytest.raises(StorageError, match="down"), run:
        run.save({"n": 1})
    with pytest.raises(ClosedError):
        run.save({"n": 2})


def test_an_error_of_the_block_is_not_hidden_and_gets_a_note(storage: Gated, store: Store) -> None:
    run = store.run("r", cadence="background")
    run.acquire()
    storage.errors.append(StorageError("down"))
    with pytest.raises(ZeroDivisionError) as caught:
        _fail_in(run)
    assert "StorageError: down" in caught.value.__notes__[0]


def test_a_state_that_was_saved_before_the_block_failed_is_durable(storage: Gated, store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        _fail_in(store.run("r", cadence="selective"))
    assert states(storage) == [{"n": 1}]


def _fail_in(run: Run) -> None:
    with run:
        run.save({"n": 1})
        raise ZeroDivisionError


def test_a_fenced_run_stops_at_once_and_stays_so(storage: Gated, store: Store) -> None:
    run = store.run("r", cadence="background")
    run.save({"n": 1})
    run.flush()
    with elsewhere(storage) as other:
        other.save({"n": "other"})
        run.save({"n": 2})
        assert isinstance(run.drained(WAIT), FencedError)
        for _ in range(3):
            with pytest.raises(FencedError):
                run.save({"n": 3})
        run.close()
    assert states(storage) == [{"n": 1}, {"n": "other"}]


def test_after_a_conflict_a_load_allows_to_go_on(storage: Gated, store: Store) -> None:
    run = store.run("r", cadence="background")
    run.save({"n": 1})
    run.flush()
    storage.errors.append(ConflictError("somebody"))
    run.save({"n": 2})
    run.drained(WAIT)
    for _ in range(2):
        with pytest.raises(ConflictError):
            run.save({"n": 2})
    assert run.load() == {"n": 1}
    run.save({"n": 3})
    run.close()
    assert states(storage) == [{"n": 1}, {"n": 3}]
