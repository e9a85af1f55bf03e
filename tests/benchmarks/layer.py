"""What the layer above an engine adds to a small save, at no latency.

The bare call is the engine's own `replace` of a manifest's bytes, which is what
a small save comes down to, run by the same runner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import cloudckpt
from cloudckpt import keys
from cloudckpt.clock import SystemClock
from cloudckpt.runner import make_runner
from cloudckpt.storage.engines import engine_for
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, medians, milliseconds
from tests.servers.base import Unavailable

RUN = "bench"
STATE = 2048


def run(lab: Lab) -> Iterator[Table]:
    table = Table(
        "a save of 2 KiB above the engine's bare call, at no latency",
        ("save", "bare", "added", "ratio"),
        ("bare: the engine's conditional write of the same manifest, by the same runner",),
    )
    _measure(lab, table, "memory", f"memory://{lab.name()}", None, 400)
    _measure(lab, table, "file", str(lab.folder()), None, 150)
    try:
        server = lab.server()
    except Unavailable as error:
        table.notes += (f"s3 skipped: {error}",)
    else:
        _measure(lab, table, "s3 (MinIO)", f"{server.url}/{lab.name()}", server.storage_options(), 100)
    yield table


def _measure(
    lab: Lab, table: Table, label: str, url: str, options: Mapping[str, Any] | None, rounds: int
) -> None:
    state = os.urandom(STATE)
    engine = engine_for(url, storage_options=options)()
    runner = make_runner(blocking=engine.blocking, clock=SystemClock())
    with cloudckpt.open(url, storage_options=options) as store, store.run(RUN) as run:
        for _ in range(12):  # until the manifest has its full length
            run.save(state)
        manifest = runner.call(engine.read(keys.manifest_key(RUN)))
        if manifest is None:
            raise RuntimeError("the manifest is not where it should be")
        token = runner.call(engine.create("bare", manifest.data))

        def bare() -> None:
            nonlocal token
            token = runner.call(engine.replace("bare", manifest.data, token))

        took = medians(
            {"save": lambda: run.save(state), "bare": bare}, rounds=lab.rounds(rounds), pause=0.003
        )
    runner.call(engine.close())
    table.add(
        label,
        milliseconds(took["save"]),
        milliseconds(took["bare"]),
        milliseconds(took["save"] - took["bare"]),
        Figure(took["save"] / took["bare"], "x"),
    )
