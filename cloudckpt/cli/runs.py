"""``cloudckpt runs``."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import click

from cloudckpt import fleet
from cloudckpt.cli import shapes
from cloudckpt.cli.failures import NO, complain
from cloudckpt.cli.frame import none_there, with_output, with_store
from cloudckpt.cli.screen import Column, Document, Output
from cloudckpt.cli.words import rules_text, size, when
from cloudckpt.errors import CloudckptError
from cloudckpt.model import RunInfo
from cloudckpt.store import Store
from cloudckpt.summary import RunSummary


def _host(writer: Any) -> str:
    return f"{writer['host']} (pid {writer['pid']})" if writer else ""


def _by(hold: Any) -> str:
    return f"{hold['by']}: {hold['why']}" if hold else ""


COLUMNS: Final = {
    each.key: each
    for each in (
        Column("run", "run", style="bold"),
        Column("modified", "modified", when),
        Column("manifest_size", "manifest", size, right=True),
        Column("status", "status"),
        Column("seq", "seq", right=True),
        Column("step", "step", right=True),
        Column("saved", "saved", when),
        Column("checkpoints", "checkpoints", right=True),
        Column("oldest", "oldest", right=True),
        Column("stored", "stored", size, right=True),
        Column("epoch", "epoch", right=True),
        Column("writer", "writer", _host),
        Column("hold", "hold", _by),
        Column("held", "held", right=True),
        Column("retention", "retention", lambda rules: rules_text(rules or {})),
        Column("notes", "notes"),
    )
}

SHORT: Final = ("run", "modified", "manifest_size")
LONG: Final = ("run", "status", "seq", "step", "saved", "checkpoints", "stored", "writer")


def _chosen(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise click.BadParameter(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    return names


@click.command("runs")
@click.argument("prefix", default="")
@click.option(
    "--long", "-l", is_flag=True, help="Also what takes one request a run: status, seq, size, writer."
)
@click.option("--columns", metavar="NAMES", callback=_chosen, help="These columns, separated by commas.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many runs.")
@with_output
@with_store
def runs(
    store: Store,
    out: Output,
    prefix: str,
    *,
    long: bool,
    columns: tuple[str, ...] | None,
    limit: int | None,
) -> None:
    """List the runs of a store.

    PREFIX is how their ids begin. One request per 1,000 runs; one more for each run where a
    column asks for more than run, modified and manifest_size.
    """
    names = columns or (LONG if long else SHORT)
    limit = None if limit is None else min(limit, sys.maxsize)
    seen = 0

    def counted() -> Iterator[RunInfo]:
        nonlocal seen
        for info in islice(store.runs(prefix), limit):
            seen += 1
            yield info

    found = counted()
    if set(names) <= set(SHORT):
        rows: Iterable[Document] = map(shapes.listed, found)
        out.rows(rows, [COLUMNS[name] for name in names])
        if not seen:
            none_there(store, prefix)
        return
    damaged: list[CloudckptError] = []

    def total() -> int:
        return sum(1 for _ in islice(store.runs(prefix), limit))

    out.rows(_told(store, out, found, damaged, total), [COLUMNS[name] for name in names])
    if not seen:
        none_there(store, prefix)
    for error in damaged:
        complain(str(error))
    if damaged:
        raise click.exceptions.Exit(NO)


def _told(
    store: Store,
    out: Output,
    found: Iterable[RunInfo],
    damaged: list[CloudckptError],
    total: Callable[[], int],
) -> Iterator[Document]:
    under_way: deque[RunInfo] = deque()

    def ids() -> Iterator[str]:
        for info in found:
            under_way.append(info)
            yield info.id

    with out.progress("runs", total) as advance:
        for outcome in fleet.each(store, _summary, ids()):
            advance(1)
            row = shapes.listed(under_way.popleft())
            if outcome.value is not None:
                yield row | shapes.summary(outcome.value)
            elif outcome.error is not None:
                damaged.append(outcome.error)
                yield dict.fromkeys(COLUMNS) | row | {"status": "damaged", "error": str(outcome.error)}


def _summary(store: Store, run: str) -> RunSummary:
    return store.run(run).summary()
