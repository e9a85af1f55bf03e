"""The group of all commands. A command's module is imported when it is used.

Owns: the table of the commands. Invariant: `cloudckpt --help` imports none of them, so
what it says of each is in the table; a test holds it to what the command says itself.

A new command is a row here, a function in a module of its topic, a section in docs/cli.md
whose output is written by ``python -m tests.docs.console``, and a call in
tests/e2e/test_cli_stores.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import click

import cloudckpt
from cloudckpt.cli import failures


class Row(NamedTuple):
    """Where a command is, as ``module:name`` in this package, and the first line of its help."""

    place: str
    help: str


TOPICS: Final[dict[str, dict[str, Row]]] = {
    "Look": {
        "runs": Row("runs:runs", "List the runs of a store."),
        "show": Row("show:show", "Show a run, or one of its checkpoints."),
        "history": Row("show:history", "List the checkpoints of a run, newest first."),
        "cat": Row("states:cat", "Print a state, or a part of it."),
        "diff": Row("states:diff", "Compare the states of two checkpoints, by path."),
        "size": Row("size:size_command", "Show what takes the bytes of a state."),
        "watch": Row("watch:watch", "Follow a run while it works."),
    },
    "Wait and answer": {
        "waiting": Row("waiting:waiting", "List what runs wait for."),
        "answer": Row("waiting:answer", "Answer what a run waits for."),
        "actions": Row("waiting:actions", "List what a run has done once, newest first."),
    },
    "Work": {
        "submit": Row("work:submit", "Begin a run for a worker to claim."),
        "offer": Row("work:offer", "Let workers claim runs that are there."),
        "work": Row("work:work", "Work on the runs of a store, one after the other."),
    },
    "Say something": {
        "tag": Row("marks:tag", "Give a checkpoint a name; it no longer expires."),
        "annotate": Row("marks:annotate", "Write notes beside a checkpoint."),
        "hold": Row("marks:hold", "Keep a run or a checkpoint from expiry and deletion."),
        "release": Row("marks:release", "Take a hold off again."),
    },
    "Go back": {
        "rollback": Row("moves:rollback", "Make an older state the newest, as a new checkpoint."),
        "fork": Row("moves:fork", "Begin a new run from a checkpoint."),
        "restore": Row("erasure:restore", "Ask for a checkpoint in a cold tier."),
    },
    "Clean up": {
        "retain": Row("rules:retain", "Set which checkpoints are kept, and drop the others."),
        "collect": Row("removal:collect", "Remove objects that nothing refers to."),
        "delete": Row("removal:delete", "Delete runs."),
        "forget": Row("erasure:forget", "Erase a run for good, with a receipt."),
    },
    "Prove and archive": {
        "verify": Row("checks:verify", "Find what is damaged or missing."),
        "repair": Row("checks:repair", "Make a damaged run go on."),
        "export": Row("archives:export", "Write runs into an archive."),
        "import": Row("archives:import_", "Bring the runs of an archive into the store."),
        "copy": Row("copies:copy", "Copy runs into another store."),
    },
    "Try and check": {
        "gauntlet": Row(
            "gauntlet:command", "Kill an agent of yours at random moments, and see whether it recovers."
        ),
        "demo": Row("demo:command", "Kill an agent at random moments, resume it elsewhere, compare."),
        "doctor": Row("doctor:command", "Check a store: rights, conditional writes, clock, pace, settings."),
        "completion": Row("completion:completion", "Print a script that completes commands in a shell."),
    },
}
"""By topic, in the order of `--help`: each command's name, place and help."""

ALIASES: Final = {"gc": "collect"}

COMMANDS: Final = {name: row for topic in TOPICS.values() for name, row in topic.items()}


def load(name: str) -> click.Command:
    """Import a command."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    command: click.Command = getattr(importlib.import_module(f"cloudckpt.cli.{module}"), attribute)
    return command


class LazyGroup(click.Group):
    """A group that knows its commands by name only, and how they fail."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """Import the command."""
        name = ALIASES.get(cmd_name, cmd_name)
        return load(name) if name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one where there is none of that name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"no such command {args[0]!r}{_near(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands by topic."""
        for topic, rows in TOPICS.items():
            with formatter.section(topic):
                formatter.write_dl([(name, row.help) for name, row in _shown(rows)], col_max=12)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of this package becomes a line and an exit code."""
        with failures.told():
            return super().invoke(ctx)


def _shown(rows: dict[str, Row]) -> Iterator[tuple[str, Row]]:
    for name, row in rows.items():
        also = ", ".join([name, *(alias for alias, meant in ALIASES.items() if meant == name)])
        yield also, row


def _near(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
    return f"; did you mean {near[0]!r}?" if near else "; see cloudckpt --help"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cloudckpt.__version__, prog_name="cloudckpt")
def cli() -> None:
    """Checkpoints for long-running agents: a crash costs at most the last step.

    A store is a URL: s3://bucket/prefix, file:///folder or a plain path, by --store or
    in CLOUDCKPT_URL. A checkpoint is RUN@3 (its number), RUN@best (its tag), RUN@-1
    (the one before the newest) or RUN@step:17; RUN alone is the newest.
    """
