"""One piece of work on each of many runs: in threads, in processes, on a Dask cluster."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt import fleet
from cloudckpt.errors import RunNotFoundError
from cloudckpt.store import Store

RUNS = [f"run-{n:03}" for n in range(75)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with cloudckpt.open(tmp_path, keep_last=2) as store:
        for n, run in enumerate(RUNS):
            store.run(run).save({"n": n})
        yield store


def loaded(store: Store, run: str, *, times: int = 1) -> int:
    """Work that can be sent to another process."""
    found: int = store.run(run).load()["n"] * times
    return found


def test_each_run_is_worked_on_once_and_in_order(store: Store) -> None:
    outcomes = list(store.each(loaded))
    assert [one.run for one in outcomes] == RUNS
    assert [one.value for one in outcomes] == list(range(75))


def test_only_so_much_is_under_way(store: Store) -> None:
    """Memory stays flat, and what was not begun when the caller stops is not done."""
    begun: list[str] = []
    taken = 0

    def runs() -> Iterator[str]:
        nonlocal taken
        for taken, run in enumerate(RUNS, 1):  # noqa: B007 - counted
            yield run

    walk = fleet.each(store, lambda _, run: begun.append(run), runs(), threads=2)
    next(walk)
    assert taken <= 2 * fleet.UNDER_WAY + 1
    walk.close()
    assert len(begun) < 20


def test_a_run_that_fails_hides_no_other(store: Store) -> None:
    outcomes = list(fleet.each(store, loaded_strictly, ["run-001", "no-such-run", "run-002"]))
    assert [one.value for one in outcomes] == [1, None, 2]
    assert isinstance(outcomes[1].error, RunNotFoundError)


def loaded_strictly(store: Store, run: str) -> int:
    store.run(run).find()
    return loaded(store, run)


def test_a_fault_of_the_work_itself_is_raised(store: Store) -> None:
    def wrong(_: Store, __: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(store.each(wrong))


def test_a_prefix_is_a_shard(store: Store) -> None:
    assert [one.run for one in store.each(loaded, prefix="run-07")] == RUNS[70:]


def test_threads_work_side_by_side(store: Store) -> None:
    meeting = threading.Barrier(4, timeout=20)

    def meet(_: Store, __: str) -> None:
        meeting.wait()

    assert len(list(fleet.each(store, meet, RUNS[:4], threads=4))) == 4


def test_runs_that_are_sent_together_are_worked_on_side_by_side(store: Store) -> None:
    """A worker that takes one run at a time waits for the store, and a cluster of them is no faster."""
    meeting = threading.Barrier(4, timeout=20)

    def meet(_: Store, __: str) -> None:
        meeting.wait()

    outcomes = fleet.stretch_of(store, meet, RUNS[:8], 4)
    assert [one.run for one in outcomes] == RUNS[:8]


def test_other_processes(store: Store) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        outcomes = list(store.each(partial(loaded, times=3), executor=pool))
    assert [one.value for one in outcomes] == [3 * n for n in range(75)]


def test_an_error_comes_back_from_another_process(store: Store) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        (outcome,) = fleet.each(store, loaded_strictly, ["no-such-run"], executor=pool)
    assert isinstance(outcome.error, RunNotFoundError)
    assert outcome.error.facts["run"] == "no-such-run"


def test_a_dask_cluster(store: Store) -> None:
    distributed: Any = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=False
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        outcomes = list(store.each(loaded, executor=client))
    assert [one.value for one in outcomes] == list(range(75))


def test_verifying_on_a_cluster(store: Store) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        reports = list(store.verify("run-01", executor=pool))
    assert [one.run for one in reports] == RUNS[10:20]
    assert all(one.ok and one.checkpoints == 1 for one in reports)


def test_a_store_that_was_sent_is_opened_once(store: Store) -> None:
    sent = pickle.dumps(store)
    here = pickle.loads(sent)
    assert here is pickle.loads(sent)
    assert here is not store
    here.run("new").save({"n": 1})
    assert store.run("new").load() == {"n": 1}
    assert [one.run for one in here.each(loaded, prefix="new")] == ["new"]
    assert here.run("new").retain(dry_run=True).rules == cloudckpt.Retention(keep_last=2)


def test_a_store_made_of_an_engine_stays_here() -> None:
    from cloudckpt.storage.memory import MemoryStorage

    with pytest.raises(TypeError, match="open it there"):
        pickle.dumps(Store(lambda: MemoryStorage("here")))
