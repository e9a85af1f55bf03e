"""A right agent whose saves are made behind it; it sees to it that no kill costs more than was pending.

How many saves were pending is written down after each step, where no kill undoes it. A life that resumes
at an earlier step than that allows fails by itself: nobody else can know what a save that never landed was.
"""

from __future__ import annotations

import os
from pathlib import Path

import cloudckpt
from cloudckpt.crashtest import effect
from cloudckpt.crashtest.effects import EFFECTS

STEPS = 30


def pay(number: int, amount: int) -> int:
    effect("paid", key=f"invoice-{number}", amount=amount)
    return amount + 1


def main() -> None:
    witness = Path(os.environ[EFFECTS]).with_name("witness")
    with (
        cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store,
        store.run("nightly", cadence="background") as run,
    ):
        state = run.load() or {"step": 0, "paid": 0}
        step, pending = map(int, witness.read_text().split()) if witness.exists() else (0, 0)
        if state["step"] < step - pending:
            raise SystemExit(f"{step} steps were done and {pending} were pending: resumed at {state['step']}")
        while state["step"] < STEPS:
            state["paid"] += pay(state["step"], 10 + state["step"])
            state["step"] += 1
            run.save(state)
            note = witness.with_suffix(".new")
            note.write_text(f"{state['step']} {run.pending}")
            note.rename(witness)
        run.finish(state)
        print(f"paid {state['paid']} in {state['step']} steps")


if __name__ == "__main__":
    main()
