"""When a run's saves become durable: at each step, at some, and at the end in any case."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import CheckpointInfo
from cloudckpt.errors import ClosedError, InvalidInputError, StorageError
from cloudckpt.pace import STEP
from cloudckpt.store import Store
from tests.protocol.gated import Gated
from tests.protocol.scripted import OwnTime
from tests.unit import cadenced
from tests.unit.cadenced import durable, elsewhere, states

storage = cadenced.storage
store = cadenced.store


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
