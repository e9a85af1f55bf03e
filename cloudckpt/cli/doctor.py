"""``cloudckpt doctor``: the checks of `cloudckpt.doctor` on a screen, in a pipe, or as JSON.

Invariant: the words are the same in all three. rich is imported for a terminal
only, and its absence is no error.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click

import cloudckpt
from cloudckpt.cli.frame import location
from cloudckpt.clock import SystemClock
from cloudckpt.doctor import Report, examine
from cloudckpt.runner import make_runner
from cloudckpt.storage.engines import engine_for
from cloudckpt.storage.findings import Finding, Level

WIDTH = 100
STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "bold red", Level.UNKNOWN: "dim"}
BAR = 20
"""Characters of a histogram's longest bar."""


@click.command("doctor")
@click.argument("url", required=False)
@location
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    url: str | None,
    store: str | None,
    engine: str | None,
    storage_options: Mapping[str, Any] | None,
    as_json: bool,  # noqa: FBT001 - click's way
) -> None:
    """Check a store: rights, conditional writes, clock, pace, settings.

    URL is the store, such as s3://bucket/prefix. A few small keys are written under
    probe/ and deleted again; nothing else is touched.

    Exit code 0 when no fault was found, 1 when one was, 2 when the store could not
    be opened at all.
    """
    named = url or store
    if not named:
        raise click.UsageError("name a store: an argument, --store, or CLOUDCKPT_URL")
    report = _visited(named, storage_options, engine)
    if as_json:
        click.echo(json.dumps(shape(report), indent=2))
    elif not (sys.stdout.isatty() and _rich(report)):
        click.echo("\n".join(lines(report)))
    sys.exit(1 if report.count(Level.FAULT) else 0)


def _visited(url: str, options: Mapping[str, Any] | None, engine: str | None) -> Report:
    storage = engine_for(url, storage_options=options, engine=engine)()
    runner = make_runner(blocking=storage.blocking, clock=SystemClock())
    try:
        return runner.call(examine(storage, runner.effects))
    finally:
        runner.call(storage.close())


def shape(report: Report) -> dict[str, Any]:
    """Return the report as JSON values; docs/cli.md promises this shape."""
    return {
        "version": cloudckpt.__version__,
        "url": report.url,
        "engine": report.engine,
        "ok": not report.count(Level.FAULT),
        "counts": {level.value: report.count(level) for level in Level},
        "left": list(report.left),
        "findings": [
            {
                "check": finding.check,
                "level": finding.level.value,
                "found": finding.found,
                "do": finding.do,
                "facts": dict(finding.facts),
            }
            for finding in report.findings
        ],
    }


def lines(report: Report) -> list[str]:
    """Return the report as text."""
    shown = []
    indent = " " * 23
    for finding in report.findings:
        head = f"{finding.level.value:<8} {finding.check:<13} "
        shown += textwrap.wrap(
            head + finding.found,
            WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        shown += [f"{indent}{bar}" for bar in bars(finding)]
        if finding.do:
            shown += textwrap.wrap(
                f"-> {finding.do}",
                WIDTH,
                initial_indent=indent,
                subsequent_indent=f"{indent}   ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return [*shown, "", summary(report)]


def bars(finding: Finding) -> list[str]:
    """Return the lines of a finding's histogram, if it has one."""
    rows: Sequence[Mapping[str, Any]] = finding.facts.get("histogram", ())
    most = max((row["count"] for row in rows), default=0)
    shown = []
    for row in rows:
        bar = "#" * round(BAR * row["count"] / most)
        shown.append(f"{row['from_ms']:>7g} to {row['to_ms']:>7g} ms {bar:<{BAR}} {row['count']}")
    return shown


def summary(report: Report) -> str:
    """Return the last line."""
    counts = ", ".join(f"{report.count(level)} {level.value}" for level in Level)
    left = f"; left behind, since they can't be deleted: {', '.join(report.left)}" if report.left else ""
    return f"{report.url}: {counts}{left}"


def _rich(report: Report) -> bool:
    """Print the report as a table; return False where rich is not installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    table = Table(
        "check", "", "found", "what to do", title=f"cloudckpt doctor: {report.url}", title_justify="left"
    )
    for finding in report.findings:
        style = STYLES[finding.level]
        table.add_row(
            finding.check,
            Text(finding.level.value, style),
            Text("\n".join([finding.found, *bars(finding)])),
            Text(finding.do),
        )
    console = Console()
    console.print(table)
    console.print(Text(summary(report), "bold red" if report.count(Level.FAULT) else "bold"))
    return True
