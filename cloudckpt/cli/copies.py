"""``cloudckpt copy``."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

import click

from cloudckpt import fleet
from cloudckpt.cli import names
from cloudckpt.cli.failures import NO, complain
from cloudckpt.cli.frame import (
    dry_run_option,
    engine_options,
    none_there,
    opened,
    other_engine_options,
    run_argument,
    with_output,
)
from cloudckpt.cli.screen import Column, Document, Output, remark
from cloudckpt.cli.words import counted, rules_text, size
from cloudckpt.copying import Copied
from cloudckpt.errors import RunDeletedError
from cloudckpt.store import Store

RUNS_AT_ONCE: Final = 8
"""Each sends several objects at a time; more would only hold more of them in memory."""

COPIED: Final = (
    Column("run", "run", style="bold"),
    Column("seq", "seq", right=True),
    Column("objects", "objects", right=True),
    Column("sent", "sent", right=True),
    Column("bytes", "bytes", size, right=True),
    Column("changed", "changed", lambda value: "yes" if value else "no"),
)


def shape(done: Copied, *, dry_run: bool) -> dict[str, Any]:
    """Return what was copied of a run, as JSON."""
    return {
        "run": done.run,
        "seq": done.seq,
        "objects": done.objects,
        "sent": done.sent,
        "bytes": done.bytes,
        "changed": done.changed,
        "dry_run": dry_run,
    }


@click.command("copy")
@click.argument("store", metavar="SRC")
@click.argument("to", metavar="DST")
@run_argument("runs", "[RUN...]", nargs=-1)
@click.option("--prefix", default="", help="Without RUN: only runs whose id begins like this.")
@click.option("--check", is_flag=True, help="Look also at runs that are up to date: send what DST has lost.")
@click.option("--settings", is_flag=True, help="Also copy the rules of retention of the store itself.")
@dry_run_option
@other_engine_options
@engine_options
@with_output
def copy(
    out: Output,
    store: str,
    to: str,
    runs: tuple[str, ...],
    *,
    prefix: str,
    check: bool,
    settings: bool,
    dry_run: bool,
    engine: str | None,
    storage_options: Mapping[str, Any] | None,
    to_engine: str | None,
    to_storage_options: Mapping[str, Any] | None,
) -> None:
    """Copy runs into another store.

    All runs of SRC, or those that are named, with history, tags, holds and ledger; both are URLs of
    stores of any kind. A run at work is copied as it is at one point. Interrupted or done again, it
    sends what is not there yet. A run of DST's own is never overwritten.
    """
    with (
        opened(store, engine, storage_options) as source,
        opened(to, to_engine, to_storage_options) as target,
    ):
        ids = [names.there(source, name) for name in runs]
        tally = _Tally(dry_run=dry_run)
        work = partial(_copy, to=target, check=check)
        out.rows(_copied(source, work, out, tally, ids=ids, prefix=prefix), COPIED)
        if settings:
            _copy_settings(source, target, dry_run=dry_run)
        if not tally.runs + tally.deleted + tally.failed:
            none_there(source, prefix)
    if not out.as_json:
        remark(tally.told())
    if tally.failed:
        raise click.exceptions.Exit(NO)


class _Tally:
    """What was copied in all."""

    def __init__(self, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.runs = self.changed = self.sent = self.bytes = self.deleted = self.failed = 0

    def add(self, done: Copied) -> None:
        """Count a run."""
        self.runs += 1
        self.changed += done.changed
        self.sent += done.sent
        self.bytes += done.bytes

    def told(self) -> str:
        """Say it."""
        said = "would copy" if self.dry_run else "copied"
        of = f"{self.changed:,} of {counted(self.runs, 'run')}"
        text = f"{said} {of}: {counted(self.sent, 'object')}, {size(self.bytes)}"
        if self.deleted:
            text += f"; {counted(self.deleted, 'deleted run')} left out"
        return text + (f"; {self.failed:,} failed" if self.failed else "")


def _copied(
    source: Store, work: partial[Copied], out: Output, tally: _Tally, *, ids: list[str], prefix: str
) -> Iterator[Document]:
    with _progress(source, work, out, ids, prefix) as (advance, sent), _stoppable() as stop:

        def told(count: int) -> None:
            stop()
            sent(count)

        every: Iterable[str] = ids or (info.id for info in source.runs(prefix))
        for outcome in fleet.each(
            source, partial(work, dry_run=tally.dry_run, progress=told), every, threads=RUNS_AT_ONCE
        ):
            advance(1)
            error, done = outcome.error, outcome.value
            if done is not None:
                tally.add(done)
                yield shape(done, dry_run=tally.dry_run)
            elif not ids and isinstance(error, RunDeletedError) and error.kind != "there":
                tally.deleted += 1  # nothing is left of it to copy
            else:
                tally.failed += 1
                complain(str(error))


@contextmanager
def _progress(
    source: Store, work: partial[Copied], out: Output, ids: list[str], prefix: str
) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Show how many runs are done, or where runs are named how many bytes: a run can be large.

    Yields:
        What is told of a run that is done, and what is told of bytes that were sent.
    """
    if not ids:
        with out.progress("runs", lambda: sum(1 for _ in source.runs(prefix))) as advance:
            yield advance, _unseen
        return

    def to_send() -> int:
        plans = fleet.each(source, partial(work, dry_run=True), ids, threads=RUNS_AT_ONCE)
        return sum(plan.value.bytes for plan in plans if plan.value) // 1024

    with out.progress("KiB", to_send) as advance:
        left = 0
        lock = threading.Lock()

        def sent(count: int) -> None:
            nonlocal left
            with lock:
                whole, left = divmod(left + count, 1024)
                advance(whole)

        yield _unseen, sent


def _unseen(_: int) -> None:
    """Show nothing."""


@contextmanager
def _stoppable() -> Iterator[Callable[[], None]]:
    """Let an interrupt also end what is under way in other threads: else a large run is waited for.

    Yields:
        What raises in a thread once there was one.
    """
    stopped = threading.Event()

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    def check() -> None:
        if stopped.is_set():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _copy(
    source: Store,
    run: str,
    *,
    to: Store,
    check: bool,
    dry_run: bool,
    progress: Callable[[int], None] | None = None,
) -> Copied:
    return source.copy(run, to, check=check, dry_run=dry_run, progress=progress)


def _copy_settings(source: Store, target: Store, *, dry_run: bool) -> None:
    rules = source.get_retention()
    if rules is None:
        remark("SRC has no rules of its own; those of DST stay as they are")
        return
    if not dry_run:
        target.set_retention(rules)
    said = "would keep" if dry_run else "keep"
    remark(f"runs that begin in DST from now on {said} {rules_text(rules.to_json())}")
