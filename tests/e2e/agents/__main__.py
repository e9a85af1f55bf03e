"""The long gauntlet: ``python -m tests.e2e.agents [NAME ...] [--kills N] [--seed S]``.

Each right agent of this folder, on a folder and on MinIO: killed at random, and at every
storage call. A problem ends it with exit code 1, after what replays it.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloudckpt.cli.screen import Output
from cloudckpt.crashtest.gauntlet import SEEDS, Options, Report, trial
from cloudckpt.crashtest.shapes import sentences
from tests.conftest import _isolate
from tests.servers.base import Unavailable
from tests.servers.minio import prepare
from tests.servers.registry import Servers

AGENTS = ("plain", "plain_async", "background", "once_heavy", "approvals")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.agents", description="The long gauntlet.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(AGENTS)}")
    parser.add_argument("--kills", type=int, default=125, help="at random, of each agent on each store (125)")
    parser.add_argument("--seed", type=int, help="to begin with (any)")
    options = parser.parse_args()
    unknown = sorted({*options.names} - {*AGENTS})
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are: {', '.join(AGENTS)}")
    seed = secrets.randbelow(SEEDS) if options.seed is None else options.seed
    _isolate()
    with stores() as urls:
        reports = [
            run(name, store, url, options.kills, seed)
            for store, url in urls.items()
            for name in options.names or AGENTS
        ]
    kills = sum(len(report.kills) for report in reports)
    wrong = sum(not report.ok for report in reports)
    print(f"{kills:,} kills of {len(reports)} agents and stores: {wrong} of them failed")
    return 1 if wrong else 0


def run(name: str, store: str, url: str | None, kills: int, seed: int) -> Report:
    began = time.monotonic()
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py"))]
    options = Options(kills=kills, seed=seed, every_call=True, url=url)
    with (
        trial(command, options) as tried,
        Output(as_json=False).progress(f"{name} on {store}", lambda: tried.total) as advance,
    ):
        for life in tried.lives():
            advance(len(life.kills))
    print(f"{name} on {store}, {time.monotonic() - began:.0f} s:")
    for line in sentences(tried.report):
        print(f"  {line}", flush=True)
    return tried.report


@contextmanager
def stores() -> Iterator[dict[str, str | None]]:
    """Have a folder, and MinIO where it can run: its access is put into the environment, for the agents."""
    servers = Servers()
    found: dict[str, str | None] = {"a folder": None}
    try:
        prepare(print)
        server = servers.get("minio")
        os.environ.update(server.environment())
        found["minio"] = f"{server.url}/agents"
    except Unavailable as error:
        print(f"minio is skipped: {error}")
    try:
        yield found
    finally:
        servers.stop()


if __name__ == "__main__":
    sys.exit(main())
