"""Options that many commands have, and questions before what destroys.

Owns: how a store is named and opened. The environment is read here, by click.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import click

import cloudckpt
from cloudckpt.cli.failures import NO, USAGE, Failure
from cloudckpt.cli.screen import Output, remark
from cloudckpt.cli.words import LONGEST
from cloudckpt.errors import CloudckptError
from cloudckpt.store import Store

Command = Callable[..., Any]

MOST_COMPLETED: Final = 200
COMPLETED_WITHIN: Final = 1.0
"""Seconds that the store has: somebody has pressed Tab, and waits."""


class Seconds(click.FloatRange):
    """A number of seconds that can be waited for.

    Args:
        least: The smallest one.
        over: Whether it must be more than that.
        endless: Whether ``inf`` means for ever.
    """

    name = "seconds"

    def __init__(self, *, least: float = 0, over: bool = False, endless: bool = False) -> None:
        super().__init__(min=least, min_open=over)
        self._endless = endless

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it; ``nan`` is no number of seconds, and a century is the longest wait."""
        found: float = super().convert(value, param, ctx)
        if found > LONGEST and self._endless:
            return float("inf")
        if not found <= LONGEST:
            self.fail(f"{value} is no number of seconds, or more than a hundred years", param, ctx)
        return found


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
    return click.option(
        "--store", metavar="URL", envvar="CLOUDCKPT_URL", help="The store. [env: CLOUDCKPT_URL]"
    )(engine_options(command))


def engine_options(command: Command) -> Command:
    """Give a command `engine` and `storage_options`."""
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
    ):
        command = option(command)
    return command


def other_engine_options(command: Command) -> Command:
    """Give a command `to_engine` and `to_storage_options`, of the other of two stores."""
    for option in (
        click.option(
            "--to-storage-options", metavar="JSON", callback=json_object, help="As of --storage-options."
        ),
        click.option("--to-engine", metavar="NAME", help="Its engine, as of --engine."),
    ):
        command = option(command)
    return command


def opened(url: str | None, engine: str | None, options: Mapping[str, Any] | None, **how: Any) -> Store:
    """Open the store that was named.

    Args:
        url: The store.
        engine: Its engine.
        options: Its storage_options.
        **how: What else `cloudckpt.open` takes.

    Raises:
        click.UsageError: None was.
    """
    if not url:
        raise click.UsageError(
            f"name a store: --store URL, or CLOUDCKPT_URL in the environment{_by_default()}"
        )
    return cloudckpt.open(url, engine=engine, storage_options=options, **how)


def _by_default() -> str:
    """Return where the ready-made state has saved, for one who never named a store."""
    from cloudckpt.held import data_folder

    folder = data_folder()
    return f"; Checkpoint saves to {folder} without one" if os.path.isdir(folder) else ""


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


def run_argument(name: str, metavar: str, **options: Any) -> Callable[[Command], Command]:
    """Return an argument that names a run, which a shell completes."""
    return click.argument(name, metavar=metavar, shell_complete=_ids, **options)


def _ids(context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    """Return ids of runs that begin like this: one request."""
    given = context.params
    url = given.get("store") or os.environ.get("CLOUDCKPT_URL")
    try:
        options = given.get("storage_options")
        with opened(url, given.get("engine"), options, timeout=COMPLETED_WITHIN) as store:
            return [info.id for info in islice(store.runs(begun), MOST_COMPLETED)]
    except (CloudckptError, click.UsageError):  # a shell has no place to say why there are none
        return []


def none_there(store: Store, prefix: str = "") -> None:
    """Say that a store has no run: a URL with a typo looks like a store that is empty."""
    begun = f" whose id begins with {prefix!r}" if prefix else ""
    remark(f"there is no run{begun} in {store.url}")


def yes_option(command: Command) -> Command:
    """Give a command `yes`: what a script says in place of the answer to `confirm`."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def dry_run_option(command: Command) -> Command:
    """Give a command `dry_run`."""
    return click.option("--dry-run", "-n", is_flag=True, help="Only say what would be done.")(command)


def somebody_answers() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what can't be undone.

    Raises:
        Failure: The answer is no, or there is nobody to ask.
    """
    if yes:
        return
    if not somebody_answers():
        raise Failure(f"{question} There is nobody to ask: say --yes, or look with --dry-run first", USAGE)
    try:
        answer = click.confirm(question, err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        answer = False  # the input has ended
    if not answer:
        remark("nothing was changed")
        raise click.exceptions.Exit(NO)
