"""A gauntlet's report as JSON, as rows of a table, and as text. Pure.

Owns: the names that docs/gauntlet.md promises to programs, and the words for people.
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from cloudckpt.crashtest.aims import near
from cloudckpt.crashtest.gauntlet import Report
from cloudckpt.crashtest.verdict import Kill


def kill_row(kill: Kill) -> dict[str, Any]:
    """Return a kill as a row."""
    return {
        "life": kill.life,
        "kill": kill.number,
        "line": kill.line,
        "source": kill.source,
        "call": kill.call,
        "redone": kill.redone,
        "doubled": kill.doubled,
        "lost_ms": round(kill.lost * 1000, 1),
        "aim": kill.aim,
    }


def report_document(report: Report) -> dict[str, Any]:
    """Return all of a report."""
    return {
        "ok": report.ok,
        "command": list(report.command),
        "seed": report.seed,
        "url": report.url,
        "undisturbed": {
            "seconds": round(report.seconds, 3),
            "saves": report.saves,
            "calls": report.calls,
            "lines": len(report.lines),
        },
        "wanted": report.wanted,
        "fallen": report.fallen,
        "lives": report.lives,
        "kills": [kill_row(kill) for kill in report.kills],
        "problems": [
            {**dataclasses.asdict(problem), "command": replay(report, problem.replay)}
            for problem in report.problems
        ],
        "notes": list(report.notes),
        "summary": summary(report),
    }


def summary(report: Report) -> dict[str, int | float]:
    """Return what all kills cost together."""
    late = {f"{near(line.file)}:{line.number}" for line in report.lines if line.late}
    return {
        "kills": len(report.kills),
        "lines_hit": len(late & report.covered),
        "lines": len(late),
        "redone": sum(kill.redone for kill in report.kills),
        "doubled": sum(kill.doubled for kill in report.kills),
        "lost_ms": round(sum(kill.lost for kill in report.kills) * 1000, 1),
        "problems": len(report.problems),
    }


def replay(report: Report, options: str) -> str:
    """Return the command that lives a life again."""
    return f"cloudckpt gauntlet {options} -- {shlex.join(report.command)}"


def sentences(report: Report) -> list[str]:
    """Return what there is to say besides the kills, the verdict last."""
    sums = summary(report)
    said = [f"note: {note}" for note in report.notes]
    for problem in report.problems:
        said += [
            f"life {problem.life}: {problem.kind}: {problem.text}",
            f"  again: {replay(report, problem.replay)}",
        ]
    if report.fallen < report.wanted:
        said.append(
            f"only {report.fallen} of {report.wanted} kills could be made: the agent ended before they fell"
        )
    if report.url is not None:
        said.append(f"what the failed lives saved is below {report.url}, by number of life")
    said.append(
        f"{_counted(len(report.kills), 'kill')} in {_counted(report.lives, 'life', 'lives')} (seed "
        f"{report.seed}), at {sums['lines_hit']} of the agent's {sums['lines']} lines; "
        f"{_counted(int(sums['redone']), 'step')} redone, {_counted(int(sums['doubled']), 'effect')} "
        f"doubled, {sums['lost_ms'] / 1000:.1f} s of work lost"
    )
    if report.ok:
        said.append("PASSED: each life came to what an undisturbed one comes to")
    else:
        said.append(f"FAILED: {_counted(len(report.problems), 'problem')}")
    return said


def text(report: Report) -> str:
    """Return a whole report as plain text."""
    rows = [
        f"life {kill.life}, kill {kill.number}: {kill.line or 'at a moment'} {kill.source or ''}"
        f"{f' [{kill.call}]' if kill.call else ''}: {kill.redone} redone, {kill.doubled} doubled"
        for kill in report.kills
    ]
    return "\n".join([*rows, *sentences(report)])


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
