"""A right agent, written with plain calls: load, work, save. Pays invoices, each under its own key."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

import cloudckpt
from cloudckpt.crashtest import effect

INVOICES = (12, 30, 7, 51, 18)[: int(sys.argv[1]) if len(sys.argv) > 1 else 5]


@dataclass
class Ledger:
    step: int = 0
    paid: list[int] = field(default_factory=list)


def pay(number: int, amount: int) -> int:
    effect("paid", key=f"invoice-{number}", amount=amount)
    return amount + 1


def main() -> None:
    with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store, store.run("invoices") as run:
        ledger = run.load(Ledger) or Ledger()
        while ledger.step < len(INVOICES):
            fee = pay(ledger.step, INVOICES[ledger.step])
            ledger.paid.append(fee)
            ledger.step += 1
            run.save(ledger)
        print(f"paid {sum(ledger.paid)} in {ledger.step} steps")


if __name__ == "__main__":
    main()
