"""A program: processes that save to and load from the same runs are killed and stopped at random.

    python -m tests.protocol.histories.contest '"URL"' '{"key": "..."}' SEED SECONDS

On S3 the processes take turns in the engine that they use.

A process that was killed is replaced. One that was stopped goes on later, without
knowing that others took over. Everything that all of them asked for and were told is
checked in the end, by the rules of `cloudckpt.testing.linearity` and by the laws.
Prints figures; when a rule is broken, how to replay and where the histories are.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.testing.driver import Client, Driver
from cloudckpt.testing.histories import by_run, read_history
from cloudckpt.testing.recorded import check_recorded
from tests.protocol.histories.agents import KEEP_FEW, Contest, live
from tests.protocol.processes import Child

PROCESSES = 4
LONGEST_STOP = 0.8
KILLED, STOPPED = range(2), range(2, 6)
"""Of sixteen: which fate a process has when its turn comes, about twelve times a second."""


class Processes:
    """The processes of a contest, and what is done to them."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._random = random.Random(contest.seed)
        self._children = [self._new(number) for number in range(PROCESSES)]
        self._count = PROCESSES
        self._stopped: dict[Child, float] = {}
        self.figures: Counter[str] = Counter()

    def _new(self, number: int) -> Child:
        return Child(partial(live, self._contest, number))

    def torment(self) -> None:
        """Kill and stop until the contest's end, then let all of them end."""
        try:
            while time.monotonic() < self._contest.until:
                time.sleep(self._random.uniform(0.01, 0.15))
                self._wake(time.monotonic())
                self._disturb(self._random.randrange(PROCESSES))
            self._wake(float("inf"))
            while self._children:
                self._end(self._children.pop(), 0)
        finally:
            for child in self._children:  # after a failure
                os.kill(child.pid, signal.SIGKILL)
                child.end()

    def _disturb(self, place: int) -> None:
        child, what = self._children[place], self._random.randrange(16)
        if what in KILLED:
            self._stopped.pop(child, None)
            os.kill(child.pid, signal.SIGKILL)
            self._children[place] = self._new(self._count)
            self._end(child, -signal.SIGKILL, 0)
            self._count += 1
            self.figures["kills"] += 1
        elif what in STOPPED and child not in self._stopped:
            os.kill(child.pid, signal.SIGSTOP)
            self._stopped[child] = time.monotonic() + self._random.uniform(0.0, LONGEST_STOP)
            self.figures["stops"] += 1

    def _wake(self, now: float) -> None:
        for child in [child for child, until in self._stopped.items() if until <= now]:
            del self._stopped[child]
            os.kill(child.pid, signal.SIGCONT)

    def _end(self, child: Child, *codes: int) -> None:
        code, _ = child.end()
        assert code in codes, f"a process ended with {code}"


def judge(contest: Contest) -> Counter[str]:
    """Check all runs, and return figures."""
    driver = Driver()
    raw = Client(driver, contest.makes[0]())
    figures: Counter[str] = Counter()
    for run, operations in by_run(read_history(contest.folder)).items():
        keep_last = None if run.startswith("whole") else KEEP_FEW
        figures += Counter(asdict(raw.run(check_recorded(raw.storage, operations, keep_last=keep_last))))
        figures["runs"] += 1
    raw.close()
    driver.close()
    return figures


def engines(url: str, options: dict[str, Any]) -> tuple[Callable[[], Storage], ...]:
    """Return what makes each engine that serves this URL."""
    makes: list[Callable[[], Storage]] = [engine_for(url, storage_options=options)]
    if url.startswith("s3://"):
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        makes.append(partial(Boto3Storage, bucket, prefix, storage_options=options))
        makes.append(partial(ObstoreStorage, "s3", bucket, prefix, storage_options=options))
    for make in makes:
        make()  # imports the engine's library, once for all children
    return tuple(makes)


def main(url: str, options: dict[str, Any], seed: int, seconds: float) -> None:
    makes = engines(url, options)
    folder = Path(tempfile.mkdtemp(prefix="cloudckpt-history-"))
    start = time.monotonic()
    contest = Contest(makes, folder, seed, start, start + seconds)
    processes = Processes(contest)
    try:
        processes.torment()
        figures = judge(contest)
    except BaseException as error:
        error.add_note(f"{seed=}; what each process asked and was told is in {folder}")
        raise
    shutil.rmtree(folder)
    print(json.dumps(figures + processes.figures))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
