"""What the layer above an engine adds to a small save, at no latency.

The bare call is the engine's conditional write of the same bytes. A save by an
engine that suspends has the hop to the IO loop and back in it, an awaited save by
one that blocks the hop to a worker thread; the bare call has neither.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from functools import partial

from tests.benchmarks.engines import Bench, Place, awaited, places
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, milliseconds, timed, turns

SYNC = {"file": 0.15, "boto3": 0.15, "obstore": 0.15, "s3fs": 0.5, "gcsfs": 0.5}
ASYNC = 0.3
"""Milliseconds that a save may add, and an awaited one."""

ROUNDS = {"memory": 1000, "file": 400}
USUAL_ROUNDS = 300


def run(lab: Lab) -> Iterator[Table]:
    table = Table(
        "a save of 2 KiB above the engine's bare call, at no latency",
        ("bare", "save", "save adds", "asave", "asave adds"),
        (
            "bare: the engine's conditional write of the same manifest, timed where the engine runs",
            "medians of calls in turn, back to back; what is added is the difference of two medians",
        ),
    )

    def say(note: str) -> None:
        table.notes += (note,)

    for place in (Place("memory", "memory", f"memory://{lab.name()}"), *places(lab, say)):
        with Bench(place) as bench, asyncio.Runner() as caller:
            saving, bare = bench.filled("saving"), bench.bare("saving")
            asave = partial(saving.asave, bench.state)
            took = turns(
                {
                    "bare": partial(bench.seconds, bare),
                    "save": timed(partial(saving.save, bench.state)),
                    "asave": lambda asave=asave: caller.run(awaited(asave)),
                },
                rounds=lab.rounds(ROUNDS.get(place.engine, USUAL_ROUNDS)),
            )
        middle = {name: statistics.median(seconds) for name, seconds in took.items()}
        has_target = place.engine in SYNC
        table.add(
            place.label,
            milliseconds(middle["bare"]),
            milliseconds(middle["save"]),
            _added(middle["save"] - middle["bare"], SYNC.get(place.engine)),
            milliseconds(middle["asave"]),
            _added(middle["asave"] - middle["bare"], ASYNC if has_target else None),
        )
    yield table


def _added(seconds: float, most: float | None) -> Figure:
    return Figure(seconds * 1e3, " ms", most)
