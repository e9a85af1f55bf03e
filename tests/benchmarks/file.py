"""A durable save into a folder beside a commit of SQLite, on one disk.

SQLite runs as it comes (rollback journal) with ``synchronous=FULL``, and
inserts the same bytes as one row. Both sides have told the disk to flush when
the call returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import cloudckpt
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, Work, medians, milliseconds
from tests.benchmarks.peer import Sqlite

KIB = 1024
SIZES = {"2 KiB": (2 * KIB, 1.0), "32 KiB": (31 * KIB, None)}
"""Bytes of the state, and the target: at most this many times SQLite's commit."""


def run(lab: Lab) -> Iterator[Table]:
    table = Table(
        "durable save into a folder, against a SQLite commit of the same bytes on the same disk",
        ("save", "SQLite", "ratio"),
        (
            "random bytes; SQLite with its default journal, synchronous=FULL, one INSERT",
            "alone: with a pause after each; back to back: in bursts of 20",
        ),
    )
    for size, (count, most) in SIZES.items():
        state = os.urandom(count)
        peer = Sqlite(lab.folder() / "states.db")
        with cloudckpt.open(lab.folder()) as store, store.run("bench") as run:
            contestants: dict[str, Work] = {
                "save": partial(run.save, state),
                "SQLite": partial(peer.save, "bench", state),
            }
            alone = medians(contestants, rounds=lab.rounds(60), pause=0.02)
            burst = medians(contestants, rounds=lab.rounds(12), burst=20, pause=0.05)
        peer.close()
        for how, took in {"alone": alone, "back to back": burst}.items():
            ratio = Figure(took["save"] / took["SQLite"], "x", most)
            table.add(f"{size} {how}", milliseconds(took["save"]), milliseconds(took["SQLite"]), ratio)
    yield table
