"""A program: workers, each a real process, claim the runs of one store until none is left.

    python -m tests.protocol.queueing '"URL"' '{"key": "..."}' 30 8 0

Every step of a run is a save. A worker that is told to die does so by SIGKILL in the midst of
a run. Prints for each run who worked on it when, by the machine's one monotonic clock, and
what the store has of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from functools import partial
from typing import Any

from cloudckpt.errors import ConflictError
from cloudckpt.storage.engines import engine_for
from cloudckpt.store import Store
from tests.protocol.processes import Child, Send
from tests.protocol.racing import Make

STEPS = 3
MOST = 8
"""Runs that one worker takes, so that one that is fast leaves some to others."""
LONG, SHORT = 120.0, 3.0
"""Leases: one that no machine is too slow for, and one that is seen to expire."""


def work(make: Make, lease: float, dies: bool, send: Send) -> None:
    """Work on one run after the other; for a worker that dies, the first is the last."""
    idle = count = 0
    with Store(make) as store:
        while idle < (20 if lease == SHORT else 3) and count < MOST:
            run = store.claim(lease=lease, wait=0.3, poll=0.1)
            idle = 0 if run else idle + 1
            if run is None:
                continue
            count += 1
            if dies:
                send("has a run")
            told = {"run": run.id, "pid": os.getpid(), "epoch": run.epoch, "begin": time.monotonic()}
            try:
                with run:
                    state = run.load() or {"step": 0, "by": []}
                    while state["step"] < STEPS:
                        state = {"step": state["step"] + 1, "by": [*state["by"], run.epoch]}
                        run.save(state)
                        if dies:
                            send({**told, "end": time.monotonic(), "died": True})
                            os.kill(os.getpid(), signal.SIGKILL)
                    told["end"] = time.monotonic()
                    run.finish(state)
            except ConflictError:  # a machine that stood still for longer than the lease
                told["end"] = time.monotonic()
                told["fenced"] = True
            send(told)


def main(url: str, options: dict[str, Any], runs: int, workers: int, deaths: int) -> None:
    make = engine_for(url, storage_options=options)
    make()  # imports the engine's library, once for all children
    submitter = Child(partial(submit, make, runs))
    assert submitter.end()[0] == 0
    lease = SHORT if deaths else LONG
    dying = [Child(partial(work, make, lease, True)) for _ in range(deaths)]
    for child in dying:
        child.receive()  # it has a run, before others may have worked on all
    children = [*dying, *(Child(partial(work, make, lease, False)) for _ in range(workers - deaths))]
    ends = [child.end() for child in children]
    assert [code for code, _ in ends] == [-signal.SIGKILL] * deaths + [0] * (workers - deaths), ends
    reader = Child(partial(read, make))
    states = reader.end()[1][0]
    print(json.dumps({"told": [told for _, sent in ends for told in sent], "states": states}))


def submit(make: Make, runs: int, send: Send) -> None:
    with Store(make) as store:
        names = [f"r{n}" for n in range(runs)]
        random.shuffle(names)
        for name in names:
            store.submit(name, {"step": 0, "by": []})


def read(make: Make, send: Send) -> None:
    with Store(make) as store:
        found = {}
        for info in store.runs():
            run = store.run(info.id)
            found[info.id] = {"status": run.summary().status, **run.load()}
    send(found)


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
