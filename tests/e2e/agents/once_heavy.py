"""A right agent whose every payment is an action done once; of one that was in flight it looks up the end.

The bank is a SQLite file, which no kill takes away. It takes each payment, also the same one twice; so a
payment that was doubled or forgotten shows in the last line.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import cloudckpt
from cloudckpt.acting import Happened, InFlight
from cloudckpt.crashtest.effects import EFFECTS

ORDERS = {"ann": (12, 30), "bob": (7, 51), "eve": (18, 4)}


def bank() -> closing[sqlite3.Connection]:
    connection = sqlite3.connect(Path(os.environ[EFFECTS]).with_name("bank.sqlite"))
    connection.execute("CREATE TABLE IF NOT EXISTS payments (name TEXT, amount INTEGER)")
    return closing(connection)


def pay(name: str, amount: int) -> int:
    with bank() as connection, connection:  # durable when it returns
        connection.execute("INSERT INTO payments VALUES (?, ?)", (name, amount))
    return amount + 1


def look(flight: InFlight) -> Happened | None:
    """Ask the bank whether it was paid."""
    with bank() as connection:
        found = connection.execute("SELECT amount FROM payments WHERE name = ?", (flight.key,)).fetchone()
    return None if found is None else Happened(found[0] + 1)


def main() -> None:
    with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store, store.run("orders") as run:
        state = run.load() or {"step": 0, "paid": 0}
        while state["step"] < len(ORDERS):
            name = sorted(ORDERS)[state["step"]]
            for number, amount in enumerate(ORDERS[name]):
                order = f"{name}/{number}"
                state["paid"] += run.once(order, pay, order, amount, verify=look)
            state["step"] += 1
            run.save(state)
    with bank() as connection:
        print(f"paid {state['paid']}; the bank has {sorted(connection.execute('SELECT * FROM payments'))}")


if __name__ == "__main__":
    main()
