"""Histories of real processes: what each asked for and was told.

Owns: the form in which a process records (`Recorder`), and reading that back
(`read_history`). Invariant: a call is on disk before it is made and its answer after
it was given, so that a process may be killed anywhere; times are of the monotonic
clock, which the processes of one machine share. It starts no process, reads no store,
and judges nothing: `linearity.py` does.

    recorder = Recorder(folder / f"{os.getpid()}.jsonl")
    with recorder.saving(run, state) as told:
        told(run.save(state))

    for name, operations in by_run(read_history(folder)).items():
        check_history(operations, manifests[name])
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudckpt.codec import encode
from cloudckpt.errors import CheckpointNotFoundError, CloudckptError, OutcomeUnknownError
from cloudckpt.model import CheckpointInfo
from cloudckpt.run import Run


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one process.

    Attributes:
        process: Who made it: the name of its record.
        run: The run's id.
        begun: When it began, in nanoseconds of the monotonic clock.
        ended: When it was answered; None when nobody saw an answer.
        held: The epoch that the caller held when it began, None when it was not the run's writer.
        error: Class of the error that was its answer.
    """

    process: str
    run: str
    begun: int
    ended: int | None = None
    held: int | None = None
    error: str | None = None

    @property
    def answered(self) -> bool:
        """Whether its caller was told an outcome."""
        return self.ended is not None and self.error != OutcomeUnknownError.__name__


@dataclass(frozen=True, slots=True)
class Save(Operation):
    """A save of the state of this digest; seq, epoch and commit are what its caller was told."""

    state: str = ""
    seq: int | None = None
    epoch: int | None = None
    commit: str | None = None

    @property
    def refused(self) -> bool:
        """Whether its caller was told that nothing was saved."""
        return self.answered and self.seq is None


@dataclass(frozen=True, slots=True)
class Load(Operation):
    """A load of `seq`, None for the newest; `state` is the digest that it returned, None for nothing."""

    seq: int | None = None
    state: str | None = None

    @property
    def absent(self) -> bool:
        """Whether its caller was told that there is no checkpoint of this seq."""
        told = self.answered and self.error in (None, CheckpointNotFoundError.__name__)
        return told and self.seq is not None and self.state is None


@dataclass(frozen=True, slots=True)
class Entered(Operation):
    """Becoming the writer; epoch and newest seq as its caller was told."""

    epoch: int | None = None
    head: int | None = None


_KINDS: dict[str, type[Operation]] = {"save": Save, "load": Load, "enter": Entered}


# ---- recording


class Recorder:
    """Appends what one process asks for and is told to a file of its own. Not for threads.

    Args:
        path: The file, one a process; its name without the ending is the process's name.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._count = 0

    @contextmanager
    def saving(self, run: Run, state: object) -> Iterator[Callable[[CheckpointInfo], None]]:
        """Note a save, and what comes out of the block as its answer."""
        with self._calling("save", run, state=encode(state).encoded_digest) as answer:
            yield lambda info: answer(seq=info.seq, epoch=info.epoch, commit=info.commit)

    @contextmanager
    def loading(self, run: Run, *, seq: int | None = None) -> Iterator[Callable[[object], None]]:
        """Note a load, and what comes out of the block as its answer."""
        with self._calling("load", run, seq=seq) as answer:
            yield lambda state: answer(state=None if state is None else encode(state).encoded_digest)

    @contextmanager
    def entering(self, run: Run) -> Iterator[None]:
        """Note that the block makes `run` its run's writer."""
        with self._calling("enter", run) as answer:
            yield
            answer(epoch=run.epoch, head=run.head)

    @contextmanager
    def _calling(self, call: str, run: Run, **facts: Any) -> Iterator[Callable[..., None]]:
        self._count += 1
        number = self._count
        self._write(op=number, call=call, run=run.id, held=run.epoch, **facts)
        try:
            yield lambda **told: self._write(op=number, **told)
        except CloudckptError as error:
            self._write(op=number, error=type(error).__name__)
            raise

    def _write(self, **line: Any) -> None:
        at = time.monotonic_ns()
        os.write(self._file, (json.dumps({"at": at, **line}) + "\n").encode())

    def close(self) -> None:
        """Close the file. Not for a second call."""
        os.close(self._file)


def read_history(folder: Path) -> list[Operation]:
    """Return every operation that is recorded in the ``.jsonl`` files of a folder."""
    return [op for path in sorted(folder.glob("*.jsonl")) for op in _read(path)]


def _read(path: Path) -> Iterator[Operation]:
    calls: dict[int, dict[str, Any]] = {}
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break  # killed while it wrote this: a call that was not made, or an answer not seen
        facts = json.loads(line)
        at, number = facts.pop("at"), facts.pop("op")
        if "call" in facts:
            calls[number] = {"process": path.stem, "begun": at, **facts}
        else:
            calls[number] |= {"ended": at, **facts}
    for facts in calls.values():
        yield _KINDS[facts.pop("call")](**facts)


def by_run(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Return the operations of each run."""
    runs: dict[str, list[Operation]] = {}
    for op in operations:
        runs.setdefault(op.run, []).append(op)
    return runs
