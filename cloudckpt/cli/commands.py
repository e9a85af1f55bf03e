"""The group of all commands. A command's module is imported when it is used."""

from __future__ import annotations

import importlib

import click

import cloudckpt

COMMANDS = {"demo": "cloudckpt.cli.demo", "doctor": "cloudckpt.cli.doctor"}
"""Name of each command and the module that has it, as `command`."""


class LazyGroup(click.Group):
    """A group that knows its commands by name only."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cloudckpt.__version__, prog_name="cloudckpt")
def cli() -> None:
    """Checkpoints for long-running agents: a crash costs at most the last step.

    A store is a URL: s3://bucket/prefix, file:///folder or a plain path. Where a
    command takes one, CLOUDCKPT_URL stands in for it.
    """
