"""``cloudckpt size``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import click

import cloudckpt
from cloudckpt.cli import names, shapes
from cloudckpt.cli.frame import run_argument, with_output, with_store
from cloudckpt.cli.screen import Column, Document, Output, remark
from cloudckpt.cli.states import state_of
from cloudckpt.cli.words import shortened, size, when
from cloudckpt.model import CheckpointInfo
from cloudckpt.run import Run
from cloudckpt.store import Store

MOST: Final = 20

PARTS: Final = (
    Column("share", "share", lambda share: f"{share:.1%}", right=True),
    Column("encoded", "encoded", size, right=True),
    Column("compressed", "compressed", size, right=True),
    Column("path", "part", lambda path: shortened(path, 80), style="bold"),
    Column("type", "type"),
)


def _grown(count: int | None) -> str:
    return "" if count is None else f"{'-' if count < 0 else '+'}{size(abs(count))}"


GROWTH: Final = (
    Column("seq", "seq", right=True, style="bold"),
    Column("step", "step", right=True),
    Column("time", "saved", when),
    Column("size", "stored", size, right=True),
    Column("encoded_size", "encoded", size, right=True),
    Column("grown", "grown", _grown, right=True),
)


@click.command("size")
@run_argument("name", "RUN[@WHICH]")
@click.option("--history", "over_time", is_flag=True, help="The sizes of the run's checkpoints instead.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=MOST,
    show_default=True,
    help="At most so many parts or checkpoints; 0 for all.",
)
@with_output
@with_store
def size_command(store: Store, out: Output, name: str, *, over_time: bool, limit: int) -> None:
    """Show what takes the bytes of a state.

    `encoded` is before compression; `compressed` is what a part takes when it is stored by itself.
    """
    if over_time:
        rows = names.whole(store, name, lambda run: _history(run, limit))
        out.rows(_growth(rows, limit or len(rows)), GROWTH)
        return
    state = names.at(store, name, state_of)
    parts, left = cloudckpt.measure(state).fattest(limit or 1 << 62)
    out.rows(map(_part, parts), PARTS)
    if left:
        remark(f"and {left} smaller parts; --limit 0 lists all")


def _history(run: Run, limit: int) -> Sequence[CheckpointInfo]:
    rows = run.history(limit=limit + 1 if limit else None)
    if not rows:
        run.summary()  # raises when it is the run that is missing
    return rows


def _part(part: cloudckpt.Size) -> dict[str, Any]:
    return {
        "path": part.path,
        "type": part.type,
        "encoded": part.encoded,
        "compressed": part.compressed,
        "share": round(part.share, 6),
    }


def _growth(rows: Sequence[CheckpointInfo], limit: int) -> Iterator[Document]:
    for info, older in list(zip_longest(rows, rows[1:]))[:limit]:
        grown = None if older is None else info.encoded_size - older.encoded_size
        row = shapes.checkpoint(info)
        yield {**{each.key: row[each.key] for each in GROWTH if each.key in row}, "grown": grown}
