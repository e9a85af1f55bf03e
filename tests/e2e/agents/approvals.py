"""A right agent that waits for a person before each payment. The person sits at the same machine."""

from __future__ import annotations

import os

import cloudckpt
from cloudckpt.crashtest import effect
from cloudckpt.errors import WaitingError

AMOUNTS = (12, 300, 7)


def pay(number: int, amount: int, idempotency_key: str) -> int:
    effect("paid", key=idempotency_key, number=number, amount=amount)
    return amount


def main() -> None:
    with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store, store.run("approvals") as run:
        state = run.load() or {"step": 0, "paid": 0, "refused": 0}
        while state["step"] < len(AMOUNTS):
            number, amount = state["step"], AMOUNTS[state["step"]]
            try:
                answer = run.wait(f"pay {amount}?", key=f"may-pay-{number}", schema=["yes", "no"])
            except WaitingError as waiting:
                store.run("approvals").answer(waiting.token, "yes" if amount < 100 else "no", by="a person")
                continue
            if answer == "yes":
                state["paid"] += run.once(f"pay-{number}", pay, number, amount, policy="retry")
            else:
                state["refused"] += 1
            state["step"] += 1
            run.save(state)
        print(f"paid {state['paid']}, refused {state['refused']}")


if __name__ == "__main__":
    main()
