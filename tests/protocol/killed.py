"""A program: an agent is killed at each storage call of its life, and resumed by another process.

    python -m tests.protocol.killed '"URL"' '{"key": "..."}'

Each run has a first step from a clean process. Then its agent is killed (SIGKILL,
by its own storage, before or after the call); a new process checks the laws and
finishes. Prints how the killed ones ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from cloudckpt.store import Store
from cloudckpt.testing.driver import Client, Driver
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, every_fault
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol.agent import KEEP_LAST, RUN, STEPS, run_agent
from tests.protocol.processes import Child, Send, in_child

Make = Callable[[], Storage]


class DeadlyStorage(FaultyStorage):
    """Kills its process at the planned call; sends what its agent was told until then."""

    def __init__(self, inner: Storage, plan: Plan, ledger: Ledger, send: Send) -> None:
        super().__init__(inner, plan)
        self._ledger = ledger
        self._send = send

    def _crash(self) -> None:
        self._send(self._ledger)
        os.kill(os.getpid(), signal.SIGKILL)


def begin(make: Make, runs: list[str], send: Send) -> None:
    """Take the first step of every run."""
    with Store(make, keep_last=KEEP_LAST) as store:
        for run_id in runs:
            ledger = Ledger(keep_last=KEEP_LAST)
            run_agent(store, ledger, run_id=run_id, steps=1)
            send(ledger)


def live(make: Make, run_id: str, plan: Plan, ledger: Ledger, send: Send) -> None:
    """Go on, until the end or the kill."""
    storage = DeadlyStorage(make(), plan, ledger, send)
    with Store(lambda: storage, keep_last=KEEP_LAST) as store:
        run_agent(store, ledger, run_id=run_id)
    send(ledger)
    send([call.op for call in storage.calls])


def resume(make: Make, ledgers: dict[str, Ledger], send: Send) -> None:
    """Check the laws of every run, finish it, and check them again."""
    driver = Driver()
    raw = Client(driver, make())
    with Store(make, keep_last=KEEP_LAST) as store:
        for run_id, ledger in ledgers.items():
            found = raw.run(check_laws(raw.storage, run_id, ledger))
            assert found is not None
            acknowledged = len(ledger.saved)
            assert acknowledged <= found.seq <= acknowledged + 1
            run_agent(store, ledger, run_id=run_id)
            left = raw.run(check_laws(raw.storage, run_id, ledger))
            assert left is not None
            assert left.seq == STEPS, f"{left.seq} steps were saved instead of {STEPS}"
    raw.close()
    driver.close()


def main(url: str, options: dict[str, Any]) -> None:
    make = engine_for(url, storage_options=options)
    make()  # imports the engine's library, once for all children
    [ledger] = in_child(partial(begin, make, ["clean"]))
    _, calls = in_child(partial(live, make, "clean", Plan(), ledger))
    plans = {
        f"{RUN}/{n}": plan
        for n, plan in enumerate(every_fault(len(calls), (Effect.CRASH_BEFORE, Effect.CRASH_AFTER)))
    }
    ledgers = dict(zip(plans, in_child(partial(begin, make, list(plans))), strict=True))
    codes = []
    for run_id, plan in plans.items():
        code, sent = Child(partial(live, make, run_id, plan, ledgers[run_id])).end()
        codes.append(code)
        ledgers[run_id] = sent[0]
    in_child(partial(resume, make, ledgers))
    print(json.dumps({"calls": calls, "codes": codes}))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
