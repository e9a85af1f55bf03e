"""The laws of runs that need threads, loops or processes. A part of `runs.RunConformance`.

Owns: `ConcurrencyLaws`. Invariant: each process is a fresh interpreter that this
one started and waits for; the code that runs in it is here, so that it works for
any engine that `recipe` can name.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cloudckpt.model import CheckpointInfo, Manifest
from cloudckpt.store import Store
from cloudckpt.sweep import SWEEP_KEYS
from cloudckpt.testing.invariants import Ledger, check_laws

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

_BEGIN = """
import os, sys, warnings
warnings.simplefilter("error")
from cloudckpt.errors import FencedError
from cloudckpt.store import Store, open as open_store
run_id = sys.argv[1]
"""

_FORK = """
run = store.run(run_id)
run.save({"by": "parent"})
child = os.fork()
if child == 0:
    code = 1
    try:
        assert run.epoch is None, "the child took itself for its parent"
        assert run.load() == {"by": "parent"}
        assert run.save({"by": "child"}).epoch == 2
        store.close()
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
try:
    run.save({"by": "parent, again"})
    print("saved")
except FencedError as error:
    assert error.facts["pid"] == child
    print("fenced")
print(run.load()["by"])
"""

_INSIDE = """
import asyncio
async def agent(by):
    async with store.run(run_id) as run:
        await run.asave({"by": by})
asyncio.run(agent("parent"))
child = os.fork()
if child == 0:
    code = 1
    try:
        asyncio.run(agent("child"))
        asyncio.run(agent("child, again"))
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
asyncio.run(agent("parent, again"))
print(store.run(run_id).load()["by"])
"""

_END = """
run = store.run(run_id, keep_last=1)
for n in range(5):
    run.save({"n": n, "blob": os.urandom(20_000 if n % 2 else 40_000)})
make().run(run_id + "-2").save({"n": 1})
print("saved", flush=True)
"""


def large(n: int) -> dict[str, Any]:
    """Return a state whose payload can't ride, so that it is an object from the start."""
    return {"n": n, "blob": secrets.token_bytes(40_000)}


def lawful(store: Store, run_id: str, ledger: Ledger) -> Manifest:
    """Return the manifest of a run that exists and keeps the laws."""
    manifest = store._core.call(check_laws(store._core.storage, run_id, ledger))
    assert manifest is not None
    return manifest


class ConcurrencyLaws:
    """Laws about threads, loops and processes. A subclass gives the fixture `recipe`.

    Attributes:
        shared: False for a store that other processes don't see.
    """

    shared = True

    @pytest.fixture
    def recipe(self) -> tuple[str, str]:
        """Return code for a new store of the place under test, and the imports that it needs.

        The code is an expression; `Store` and ``cloudckpt.open`` as `open_store` are there.
        """
        raise NotImplementedError("override the fixture recipe")

    def test_threads_that_save_to_one_run_all_land(self, store: Store, run_id: str) -> None:
        """Without having entered: who comes first becomes the writer, for all of them, once."""
        run = store.run(run_id, keep_last=100)
        barrier = threading.Barrier(8)

        def work(thread: int) -> list[Any]:
            barrier.wait(60)
            return [run.save({"thread": thread, "n": n}) for n in range(3)]

        with ThreadPoolExecutor(8) as pool:
            infos = [info for done in pool.map(work, range(8)) for info in done]
        assert sorted(info.seq for info in infos) == list(range(1, 25))
        assert {info.epoch for info in infos} == {1}
        assert len(store.run(run_id).history()) == 24

    def test_tasks_that_save_to_one_run_all_land(self, store: Store, run_id: str) -> None:
        async def work() -> list[Any]:
            run = store.run(run_id, keep_last=100)
            return await asyncio.gather(*(run.asave({"task": n}) for n in range(8)))

        assert sorted(info.seq for info in asyncio.run(work())) == list(range(1, 9))

    def test_a_sync_call_inside_a_running_loop_returns(self, store: Store, run_id: str) -> None:
        """It must not wait for the loop that it blocks; nor may anything stay bound to that loop."""

        async def mixed(n: int) -> None:
            with store.run(run_id) as run:
                run.save({"n": n})
                await run.asave({"n": n + 1})
                assert run.load() == await run.aload() == {"n": n + 1}

        asyncio.run(mixed(1))
        asyncio.run(mixed(3))
        assert store.run(run_id).load() == {"n": 4}

    def test_saves_behind_their_caller_come_in_order_and_the_last_is_the_head(
        self, store: Store, run_id: str
    ) -> None:
        with store.run(run_id, keep_last=100, cadence="background") as run:
            for n in range(5):
                run.save(large(n))
            run.once("in between", lambda: None)
            assert run.load()["n"] == 4
            for n in range(5, 10):
                run.save(large(n), tags=["kept"] if n == 7 else [])
        run = store.run(run_id)
        found = [run.load(seq=info.seq)["n"] for info in reversed(run.history())]
        assert found == sorted(set(found))
        assert {0, 4, 7, 9} <= set(found)

    def test_a_cancelled_save_does_no_harm(self, store: Store, other: Store, run_id: str) -> None:
        ledger = Ledger()

        async def agent() -> None:
            run = store.run(run_id)
            for n in range(5):
                ledger.ask(state := large(n))
                saving = asyncio.ensure_future(run.asave(state))
                await asyncio.sleep(n * 0.002)
                saving.cancel()
                await asyncio.wait([saving])
            with ledger.asking(state := {"n": "last"}) as told:
                info = await run.asave(state)
                assert isinstance(info, CheckpointInfo)
                told(info)
            assert await run.aload() == state

        asyncio.run(agent())
        lawful(other, run_id, ledger)

    def test_a_reader_never_sees_less_than_was_saved(self, store: Store, other: Store, run_id: str) -> None:
        """While a writer expires under its eyes what it is about to read."""
        seen: list[int] = []
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                seen.append(other.run(run_id).load()["n"])

        with store.run(run_id, keep_last=1) as run, ThreadPoolExecutor(1) as pool:
            run.save(large(0))
            reading = pool.submit(read)
            for n in range(1, 3 * SWEEP_KEYS):
                run.save(large(n))
            over.set()
            reading.result()
        assert seen == sorted(seen)

    @needs_fork
    def test_a_forked_child_is_a_writer_of_its_own(self, recipe: tuple[str, str], run_id: str) -> None:
        """A copy of the parent's claim would let both save, each over the other's base."""
        told = _run(recipe, run_id, _FORK)
        assert told == (["fenced", "child"] if self.shared else ["saved", "parent, again"])

    @needs_fork
    def test_a_forked_child_has_a_loop_of_its_own(self, recipe: tuple[str, str], run_id: str) -> None:
        """The parent's IO thread does not exist in it, so waiting for it would be for ever."""
        assert _run(recipe, run_id, _INSIDE) == ["parent, again"]

    def test_an_end_without_a_close_is_silent_and_loses_nothing(
        self, recipe: tuple[str, str], store: Store, run_id: str
    ) -> None:
        """What is done aside meets an interpreter that takes no new work and closes its loops.

        Also of a store that nobody holds any more, but for its run.
        """
        assert _run(recipe, run_id, _END) == ["saved"]
        if self.shared:
            assert store.run(run_id).load()["n"] == 4
            assert store.run(f"{run_id}-2").load() == {"n": 1}


def _run(recipe: tuple[str, str], run_id: str, code: str) -> list[str]:
    expression, imports = recipe
    program = "\n".join([_BEGIN, imports, f"make = lambda: {expression}", "store = make()", code])
    done = subprocess.run(  # noqa: S603 - our own code, in our own interpreter
        [sys.executable, "-c", program, run_id], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()
