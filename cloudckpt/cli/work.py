"""``cloudckpt work``, ``submit`` and ``offer``: a store as a queue of runs.

Owns: the loop of a worker that runs a command for each run that it gets. Invariants: the command's
process takes the run over from this one, by what it finds in its environment, so there is no moment
in which another worker could; this one ends only after it; a run whose command fails, or goes well
again and again and comes to nothing, is left alone for a while, and given up by this worker after
some tries.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import click

from cloudckpt.claiming import LEASE_SECONDS, POLL_SECONDS
from cloudckpt.cli.failures import NO, USAGE, Failure
from cloudckpt.cli.frame import Seconds, run_argument, with_output, with_store
from cloudckpt.cli.screen import Column, Output
from cloudckpt.cli.words import shown
from cloudckpt.run import Run
from cloudckpt.store import Store

PLACE: Final = "{run}"
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

COLUMNS: Final = (
    Column("run", "run", style="bold"),
    Column("status", "status"),
    Column("exit", "exit", right=True),
    Column("seconds", "seconds", right=True),
    Column("failed", "failed", right=True),
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """How often a run's command has failed here, and when it may be tried again, by the monotonic clock."""

    count: int
    after: float


class Worker:
    """Works on the runs of a store, one after the other, until it is told to stop.

    Args:
        store: The store.
        command: What is run for each; `{run}` in it stands for the run's id.
        prefix: Only runs whose id starts with it.
        lease: Seconds of the lease of each.
        poll: Seconds between two looks for another one.
        tries: How often a command may fail for a run.
        retry_after: Seconds after which it is tried again.

    Attributes:
        signal: The signal that said to stop, or None.
        given_up: Runs whose command failed too often.
    """

    def __init__(
        self,
        store: Store,
        command: Sequence[str],
        *,
        prefix: str,
        lease: float,
        poll: float,
        tries: int,
        retry_after: float,
    ) -> None:
        self._store = store
        self._command = command
        self._prefix = prefix
        self._lease = lease
        self._poll = poll
        self._tries = tries
        self._retry_after = retry_after
        self._troubles: dict[str, Trouble] = {}
        self._came_to: dict[str, object] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self.signal: int | None = None
        self.given_up: list[str] = []

    def works(self, idle_exit: float) -> Iterator[dict[str, Any]]:
        """Yield what became of each run, until for so many seconds there was none."""
        idle_since = time.monotonic()
        while not self._stop.is_set():
            run = self._store.claim(
                self._prefix, lease=self._lease, poll=self._poll, skip=self._skipped(time.monotonic())
            )
            if run is not None:
                yield self._worked(run)
                idle_since = time.monotonic()
                continue
            left = idle_since + idle_exit - time.monotonic()
            if any(trouble.count < self._tries for trouble in self._troubles.values()):
                left = self._poll  # there is something to do, only not now
            if left <= 0:
                return
            self._stop.wait(min(self._poll, left))

    def _skipped(self, now: float) -> set[str]:
        return {
            run
            for run, trouble in self._troubles.items()
            if trouble.count >= self._tries or trouble.after > now
        }

    def _worked(self, run: Run) -> dict[str, Any]:
        began = time.monotonic()
        command = [part.replace(PLACE, run.id) for part in self._command]
        environment = {"CLOUDCKPT_URL": self._store.url, **run.handover()}
        with run:  # which renews the lease until the command's process has taken the run over
            try:
                self._child = subprocess.Popen(command, env={**os.environ, **environment})  # noqa: S603
            except OSError as error:
                raise Failure(f"can't run {shown(command[0])}: {error.strerror}", USAGE) from error
            if self._stop.is_set():  # the signal came before there was a process to hand it on to
                self._child.send_signal(self.signal or signal.SIGTERM)
            code = self._child.wait()
            self._child = None
        status = self._store.run(run.id).summary().status
        if status == "running" and not self._stop.is_set() and (code != 0 or self._came_to_nothing(run.id)):
            self._failed(run.id)
        else:
            self._troubles.pop(run.id, None)
        seconds = round(time.monotonic() - began, 1)
        trouble = self._troubles.get(run.id)
        return {
            "run": run.id,
            "status": status,
            "exit": code,
            "seconds": seconds,
            "failed": trouble.count if trouble else 0,
        }

    def _came_to_nothing(self, run: str) -> bool:
        """Whether the run is as the command left it last time, though it neither waits nor has ended."""
        found = self._store.run(run)
        now = (found.summary().seq, found.actions(limit=1))
        before, self._came_to[run] = self._came_to.get(run), now
        return before == now

    def _failed(self, run: str) -> None:
        before = self._troubles.get(run, Trouble(0, 0.0))
        self._troubles[run] = Trouble(before.count + 1, time.monotonic() + self._retry_after)
        if before.count + 1 >= self._tries:
            self.given_up.append(run)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hand on to the command the signals that say to stop, and begin nothing new after them."""
        before = {number: signal.signal(number, self._told) for number in STOPPING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _told(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._stop.is_set() and self._child is None:
            raise KeyboardInterrupt  # the second: a store that answers nobody may be waited for for long
        self.signal = number
        self._stop.set()
        # A terminal sends its interrupt to both.
        if self._child is not None and number != signal.SIGINT:
            self._child.send_signal(number)


@click.command("work", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
@click.option("--prefix", default="", help="Only runs whose id begins like this.")
@click.option(
    "--lease",
    type=Seconds(over=True),
    default=LEASE_SECONDS,
    show_default=True,
    help="Seconds after which a worker that gives no sign of life has lost its run.",
)
@click.option(
    "--poll",
    type=Seconds(over=True),
    default=POLL_SECONDS,
    show_default=True,
    help="Seconds between two looks for a run.",
)
@click.option("--once", is_flag=True, help="End after one run.")
@click.option(
    "--idle-exit",
    type=Seconds(endless=True),
    default=0.0,
    show_default=True,
    help="End when there was no run for so many seconds; inf for never.",
)
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often COMMAND may fail for a run before this worker leaves it to others.",
)
@click.option(
    "--retry-after",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="Seconds until a run whose COMMAND failed is tried again.",
)
@with_output
@with_store
def work(
    store: Store, out: Output, command: tuple[str, ...], *, once: bool, idle_exit: float, **options: Any
) -> None:
    """Work on the runs of a store, one after the other.

    Gets the next run that was submitted, whose question was answered, or that another worker left, and
    runs COMMAND (after "--") for it; of several workers exactly one gets a run. COMMAND finds the run's
    id in CLOUDCKPT_RUN and where it says {run}, and the store in CLOUDCKPT_URL.

    Ends when there is none, or on SIGTERM after COMMAND, to which the signal is handed on. Exit code
    1 when it gave a run up.
    """
    worker = Worker(store, command, **options)
    with worker.listening():
        for row in worker.works(0.0 if once else idle_exit):
            out.row(row, COLUMNS)
            if once:
                break
    if worker.signal is not None:
        raise click.exceptions.Exit(128 + worker.signal)
    if worker.given_up:
        names = ", ".join(map(shown, worker.given_up))
        raise Failure(
            f"COMMAND failed too often for {names}, or came to nothing: an agent ends its run by run.finish; "
            "look into it, another worker may take it",
            NO,
        )


@click.command("submit")
@click.argument("run", metavar="RUN")
@click.option(
    "--state", type=click.File("rb"), metavar="FILE", help="The first state, as JSON. [default: none]"
)
@with_output
@with_store
def submit(store: Store, out: Output, run: str, *, state: Any) -> None:
    """Begin a run for a worker to claim.

    The run must not exist yet.
    """
    import json

    try:
        value = None if state is None else json.load(state)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--state") from error
    info = store.submit(run, value)
    out.done(f"run {run!r} waits for a worker", {"run": run, "seq": info.seq if info else 0})


@click.command("offer")
@run_argument("runs", "RUN...", nargs=-1, required=True)
@with_output
@with_store
def offer(store: Store, out: Output, runs: tuple[str, ...]) -> None:
    """Let workers claim runs that are there.

    Such as one that worked without a lease and crashed, or that has ended and is to go on. An agent
    that is at work on it without a lease is fenced by the worker who gets it.
    """

    def offered() -> Iterator[dict[str, Any]]:
        for run in runs:
            store.offer(run)
            yield {"run": run}

    out.rows(offered(), COLUMNS[:1])
