"""``cloudckpt show`` and ``cloudckpt history``."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from cloudckpt.cli import names, shapes
from cloudckpt.cli.frame import run_argument, with_output, with_store
from cloudckpt.cli.screen import Column, Output, remark
from cloudckpt.cli.words import moment, rules_text, size, when
from cloudckpt.clock import SystemClock
from cloudckpt.run import Run
from cloudckpt.store import Store


def _hold(hold: Any) -> str:
    return f"by {hold['by']} since {when(hold['since'])}: {hold['why']}" if hold else ""


def _writer(writer: Any) -> str:
    return f"{writer['host']} (pid {writer['pid']}) since {when(writer['since'])}"


def _tombstone(tombstone: Any) -> str:
    if not tombstone:
        return ""
    why = f": {tombstone['why']}" if tombstone["why"] else ""
    return f"{when(tombstone['time'])} by {tombstone['by']}{why}"


def _origin(origin: Any) -> str:
    return f"{origin['run']}@{origin['seq']} {origin['store'] or ''}".strip() if origin else ""


def _expired(expired: Any) -> str:
    return "\n".join(f"{one['first']} to {one['last']} by {one['rule']}" for one in expired)


RUN: Final = (
    Column("run", "run", style="bold"),
    Column("status", "status"),
    Column("seq", "newest"),
    Column("step", "step"),
    Column("saved", "saved", when),
    Column("checkpoints", "checkpoints"),
    Column("oldest", "oldest"),
    Column("stored", "stored", size),
    Column("epoch", "epoch"),
    Column("writer", "writer", _writer),
    Column("hold", "hold", _hold),
    Column("held", "held checkpoints", lambda count: str(count or "")),
    Column("retention", "retention", rules_text),
    Column("retention_set_by", "set by"),
    Column("notes", "notes"),
    Column("expired", "expired", _expired),
    Column("tombstone", "deleted", _tombstone),
)

CHECKPOINT: Final = (
    Column("run", "run", style="bold"),
    Column("seq", "seq"),
    Column("step", "step"),
    Column("time", "saved", when),
    Column("size", "stored", size),
    Column("encoded_size", "encoded", size),
    Column("tags", "tags"),
    Column("hold", "hold", _hold),
    Column("origin", "started from", _origin),
    Column("metadata", "metadata"),
    Column("notes", "notes"),
    Column("schema", "schema"),
    Column("schema_version", "schema version"),
    Column("codec", "codec"),
    Column("digest", "sha256"),
    Column("fingerprint", "fingerprint"),
    Column("commit", "commit"),
    Column("epoch", "epoch"),
    Column("parent", "parent"),
)

HISTORY: Final = (
    Column("seq", "seq", right=True, style="bold"),
    Column("step", "step", right=True),
    Column("time", "saved", when),
    Column("size", "stored", size, right=True),
    Column("tags", "tags", style="cyan"),
    Column("hold", "held by", lambda hold: hold["by"] if hold else ""),
    Column("origin", "started from", _origin),
)

NEWEST: Final = 20


@click.command("show")
@run_argument("name", "RUN[@WHICH]")
@with_output
@with_store
def show(store: Store, out: Output, name: str) -> None:
    """Show a run, or one of its checkpoints.

    RUN shows the run as a whole, a deleted one too; RUN@3, RUN@best, RUN@-1 and RUN@step:17
    show a checkpoint. Neither reads a state.
    """

    def look(run: Run, point: dict[str, Any] | None) -> None:
        if point is None:
            out.record(shapes.summary(run.summary()), RUN)
        else:
            out.record(shapes.checkpoint(run.find(**point)), CHECKPOINT)

    names.either(store, name, look)


def _moment(_context: click.Context, _option: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else moment(value, now=SystemClock().now())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("history")
@run_argument("run", "RUN")
@click.option(
    "--since",
    metavar="TIME",
    callback=_moment,
    help="Saved at or after this time: 2026-01-31, or 24h for a day ago.",
)
@click.option("--until", metavar="TIME", callback=_moment, help="Saved before this time.")
@click.option("--step", type=click.IntRange(min=0), help="With this step.")
@click.option("--tag", help="With this tag.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=NEWEST,
    show_default=True,
    help="At most so many of the newest; 0 for all.",
)
@with_output
@with_store
def history(store: Store, out: Output, run: str, *, limit: int, **wanted: Any) -> None:
    """List the checkpoints of a run, newest first.

    Reads only those parts of a long history that may hold what is asked for.
    """

    def look(found: Run) -> None:
        rows = found.history(**wanted, limit=limit + 1 if limit else None)
        if not rows:
            found.summary()  # raises when it is the run that is missing
        shown = rows[:limit] if limit else rows
        out.rows(map(shapes.checkpoint, shown), HISTORY)
        if len(shown) < len(rows):
            remark(f"these are the newest {limit}; --limit 0 lists all")

    names.whole(store, run, look)
