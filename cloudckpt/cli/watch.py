"""``cloudckpt watch``: a run while it works.

Owns: the polling, one request an interval, since the storage contract has no read that
waits for a change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import click

from cloudckpt.cli import names, shapes
from cloudckpt.cli.frame import Seconds, run_argument, with_output, with_store
from cloudckpt.cli.screen import Column, Document, Output
from cloudckpt.cli.words import iso, size, when
from cloudckpt.clock import SystemClock
from cloudckpt.progress import clock_time, left, rate_of
from cloudckpt.run import Run
from cloudckpt.store import Store

FINISHED: Final = ("done", "failed", "deleted")


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f} a minute"


def _left(seconds: float | None) -> str:
    return "" if seconds is None else clock_time(seconds)


COLUMNS: Final = (
    Column("time", "looked", when),
    Column("run", "run", style="bold"),
    Column("status", "status", style="green"),
    Column("seq", "seq"),
    Column("step", "step"),
    Column("saved", "saved", when),
    Column("size", "stored", size),
    Column("checkpoints", "checkpoints"),
    Column("rate", "rate", _rate),
    Column("epoch", "epoch"),
    Column("host", "writer"),
    Column("max_steps", "of steps"),
    Column("remaining", "left", _left),
)
_NEWS: Final = ("status", "seq", "epoch")


@click.command("watch")
@run_argument("run", "RUN")
@click.option(
    "--interval",
    type=Seconds(least=0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two looks; each is one request.",
)
@click.option("--once", is_flag=True, help="Look once.")
@with_output
@with_store
def watch(store: Store, out: Output, run: str, *, interval: float, once: bool) -> None:
    """Follow a run while it works.

    Until it is done, failed or deleted, or Ctrl-C. A pipe gets a line whenever something
    was saved or the writer changed.
    """
    names.whole(store, run, lambda found: _follow(found, out, interval, once=once))


def _follow(run: Run, out: Output, interval: float, *, once: bool) -> None:
    looks = _looks(run, interval, once=once)
    try:
        if out.pretty:
            _live(looks)
            return
        last: list[Any] = []
        for row in looks:
            news = [row[key] for key in _NEWS]
            if news != last:
                out.row(row, COLUMNS)
                last = news
    except KeyboardInterrupt:  # how a watch ends, and no failure
        return


def _looks(run: Run, interval: float, *, once: bool) -> Iterator[Document]:
    begun: tuple[float, int] | None = None
    first: tuple[float, int] | None = None  # the same by steps
    while True:
        told = shapes.summary(run.summary())
        now = time.monotonic()
        begun = begun or (now, told["seq"])
        elapsed = now - begun[0]
        step, most = told["step"], told["max_steps"]
        first = first or (None if step is None else (now, step))
        rate = None if first is None or step is None else rate_of(first, (now, step))
        yield {
            "time": iso(SystemClock().now()),
            **{key: told[key] for key in ("run", "status", "seq", "step", "saved", "checkpoints", "epoch")},
            "size": told["newest"] and told["newest"]["size"],
            "rate": round((told["seq"] - begun[1]) * 60 / elapsed, 2) if elapsed else None,
            "host": told["writer"]["host"],
            "max_steps": most,
            "remaining": None if step is None or (left_ := left(step, most, rate)) is None else round(left_),
        }
        if once or told["status"] in FINISHED:
            return
        time.sleep(interval)


def _live(looks: Iterator[Document]) -> None:
    from rich.live import Live

    from cloudckpt.cli.screen import grid

    with Live(auto_refresh=False) as live:
        for row in looks:
            live.update(grid(row, COLUMNS), refresh=True)
