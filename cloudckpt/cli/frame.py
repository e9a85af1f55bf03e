"""Options that many commands have, and questions before what destroys.

Owns: how a store is named and opened. The environment is read here, by click.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

import cloudckpt
from cloudckpt.cli.failures import NO, USAGE, Failure
from cloudckpt.cli.screen import Output, remark
from cloudckpt.store import Store

Command = Callable[..., Any]


def json_object(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    """Return what an option holds that is a JSON object."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.BadParameter('not a JSON object, such as {"profile": "agents"}')
    return found


def location(command: Command) -> Command:
    """Give a command the options that say where a store is: `store`, `engine`, `storage_options`."""
    for option in (
        click.option(
            "--storage-options",
            metavar="JSON",
            callback=json_object,
            help="What cloudckpt.open takes as storage_options. Leave secrets to the environment.",
        ),
        click.option(
            "--engine",
            metavar="NAME",
            help="The engine, where a URL has more than one, such as boto3 or obstore for s3://.",
        ),
        click.option(
            "--store", metavar="URL", envvar="CLOUDCKPT_URL", help="The store. [env: CLOUDCKPT_URL]"
        ),
    ):
        command = option(command)
    return command


def opened(url: str | None, engine: str | None, options: Mapping[str, Any] | None) -> Store:
    """Open the store that was named.

    Raises:
        click.UsageError: None was.
    """
    if not url:
        raise click.UsageError("name a store: --store URL, or CLOUDCKPT_URL in the environment")
    return cloudckpt.open(url, engine=engine, storage_options=options)


def with_store(command: Command) -> Command:
    """Call a command with the open store as `store`."""

    @functools.wraps(command)
    def call(
        *args: Any,
        store: str | None,
        engine: str | None,
        storage_options: Mapping[str, Any] | None,
        **options: Any,
    ) -> Any:
        with opened(store, engine, storage_options) as found:
            return command(*args, store=found, **options)

    return location(call)


def with_output(command: Command) -> Command:
    """Call a command with its way to answer as `out`."""

    @functools.wraps(command)
    def call(*args: Any, as_json: bool, **options: Any) -> Any:
        return command(*args, out=Output(as_json=as_json), **options)

    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(call)


def yes_option(command: Command) -> Command:
    """Give a command `yes`: what a script says in place of the answer to `confirm`."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def dry_run_option(command: Command) -> Command:
    """Give a command `dry_run`."""
    return click.option("--dry-run", "-n", is_flag=True, help="Only say what would be done.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what can't be undone.

    Raises:
        Failure: The answer is no, or there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"{question} There is nobody to ask: say --yes, or look with --dry-run first", USAGE)
    if not click.confirm(question, err=True):
        remark("nothing was changed")
        raise click.exceptions.Exit(NO)
