"""What `import cloudckpt` and the first use cost over a bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, medians
from tests.servers.base import ROOT

PROGRAMS = {
    "import cloudckpt": ("import cloudckpt", 50),
    "from cloudckpt import Checkpoint": ("from cloudckpt import Checkpoint", None),
    "open a folder, save and load": (
        "import cloudckpt; s = cloudckpt.open('memory://'); s.run('a').save({}); s.run('a').load()",
        None,
    ),
    "open an s3:// store": ("import cloudckpt; cloudckpt.open('s3://bucket')", None),
    "import s3fs (for comparison)": ("import s3fs", None),
}
"""Program, and the target in milliseconds."""


def run(lab: Lab) -> Iterator[Table]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def interpreter(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, check=True)

    programs = {"bare": "pass"} | {label: program for label, (program, _) in PROGRAMS.items()}
    took = medians(
        {label: partial(interpreter, each) for label, each in programs.items()}, rounds=lab.rounds(15)
    )
    table = Table(
        "start of a process, over a bare interpreter",
        ("over bare", "whole"),
        (f"medians of processes in turn; a bare one takes {took['bare'] * 1e3:.0f} ms",),
    )
    for label, (_, most) in PROGRAMS.items():
        table.add(
            label,
            Figure((took[label] - took["bare"]) * 1e3, " ms", most),
            Figure(took[label] * 1e3, " ms"),
        )
    yield table
