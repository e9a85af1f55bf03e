"""What a process of a contest does: it works on a few runs that all the others work on too.

Owns: the mixture of calls. Invariant: each call goes through the recorder, and only
errors that tell what happened are caught, so anything else ends the process loudly.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudckpt.errors import (
    CheckpointNotFoundError,
    ConflictError,
    FencedError,
    NotFoundError,
    OutcomeUnknownError,
)
from cloudckpt.run import Run
from cloudckpt.storage.contract import Storage
from cloudckpt.store import Store
from cloudckpt.testing.histories import Recorder

KEEP_ALL = 100_000
KEEP_FEW = 3
WINDOW = 2.0
"""Seconds after which a run from which nothing expires gives way to the next: its manifest grows."""

LARGE = 40_000
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Contest:
    """What all its processes share.

    Attributes:
        makes: Engines of the one store; each process takes the one of its turn.
        folder: Where they record.
        seed: Of every process's choices, together with its number.
        start, until: By the monotonic clock.
    """

    makes: tuple[Callable[[], Storage], ...]
    folder: Path
    seed: int
    start: float
    until: float

    def run_id(self, slot: int) -> tuple[str, int]:
        """Return the run of one of three slots at this moment, and its `keep_last`."""
        if slot == 0:
            return "expiring", KEEP_FEW
        return f"whole-{slot}-{int((time.monotonic() - self.start) / WINDOW)}", KEEP_ALL


class Agent:
    """One process's life."""

    def __init__(self, contest: Contest, number: int, store: Store) -> None:
        self._contest = contest
        self._store = store
        self._random = random.Random(f"{contest.seed}/{number}")
        self._recorder = Recorder(contest.folder / f"{number:04d}.jsonl")
        self._number = number
        self._count = 0
        self._held: dict[str, Run] = {}

    def live(self) -> None:
        acts = [self._save] * 12 + [self._load] * 5 + [self._load_seq] * 2 + [self._enter, self._leave]
        acts += [self._collect, self._retain, self._tag, self._untag]
        while time.monotonic() < self._contest.until:
            run_id, keep_last = self._contest.run_id(self._random.randrange(3))
            self._random.choice(acts)(run_id, keep_last)
            if not self._random.randrange(8):
                time.sleep(self._random.uniform(0, 0.02))

    def _handle(self, run_id: str, keep_last: int) -> Run:
        """Return the handle that this process saves through; a new one is nobody's writer yet."""
        if run_id not in self._held:
            self._held[run_id] = self._store.run(run_id, keep_last=keep_last)
        return self._held[run_id]

    def _reader(self, run_id: str, keep_last: int) -> Run:
        own = self._random.random() < 0.5
        return self._handle(run_id, keep_last) if own else self._store.run(run_id)

    def _save(self, run_id: str, keep_last: int) -> None:
        run = self._handle(run_id, keep_last)
        self._count += 1
        large = not self._random.randrange(8)
        state = {
            "by": self._number,
            "n": self._count,
            "pad": self._random.randbytes(LARGE if large else self._random.randrange(2000)),
        }
        expect = run.head if not self._random.randrange(4) else None
        try:
            with self._recorder.saving(run, state) as told:
                if self._random.randrange(4):
                    told(run.save(state, expect=expect))
                else:
                    told(asyncio.run(_awaited(run.asave(state, expect=expect))))
        except FencedError:
            self._after_fencing(run_id, keep_last)
        except (ConflictError, OutcomeUnknownError):
            return

    def _after_fencing(self, run_id: str, keep_last: int) -> None:
        """Take over again, stay a zombie that tries on, or let the others work."""
        what = self._random.randrange(3)
        if what == 0:
            self._enter(run_id, keep_last)
        elif what == 1:
            self._leave(run_id, keep_last)

    def _enter(self, run_id: str, keep_last: int) -> None:
        self._leave(run_id, keep_last)
        run = self._handle(run_id, keep_last)
        with contextlib.suppress(OutcomeUnknownError), self._recorder.entering(run):
            run.acquire()

    def _leave(self, run_id: str, _: int) -> None:
        run = self._held.pop(run_id, None)
        if run is not None and self._random.randrange(2):
            run.close()  # or it is dropped, with what it has under way

    def _load(self, run_id: str, keep_last: int) -> None:
        run = self._reader(run_id, keep_last)
        with self._recorder.loading(run) as told:
            told(run.load() if self._random.randrange(4) else asyncio.run(run.aload()))

    def _load_seq(self, run_id: str, keep_last: int) -> None:
        run = self._reader(run_id, keep_last)
        newest = (run.head or len(run.history())) + 1
        seq = max(1, newest - self._random.randrange(5))
        with contextlib.suppress(CheckpointNotFoundError), self._recorder.loading(run, seq=seq) as told:
            told(run.load(seq=seq))

    # ---- operators, of whom saves and loads must not notice anything

    def _collect(self, run_id: str, _: int) -> None:
        with contextlib.suppress(*UNDONE):
            self._store.collect(run_id)

    def _retain(self, run_id: str, _: int) -> None:
        with contextlib.suppress(*UNDONE):
            self._store.run(run_id).retain()

    def _tag(self, run_id: str, keep_last: int) -> None:
        with contextlib.suppress(*UNDONE):
            self._reader(run_id, keep_last).tag(f"by {self._number}")

    def _untag(self, run_id: str, keep_last: int) -> None:
        with contextlib.suppress(*UNDONE):
            self._reader(run_id, keep_last).untag(f"by {self._number}")


UNDONE = (NotFoundError, ConflictError, OutcomeUnknownError)
"""What an operator may be told: there is nothing there, or others write all the time."""


async def _awaited(saving: Any) -> Any:
    return await saving


def live(contest: Contest, number: int, send: Callable[[Any], None]) -> None:
    """Be process `number` of the contest until its end, or until it is killed."""
    if sys.platform == "linux":  # a stopped one would outlive a parent that was killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with Store(contest.makes[number % len(contest.makes)]) as store:
        Agent(contest, number, store).live()
