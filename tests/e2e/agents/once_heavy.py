"""A right agent whose every payment is an action done once; of one that was in flight it looks up the end."""

from __future__ import annotations

import json
import os

import cloudckpt
from cloudckpt.acting import Happened, InFlight
from cloudckpt.crashtest import effect
from cloudckpt.crashtest.effects import EFFECTS, read_effects

ORDERS = {"ann": (12, 30), "bob": (7, 51), "eve": (18, 4)}


def pay(name: str, number: int, amount: int) -> int:
    """Pay without a key: the other side would pay twice."""
    effect("paid", order=f"{name}/{number}", amount=amount)
    return amount + 1


def look(flight: InFlight) -> Happened | None:
    """Ask the other side, which is the log of effects, whether it has paid."""
    for paid in read_effects(os.environ[EFFECTS]):
        facts = json.loads(paid.facts)
        if facts["order"] == flight.key:
            return Happened(facts["amount"] + 1)
    return None


def main() -> None:
    with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store, store.run("orders") as run:
        state = run.load() or {"step": 0, "paid": 0}
        while state["step"] < len(ORDERS):
            name = sorted(ORDERS)[state["step"]]
            for number, amount in enumerate(ORDERS[name]):
                state["paid"] += run.once(f"{name}/{number}", pay, name, number, amount, verify=look)
            state["step"] += 1
            run.save(state)
        print(f"paid {state['paid']}")


if __name__ == "__main__":
    main()
