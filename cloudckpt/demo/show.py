"""What a person sees of the demo, as it happens.

Owns: the words and the table. Invariant: they are the same on a terminal, where
rich colours them and adds a bar, and in a pipe, where nothing moves; rich is
imported only for a terminal, and its absence is no error.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cloudckpt.demo import survey
from cloudckpt.demo.gauntlet import KILLS, Kill, Outcome, Watcher, run_demo

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

INTRODUCTION = """\
The job: a report on {modules} modules of the Python standard library, one a step.
The model is scripted: it asks for real tools and sleeps in place of a model's time.
Store: {url}
Run: {run}, killed {kills} times with SIGKILL (seed {seed}). Each agent is a new process
on an empty disk of its own; only the store passes from one to the next."""

HEADERS = ("kill", "worker", "at step", "killed where", "resumed by", "at step", "steps redone")


class Screen(Protocol):
    """Where lines go."""

    def say(self, text: str, style: str = "") -> None:
        """Show a line."""
        ...

    def advance(self, steps: int) -> None:
        """Show that so many steps are saved."""
        ...

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was. Safe to call twice."""
        ...


class PlainScreen:
    """Lines on stdout, for pipes and logs."""

    def say(self, text: str, style: str = "") -> None:  # noqa: ARG002 - a pipe has no colours
        """Print a line at once."""
        print(text, flush=True)

    def advance(self, steps: int) -> None:
        """Show nothing: a line a step would hide the rest."""

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print columns."""
        widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
        for row in (headers, ["-" * width for width in widths], *rows):
            print(
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(),
                flush=True,
            )

    def close(self) -> None:
        """Nothing to leave."""


class RichScreen:
    """A terminal: colours, and a bar of the steps at the bottom."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("steps saved"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar: Progress = Progress(*columns, transient=True)
        self._task: TaskID | None = None

    def begin(self, total: int) -> None:
        """Show the bar."""
        self._bar.start()
        self._task = self._bar.add_task("", total=total)

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, style=style, markup=False, highlight=False)

    def advance(self, steps: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._bar.update(self._task, completed=steps)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table."""
        from rich.table import Table

        table = Table(*headers, title="What the kills cost")
        for row in rows:
            table.add_row(*row)
        self._bar.console.print(table)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class Teller(Watcher):
    """Tells on a screen what the gauntlet does."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begun(self, url: str, run: str, *, modules: int, kills: int, seed: int) -> None:
        """Say what will be done."""
        self._screen.say(INTRODUCTION.format(url=url, run=run, modules=modules, kills=kills, seed=seed))
        self._screen.say("\nFirst without kills, for the report to compare with:", "bold")
        if isinstance(self._screen, RichScreen):
            self._screen.begin(modules + 2)

    def undisturbed(self, steps: int, seconds: float) -> None:
        """Say how the undisturbed run went."""
        self._screen.say(f"  {steps} steps in {seconds:.1f} s")
        self._screen.say("\nNow with kills:", "bold")
        self._screen.advance(0)

    def loaded(self, worker: str, pid: int, step: int) -> None:
        """Say who works from where on."""
        self._screen.say(
            f"  {worker} (pid {pid}) " + (f"resumes at step {step}" if step else "begins at step 0")
        )

    def saved(self, worker: str, steps: int) -> None:  # noqa: ARG002 - the bar is the run's, not a worker's
        """Move the bar."""
        self._screen.advance(steps)

    def killed(self, kill: Kill) -> None:
        """Say where a kill fell."""
        self._screen.say(f"  kill {kill.number}: {kill.worker} at step {kill.step}, {kill.where}", "red")

    def resumed(self, kill: Kill) -> None:
        """Say what a kill cost."""
        cost = {0: "nothing is lost: the save had landed", 1: "one step is done again"}
        if kill.redone in cost:
            self._screen.say(f"    {cost[kill.redone]}", "green")
        else:
            self._screen.say(
                f"    {kill.redone} steps were begun after the last one that is saved", "bold red"
            )

    def finished(self, outcome: Outcome) -> None:
        """Show the table and the verdict."""
        self._screen.say("")
        self._screen.table(HEADERS, [_row(kill) for kill in outcome.kills])
        made, redone = len(outcome.kills), sum(kill.redone or 0 for kill in outcome.kills)
        self._screen.say(
            f"\n{made} of {outcome.wanted} kills, {redone} of {outcome.steps} steps done again, "
            f"{outcome.seconds:.1f} s against {outcome.plain_seconds:.1f} s without kills"
        )
        if outcome.kept:
            self._screen.say(f"The runs stay in {outcome.url}: {outcome.run} and {outcome.run}-undisturbed")
        verdict = "PASSED" if outcome.ok else "FAILED"
        equal = "equal" if outcome.equal else "NOT equal"
        size = len(outcome.report.encode())
        self._screen.say(
            f"{verdict}: the reports, of {size:,} bytes, are {equal}",
            "bold green" if outcome.ok else "bold red",
        )

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._screen.close()


class Silent(Watcher):
    """Tells nothing until the end, and then all of it as JSON."""

    def close(self) -> None:
        """Nothing to leave."""

    def finished(self, outcome: Outcome) -> None:
        """Print the outcome as one JSON document."""
        print(json.dumps(as_json(outcome), indent=2))


def run_and_show(
    url: str | None = None,
    *,
    kills: int = KILLS,
    seed: int | None = None,
    modules: int = survey.MODULES,
    as_json: bool = False,
) -> bool:
    """Run the demo (see `run_demo`) and show it; return whether it passed."""
    teller = choose_teller(as_json=as_json)
    try:
        outcome = run_demo(teller, url=url, kills=kills, seed=seed, modules=modules)
    finally:
        teller.close()
    teller.finished(outcome)
    return outcome.ok


def choose_teller(*, as_json: bool) -> Teller | Silent:
    """Return what fits where the output goes."""
    if as_json:
        return Silent()
    if sys.stdout.isatty():
        try:
            return Teller(RichScreen())
        except ModuleNotFoundError:  # rich comes with the extra `cli`
            return Teller(PlainScreen())
    return Teller(PlainScreen())


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as plain values, without the reports' text."""
    shown = dataclasses.asdict(outcome)
    del shown["report"], shown["expected"]
    return {**shown, "report_bytes": len(outcome.report.encode()), "equal": outcome.equal, "ok": outcome.ok}


def _row(kill: Kill) -> list[str]:
    return [
        str(cell) for cell in (kill.number, kill.worker, kill.step, kill.where, kill.by, kill.at, kill.redone)
    ]
