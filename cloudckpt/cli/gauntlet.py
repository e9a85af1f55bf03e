"""``cloudckpt gauntlet``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cloudckpt.cli.failures import NO
from cloudckpt.cli.frame import Seconds, location, with_output
from cloudckpt.cli.screen import Column, Output, remark
from cloudckpt.cli.words import shortened
from cloudckpt.crashtest.aims import AtCall
from cloudckpt.crashtest.gauntlet import KILLS, RESULTS, Options, trial
from cloudckpt.crashtest.points import parse_point
from cloudckpt.crashtest.shapes import kill_row, report_document, sentences
from cloudckpt.errors import InvalidInputError

COLUMNS = (
    Column("life", "life", right=True),
    Column("kill", "kill", right=True),
    Column("line", "killed at"),
    Column("source", "before or in", show=lambda text: shortened(text or "", 32)),
    Column("call", "store", style="dim"),
    Column("redone", "redone", right=True),
    Column("doubled", "doubled", right=True, show=lambda count: str(count or ""), style="red"),
    Column("lost_ms", "ms lost", right=True),
)


def _points(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[AtCall, ...]:
    found = []
    for text in values:
        try:
            point = parse_point(text)
        except InvalidInputError as error:
            raise click.BadParameter(str(error)) from error
        if point is None:
            raise click.BadParameter("a call is written as 7:before or 7:after")
        found.append(AtCall(*point))
    return tuple(found)


@click.command("gauntlet", context_settings={"ignore_unknown_options": True})
@click.argument("agent", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
@click.option("--kills", default=KILLS, show_default=True, help="How many kills fall at random.")
@click.option("--seed", type=int, help="Decides where they fall. [default: a new one]")
@click.option("--every-call", is_flag=True, help="Also die before and after each storage call.")
@click.option(
    "--call", "calls", multiple=True, metavar="N:WHEN", callback=_points, help="Also die at this one."
)
@click.option(
    "--result",
    type=click.Choice(RESULTS),
    default="line",
    show_default=True,
    help="What is compared of stdout.",
)
@click.option("--result-file", metavar="NAME", help="Compare this file of the agent's folder in its place.")
@click.option(
    "--bring",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Copy this into each process's folder, as an image has it.",
)
@click.option("--keep-home", is_flag=True, help="Leave HOME as it is.")
@click.option("--redo", default=1, show_default=True, help="How many steps a kill may cost.")
@click.option("--allow-doubled", is_flag=True, help="Effects may happen again in a step that is done again.")
@click.option(
    "--timeout", type=Seconds(over=True), default=300.0, show_default=True, help="Seconds that a process has."
)
@location
@with_output
def command(
    agent: tuple[str, ...],
    out: Output,
    store: str | None,
    engine: str | None,
    storage_options: Mapping[str, Any] | None,
    **options: Any,
) -> None:
    """Kill an agent of yours at random moments, and see whether it recovers.

    COMMAND runs the agent, after "--". It is run twice undisturbed, then again and again, killed
    with SIGKILL and resumed in a new process on an empty disk. Result, saved states and effects
    (cloudckpt.crashtest.effect) must equal those of the undisturbed runs. Exit code 1 if not; each
    problem comes with the command that replays it.

    It finds its store in CLOUDCKPT_URL. Each life has one of its own, below --store or in
    a temporary folder.
    """
    chosen = Options(url=store, engine=engine, storage_options=storage_options, **options)
    with trial(agent, chosen) as tried:
        with out.progress(shlex.join(agent)[:40], lambda: tried.total) as advance:
            rows = []
            for life in tried.lives():
                rows += [kill_row(kill) for kill in life.kills]
                advance(len(life.kills))
        report = tried.report
    if out.as_json:
        out.document(report_document(report))
    else:
        out.rows(rows, COLUMNS)
        for line in sentences(report):
            remark(line)
    sys.exit(0 if report.ok else NO)
