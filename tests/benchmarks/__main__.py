"""The command: ``python -m tests.benchmarks [NAME ...] [--quick] [--json FILE] [--dir FOLDER]``.

It prints each table when it is there, and at the end which targets were missed.
Its exit code says only whether all could be measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks import (
    background,
    codec,
    crowd,
    file,
    history,
    layer,
    load,
    memory,
    scale,
    startup,
    throughput,
    transcripts,
    wire,
)
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Table
from tests.servers.base import ROOT, Unavailable

BENCHMARKS: Mapping[str, Callable[[Lab], Iterator[Table]]] = {
    "wire": wire.run,
    "load": load.run,
    "file": file.run,
    "transcripts": transcripts.run,
    "memory": memory.run,
    "layer": layer.run,
    "background": background.run,
    "crowd": crowd.run,
    "history": history.run,
    "scale": scale.run,
    "throughput": throughput.run,
    "codec": codec.run,
    "import": startup.run,
}


def main() -> None:
    options = _options()
    tables: dict[str, list[Table]] = {}
    skipped: dict[str, str] = {}
    with Lab(options.dir, quick=options.quick) as lab:
        for name in options.names or BENCHMARKS:
            started = time.monotonic()
            tables[name] = []
            try:
                for table in BENCHMARKS[name](lab):
                    tables[name].append(table)
                    print(table, end="\n\n", flush=True)
            except Unavailable as error:
                skipped[name] = str(error)
            print(f"[{name}: {time.monotonic() - started:.0f} s]", end="\n\n", flush=True)
    _summary(tables, skipped)
    if options.json:
        options.json.write_text(json.dumps(_document(tables, skipped, quick=options.quick), indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="Ratios beside a peer, in one run."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of: {', '.join(BENCHMARKS)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: less than a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", default=ROOT / ".bench", help="on the disk to measure"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return options


def _summary(tables: Mapping[str, list[Table]], skipped: Mapping[str, str]) -> None:
    found = [target for several in tables.values() for table in several for target in table.targets()]
    missed = [(where, figure) for where, figure in found if not figure.met]
    print(f"targets met: {len(found) - len(missed)} of {len(found)}")
    for where, figure in missed:
        print(f"  missed  {where}: {figure}")
    for name, reason in skipped.items():
        print(f"  skipped  {name}: {reason}")


def _document(
    tables: Mapping[str, list[Table]], skipped: Mapping[str, str], *, quick: bool
) -> dict[str, Any]:
    return {
        "python": sys.version.split()[0],
        "machine": platform.platform(),
        "quick": quick,
        "skipped": dict(skipped),
        "benchmarks": {name: [table.document() for table in several] for name, several in tables.items()},
    }


if __name__ == "__main__":
    main()
