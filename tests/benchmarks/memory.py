"""What a save of a large state takes of memory, and for how long it blocks the caller's loop."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, mebibytes, milliseconds
from tests.servers.base import ROOT, Unavailable

MIB = 1 << 20
KINDS = ("bytes", "messages")


def run(lab: Lab) -> Iterator[Table]:
    if sys.platform != "linux":
        raise Unavailable("only Linux tells a process its peak and lets it start anew")
    mib = 16 if lab.quick else 64
    table = Table(
        f"save of a state of {mib} MiB",
        ("peak over the state", "/ state", "encoding", "loop blocked", "/ encoding", "after it"),
        (
            "bytes: random; messages: dicts with texts of 4 KiB that zstd brings to a third",
            "peak over the state: memory in use at most during the save, less what was in use before it",
            "loop blocked: the longest wait of a task that asks for a turn each millisecond during an asave;",
            "its target has a tenth for noise; after it: the second longest, since asave encodes first",
        ),
    )
    places: dict[str, tuple[str, Mapping[str, Any] | None]] = {"folder": (str(lab.folder()), None)}
    try:
        server = lab.server()
    except Unavailable as error:
        table.notes += (f"MinIO skipped: {error}",)
    else:
        places["MinIO"] = (f"{server.url}/{lab.name()}", server.storage_options())
    for place, (url, options) in places.items():
        for kind in KINDS:
            asked = {"url": url, "storage_options": options, "kind": kind, "mib": mib}
            _add(table, f"{kind}, {place}", _child(asked), mib * MIB)
    yield table


def _child(asked: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.memory_child", json.dumps(asked)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _add(table: Table, label: str, found: dict[str, Any], size: int) -> None:
    encoding = statistics.median(found["encodings"])
    blocked = statistics.median(gaps[0] for gaps in found["gaps"])
    table.add(
        label,
        mebibytes(found["over"]),
        Figure(found["over"] / size, "x", 3),
        milliseconds(encoding),
        milliseconds(blocked),
        Figure(blocked / encoding, "x", 1.1),
        milliseconds(statistics.median(gaps[1] for gaps in found["gaps"])),
    )
