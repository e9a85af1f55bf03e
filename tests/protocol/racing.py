"""A program: real processes save to one run at the same time.

    python -m tests.protocol.racing '"takeover"' '"URL"' '{"key": "..."}'
    python -m tests.protocol.racing '"start"' '"URL"' '{"key": "..."}'

``takeover``: one saves until it is fenced, a second becomes the writer in the
midst of it and goes on. ``start``: four begin a run that does not exist yet at the
same moment. Afterwards the laws hold on what all of them were told, and the
history is complete. Prints what each was told, in the order of their epochs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from cloudckpt.errors import FencedError
from cloudckpt.model import Manifest
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from cloudckpt.store import Store
from cloudckpt.testing.driver import Client, Driver
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol.processes import Child, Send

Make = Callable[[], Storage]

KEEP_LAST = 10_000
SAVES = 5
RACERS = 4


def work(make: Make, run_id: str, saves: int, start: float, send: Send) -> None:
    """Become the writer at `start`, and save until it is enough or another one is the writer."""
    ledger = Ledger(keep_last=KEEP_LAST)
    told: dict[str, Any] = {"pid": os.getpid(), "epoch": None, "found": 0, "saved": [], "fenced_by": None}
    with Store(make, keep_last=KEEP_LAST) as store:
        list(store.runs())  # connected, and warm
        time.sleep(max(0.0, start - time.time()))
        try:
            with store.run(run_id) as run:
                told["epoch"], told["found"] = run.epoch, run.head
                ledger.took_over(run.epoch)
                state = run.load()
                for n in range(saves):
                    state = {"pid": os.getpid(), "n": n, "after": state and [state["pid"], state["n"]]}
                    with ledger.asking(state, epoch=told["epoch"]) as answer:
                        info = run.save(state)
                        answer(info)
                    told["saved"].append(info.seq)
                    send(info.seq)
        except FencedError as error:
            told["fenced_by"] = error.facts["pid"]
    send((ledger, told))


def takeover(make: Make, run_id: str) -> list[tuple[Ledger, dict[str, Any]]]:
    first = Child(partial(work, make, run_id, KEEP_LAST, 0.0))
    seen = [first.receive() for _ in range(3)]
    second = Child(partial(work, make, run_id, SAVES, 0.0))
    outcomes = [outcome(first), outcome(second)]
    assert outcomes[1][1]["found"] >= seen[-1], "the second did not see what the first was told"
    return outcomes


def start(make: Make, run_id: str) -> list[tuple[Ledger, dict[str, Any]]]:
    at = time.time() + 2.0
    return [
        outcome(child) for child in [Child(partial(work, make, run_id, SAVES, at)) for _ in range(RACERS)]
    ]


def outcome(child: Child) -> tuple[Ledger, dict[str, Any]]:
    code, sent = child.end()
    assert code == 0, f"a process ended with {code}"
    ledger, told = sent[-1]
    return ledger, told


def merged(ledgers: list[Ledger]) -> Ledger:
    everybody = Ledger(keep_last=KEEP_LAST)
    for ledger in ledgers:
        everybody.asked += ledger.asked
        everybody.epochs += ledger.epochs
    return everybody


def judged(make: Make, run_id: str, ledger: Ledger) -> Manifest:
    driver = Driver()
    raw = Client(driver, make())
    manifest = raw.run(check_laws(raw.storage, run_id, ledger))
    raw.close()
    driver.close()
    assert manifest is not None
    return manifest


def main(what: str, url: str, options: dict[str, Any]) -> None:
    make = engine_for(url, storage_options=options)
    make()  # imports the engine's library, once for all children
    outcomes = {"takeover": takeover, "start": start}[what](make, "contested")
    manifest = judged(make, "contested", merged([ledger for ledger, _ in outcomes]))
    acknowledged = sorted(seq for _, told in outcomes for seq in told["saved"])
    assert [entry.seq for entry in manifest.checkpoints][::-1] == list(range(1, manifest.seq + 1))
    assert acknowledged == list(range(1, manifest.seq + 1)), "a save is missing, or came from nowhere"
    print(json.dumps(sorted((told for _, told in outcomes), key=lambda told: told["epoch"] or 0)))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
