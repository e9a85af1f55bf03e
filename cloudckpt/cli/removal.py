"""``cloudckpt delete`` and ``cloudckpt collect``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import click

from cloudckpt import fleet
from cloudckpt.cli import names
from cloudckpt.cli.failures import NO, complain
from cloudckpt.cli.frame import (
    confirm,
    dry_run_option,
    none_there,
    run_argument,
    with_output,
    with_store,
    yes_option,
)
from cloudckpt.cli.screen import Column, Document, Output, remark
from cloudckpt.cli.words import counted, size
from cloudckpt.collect import Collected
from cloudckpt.fleet import Outcome
from cloudckpt.store import Store

REMOVED: Final = (
    Column("run", "run", style="bold"),
    Column("objects", "objects", right=True),
    Column("removed", "removed", right=True),
    Column("bytes", "bytes", size, right=True),
)


def shape(done: Collected, *, dry_run: bool) -> dict[str, Any]:
    """Return what was removed of a run, as JSON."""
    return {
        "run": done.run,
        "objects": done.objects,
        "removed": done.removed,
        "bytes": done.bytes,
        "dry_run": dry_run,
    }


@click.command("delete")
@run_argument("runs", "RUN...", nargs=-1, required=True)
@click.option("--why", default="", help="Kept in the tombstone.")
@click.option("--by", help="Who deletes it. [default: this user on this host]")
@dry_run_option
@yes_option
@with_output
@with_store
def delete(
    store: Store, out: Output, runs: tuple[str, ...], *, why: str, by: str | None, dry_run: bool, yes: bool
) -> None:
    """Delete runs.

    Their objects go, and a tombstone refuses every later save. A hold forbids it. Safe to call
    again, which removes what a late writer or a failure left.
    """
    plans = [names.whole(store, name, lambda run: store.delete(run.id, dry_run=True)) for name in runs]
    if dry_run:
        out.rows((shape(plan, dry_run=True) for plan in plans), REMOVED)
        return
    if not yes:
        for plan in plans:
            remark(f"{plan.run}: {counted(plan.objects, 'object')}, {size(plan.bytes)}")
    confirm(f"Delete {', '.join(repr(plan.run) for plan in plans)}? Nothing brings it back.", yes=yes)
    done = (store.delete(plan.run, why=why, by=by) for plan in plans)
    out.rows((shape(one, dry_run=False) for one in done), REMOVED)


@click.command("collect")
@run_argument("runs", "[RUN...]", nargs=-1)
@click.option("--prefix", default="", help="Without RUN: only runs whose id begins like this.")
@dry_run_option
@with_output
@with_store
def collect(store: Store, out: Output, runs: tuple[str, ...], *, prefix: str, dry_run: bool) -> None:
    """Remove objects that nothing refers to.

    Such as those a crash left behind. Of all runs of the store, or of those that are named. Safe
    while agents are at work; what a checkpoint refers to is never removed.
    """
    if runs:
        work = partial(store.collect, dry_run=dry_run)
        found = [names.whole(store, name, lambda run: work(run.id)) for name in runs]
        outcomes: Iterable[Outcome[Collected]] = (Outcome(one.run, one) for one in found)
    else:
        ids = (info.id for info in store.runs(prefix))
        outcomes = fleet.each(store, partial(_collect, dry_run=dry_run), ids)
    tally = {"objects": 0, "bytes": 0, "runs": 0, "failed": 0}

    def rows() -> Iterator[Document]:
        with out.progress("runs", lambda: len(runs) or sum(1 for _ in store.runs(prefix))) as advance:
            for outcome in outcomes:
                advance(1)
                done = outcome.value
                if done is None:
                    tally["failed"] += 1
                    complain(str(outcome.error))
                    continue
                tally["runs"] += 1
                tally["objects"] += done.removed
                tally["bytes"] += done.bytes
                if done.removed or runs or not out.pretty:  # people look for what was removed
                    yield shape(done, dry_run=dry_run)

    out.rows(rows(), REMOVED)
    if not tally["runs"] + tally["failed"]:
        none_there(store, prefix)
    elif not out.as_json:
        said = "would remove" if dry_run else "removed"
        objects, of = counted(tally["objects"], "object"), counted(tally["runs"], "run")
        remark(f"{said} {objects}, {size(tally['bytes'])}, of {of}")
    if tally["failed"]:
        raise click.exceptions.Exit(NO)


def _collect(store: Store, run: str, *, dry_run: bool) -> Collected:
    return store.collect(run, dry_run=dry_run)
