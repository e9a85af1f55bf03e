"""When a run's saves become durable, on an engine that blocks and on one that suspends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import CheckpointInfo, Pending
from cloudckpt.errors import (
    ClosedError,
    ConflictError,
    FencedError,
    InvalidInputError,
    SerializationError,
    StorageError,
    ThrottledError,
)
from cloudckpt.pace import STEP
from cloudckpt.run import Run
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.protocol.gated import WAIT, Gated
from tests.protocol.scripted import OwnTime

LARGE = 3 << 20


@pytest.fixture(params=["blocking", "suspending"])
def storage(request: pytest.FixtureRequest) -> Iterator[Gated]:
    storage = Gated(blocking=request.param == "blocking")
    yield storage
    storage.open()
    gc.collect()


@pytest.fixture
def store(storage: Gated) -> Store:
    return Store(lambda: storage, probed=True, timeout=0.0)


def elsewhere(storage: Gated) -> Run:
    """Return the run as another process has it."""
    inner = MemoryStorage(storage.url.removeprefix("memory://"))
    return Store(lambda: inner, probed=True).run("r")


def states(storage: Gated) -> list[Any]:
    """Return what is durable now, oldest first."""
    run = elsewhere(storage)
    return [run.load(seq=info.seq) for info in reversed(run.history())]


def durable(saved: CheckpointInfo | Pending) -> CheckpointInfo:
    return saved.wait(WAIT) if isinstance(saved, Pending) else saved


# ---- step


def test_the_default_is_durable_and_has_nothing_to_do_with_a_queue(storage: Gated, store: Store) -> None:
    run = store.run("r")
    assert (run.cadence, run.pending) == ("step", 0)
    assert isinstance(run.save({"n": 1}), CheckpointInfo)
    assert states(storage) == [{"n": 1}]
    assert run._saver is None
    assert run._core is run._root
    run.flush()
    assert run.drain(0) == 0


def test_who_saves_step_by_step_imports_nothing_of_the_others(tmp_path: Path) -> None:
    """A process that starts for one step waits for each import."""
    code = """
import sys, cloudckpt
with cloudckpt.open(sys.argv[1]) as store, store.run("r") as run:
    run.save({"n": 1})
    run.finish({"n": 2})
sys.exit(str({"cloudckpt.background", "cloudckpt.pending", "cloudckpt.stopping"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], check=False, capture_output=True, text=True)
    assert done.stderr == "set()\n"


# ---- selective


def test_every_third_save_is_committed_and_the_last(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="selective", every=3) as run:
        saved = [run.save({"n": n}) for n in range(1, 9)]
        assert [isinstance(one, CheckpointInfo) for one in saved] == [n % 3 == 0 for n in range(1, 9)]
        assert states(storage) == [{"n": 3}, {"n": 6}]
        assert run.pending == 2
    assert states(storage) == [{"n": 3}, {"n": 6}, {"n": 8}]
    assert [durable(one).seq for one in saved] == [1, 1, 1, 2, 2, 2, 3, 3]


def test_a_save_is_due_after_so_many_seconds(storage: Gated) -> None:
    clock = OwnTime()
    store = Store(lambda: storage, probed=True, clock=clock)
    with store.run("r", cadence="selective", every_seconds=10) as run:
        for n in range(1, 8):
            clock.seconds += 4
            run.save({"n": n})
        assert states(storage) == [{"n": 3}, {"n": 6}]


def test_milestones_and_tags_are_due(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="selective") as run:
        run.save({"n": 1})
        run.save({"n": 2}, milestone=True)
        run.save({"n": 3})
        run.save({"n": 4}, tags=["best"])
        run.save({"n": 5})
        assert states(storage) == [{"n": 2}, {"n": 4}]
    assert states(storage) == [{"n": 2}, {"n": 4}, {"n": 5}]


def test_a_skipped_save_costs_no_request(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="selective", every=100) as run:
        before = len(storage.calls)
        for n in range(99):
            run.save({"n": n})
        assert len(storage.calls) == before


def test_a_due_save_that_fails_is_told_and_counts_for_nothing(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="selective", every=2) as run:
        run.save({"n": 1})
        storage.errors.append(StorageError("down"))
        with pytest.raises(StorageError, match="down"):
            run.save({"n": 2})
        assert isinstance(run.save({"n": 3}), CheckpointInfo), "the last commit is still the one before"
    assert states(storage) == [{"n": 3}]


# ---- background


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


@pytest.mark.parametrize("call", CALLS)
def test_every_other_call_comes_after_what_was_saved(storage: Gated, store: Store, call: str) -> None:
    """A ledger that is ahead of its state, or a load that is behind it, would lie."""
    with store.run("r", cadence="background", queue=5) as run:
        durable(run.save({"n": 0}))
        storage.shut()
        run.save({"n": 1})
        run.save({"n": 2})
        answer: list[Any] = []
        thread = threading.Thread(target=lambda: answer.append(CALLS[call](run)))
        thread.start()
        thread.join(0.02)
        early = list(answer)
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


# ---- changing, and the end


def test_the_cadence_changes_in_mid_run_and_order_is_kept(storage: Gated, store: Store) -> None:
    with store.run("r") as run:
        run.save({"n": 1})
        run.cadence = "background"
        storage.shut()
        run.save({"n": 2})
        storage.open()
        run.cadence = "step"
        assert run._pace is STEP
        assert isinstance(run.save({"n": 3}), CheckpointInfo)
        run.pace("selective", every=10)
        run.save({"n": 4})
        run.cadence = "background"
        durable(run.save({"n": 5}, milestone=True))
        assert states(storage)[:3] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert states(storage)[-1] == {"n": 5}


@pytest.mark.parametrize("cadence", ["step", "selective", "background"])
def test_a_finish_is_durable_when_it_returns(storage: Gated, store: Store, cadence: Any) -> None:
    with store.run("r", cadence=cadence, overflow="error") as run:
        for n in range(2):
            run.save({"n": n})
        assert isinstance(run.finish({"n": "end"}), CheckpointInfo)
        assert states(storage)[-1] == {"n": "end"}
        assert elsewhere(storage).summary().status == "done"


def test_what_is_asked_of_one_save_is_kept_behind(storage: Gated, store: Store) -> None:
    with store.run("r", cadence="background") as run:
        info = durable(run.save({"n": 1}, step=7, tags=["t"], metadata={"m": 1}, explain=True))
    assert (info.step, info.tags, info.metadata) == (7, ("t",), {"m": 1})
    assert info.measured is not None


def test_a_closed_store_has_made_durable_what_its_runs_had_pending(storage: Gated, store: Store) -> None:
    store.run("r", cadence="selective").save({"n": 1})  # and nobody holds the run any more
    gc.collect()
    store.close()
    assert states(storage) == [{"n": 1}]
    assert storage.calls[-1] == ("close", "")


def test_a_closed_store_tells_what_failed_and_takes_no_more_saves(storage: Gated, store: Store) -> None:
    run = store.run("r", cadence="background")
    storage.errors.append(StorageError("down"))
    run.save({"n": 1})
    with pytest.raises(StorageError, match="down"):
        store.close()
    assert storage.calls[-1] == ("close", "")
    with pytest.raises(ClosedError):
        run.save({"n": 2})
    run.close()


def test_nothing_is_under_way_before_a_return(storage: Gated, store: Store) -> None:
    """A put that is behind counts too: a frozen process would finish it minutes later."""
    run = store.run("r", cadence="background", keep_last=1)
    for n in range(6):
        run.save({"n": n, "pad": f"{n}" * 9, "blob": bytes(range(256)) * 40 * (n + 1)})
    run.sync_before_return()
    calls = len(storage.calls)
    threading.Event().wait(0.02)
    assert len(storage.calls) == calls
    assert run.pending == 0
    run.save({"n": "next"})
    run.close()
    assert states(storage)[-1] == {"n": "next"}


@pytest.mark.parametrize(
    "options",
    [
        {"cadence": "sometimes"},
        {"cadence": "background", "overflow": "drop"},
        {"cadence": "background", "queue": 0},
        {"cadence": "background", "queue": True},
        {"cadence": "background", "every": 3},
        {"every": 3},
        {"cadence": "selective", "every": 0},
        {"cadence": "selective", "every_seconds": -1},
        {"cadence": "selective", "every_seconds": float("nan")},
    ],
)
def test_an_unusable_pace_is_refused(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        store.run("r", **options)
    if "cadence" in options:
        run = store.run("r")
        with pytest.raises(InvalidInputError):
            run.pace(**options)
        assert run.cadence == "step"


@pytest.mark.parametrize("deadline", [-1, float("nan"), "5", None, True])
def test_an_unusable_deadline_is_refused(store: Store, deadline: Any) -> None:
    run = store.run("r", cadence="background")
    run.save({})
    for call in (run.drain, run.on_sigterm):
        with pytest.raises(InvalidInputError):
            call(deadline)
    run.close()
