"""A small agent that saves after each step, and goes on from what it finds.

Owns: its states, which mix what a save can be: a payload that rides, one that
is an object, one with a tag, enough of them that the first expire.
"""

from __future__ import annotations

import random
from typing import Any

from cloudckpt.store import Store
from cloudckpt.testing.invariants import Ledger

RUN = "nightly/42"
STEPS = 6
LARGE = (2, 4, 6)
TAGGED = (2,)
KEEP_LAST = 2


def state_of(step: int) -> dict[str, Any]:
    """Return the agent's state after a step."""
    blob = random.Random(step).randbytes(40_000) if step in LARGE else b"small"
    return {"step": step, "blob": blob}


def run_agent(store: Store, ledger: Ledger, *, run_id: str = RUN, steps: int = STEPS) -> None:
    """Load, and take the steps that are left."""
    with store.run(run_id) as run:
        ledger.took_over(run.epoch)
        state = run.load() or {"step": 0}
        if state["step"]:
            ledger.load(state)
        for step in range(state["step"] + 1, steps + 1):
            state = state_of(step)
            tags = ["milestone"] if step in TAGGED else []
            with ledger.asking(state, epoch=run.epoch) as told:
                told(run.save(state, tags=tags))
        assert run.load() == state
