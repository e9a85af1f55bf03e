"""Where a command's words go: a terminal, a pipe, or a program.

Owns: the three forms of output. Invariants: a pipe gets one line a row, tab-separated,
with the values of `--json` and neither titles nor colours; `--json` prints one document,
or for a list one document a line; what is not the answer (progress, questions, remarks)
goes to stderr. rich is imported for a terminal only, and its absence is no error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, TextIO, TypeAlias

import click

from cloudckpt.cli.words import as_json, shown

Document: TypeAlias = Mapping[str, Any]

MOST_COLOURED: Final = 200_000
"""Characters of a document from which on colours take longer than reading it."""

NOTHING: Final = "-"
"""What a pipe gets for a value that is not there."""


def flat(value: Any) -> str:
    """Return a JSON value as one field of a line in a pipe."""
    if value is None or value in ("", [], {}):
        return NOTHING
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(map(shown, value))
    return as_json(value)


def friendly(value: Any) -> str:
    """Return a JSON value as people read it where nothing better is known."""
    return "" if flat(value) == NOTHING else flat(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, or a line of a record.

    Attributes:
        key: The field of the document.
        title: What stands above it.
        show: The field's value for people.
        right: Whether it is a number, set to the right.
        style: Its colour.
    """

    key: str
    title: str
    show: Callable[[Any], str] = friendly
    right: bool = False
    style: str = ""


def is_pretty(stream: TextIO) -> bool:
    """Whether people look at a stream, and rich is there to make it pretty."""
    try:
        return stream.isatty() and find_spec("rich") is not None
    except ValueError:  # somebody keeps it from being imported
        return False


class Output:
    """One command's way to answer.

    Args:
        as_json: Whether a program asks.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.pretty = not as_json and is_pretty(sys.stdout)

    def rows(self, rows: Iterable[Document], columns: Sequence[Column]) -> None:
        """Print a list."""
        if self.pretty:
            _table(rows, columns)
            return
        for row in rows:
            self._line(row, columns)

    def _line(self, row: Document, columns: Sequence[Column]) -> None:
        click.echo(as_json(row) if self.as_json else "\t".join(flat(row[each.key]) for each in columns))

    def row(self, row: Document, columns: Sequence[Column]) -> None:
        """Print one row of a list that has no end, also in a terminal."""
        self._line(row, columns)
        sys.stdout.flush()

    def record(self, document: Document, columns: Sequence[Column]) -> None:
        """Print what there is to know of one thing, a line each."""
        if self.as_json:
            self.document(document)
        elif self.pretty:
            from rich.console import Console

            Console().print(grid(document, columns))
        else:
            for each in columns:
                click.echo(f"{each.key}\t{flat(document[each.key])}")

    def document(self, document: Any) -> None:
        """Print one JSON document."""
        text = as_json(document, indent=2)
        if self.pretty and len(text) <= MOST_COLOURED:
            from rich.console import Console
            from rich.json import JSON

            Console().print(JSON(text, indent=2), soft_wrap=True)
        else:
            click.echo(text)

    @contextmanager
    def progress(self, label: str, total: Callable[[], int] | None = None) -> Iterator[Callable[[int], None]]:
        """Show how far something is, with its rate and an estimate: on stderr, in a terminal only.

        Where lines go to the same terminal nothing is shown, since they would be mixed; so let
        the rows of a table end it before the table is printed.

        Args:
            label: What it is.
            total: Says how much there is to do; called only where it is shown.

        Yields:
            A function that is told how much more was done.
        """
        if not is_pretty(sys.stderr) or (is_pretty(sys.stdout) and not self.pretty):
            yield lambda _: None
            return
        from rich import progress as parts
        from rich.console import Console
        from rich.text import Text

        class Rate(parts.ProgressColumn):
            def render(self, task: parts.Task) -> Text:
                return Text(f"{task.speed:,.1f}/s" if task.speed else "")

        with parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(),
            parts.MofNCompleteColumn(),
            Rate(),
            parts.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as bar:
            task = bar.add_task(label, total=total and total())
            yield lambda more: bar.advance(task, more)

    def done(self, sentence: str, document: Document) -> None:
        """Say what was done."""
        if self.as_json:
            self.document(document)
        else:
            click.echo(shown(sentence))


def remark(text: str) -> None:
    """Say what is not the answer."""
    click.echo(shown(text), err=True)


def _table(rows: Iterable[Document], columns: Sequence[Column]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for each in columns:
        table.add_column(
            each.title, justify="right" if each.right else "left", style=each.style, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(each.show(row[each.key])) for each in columns))
    if table.row_count:
        Console().print(table)


def grid(document: Document, columns: Sequence[Column]) -> Any:
    """Return what there is to know of one thing, for rich."""
    from rich.table import Table
    from rich.text import Text

    found = Table.grid("", "", padding=(0, 2))
    for each in columns:
        text = each.show(document[each.key])
        if text:
            found.add_row(Text(each.title, "dim"), Text(text, each.style))
    return found
