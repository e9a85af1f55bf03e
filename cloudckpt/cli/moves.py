"""``cloudckpt rollback`` and ``cloudckpt fork``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import click

from cloudckpt.cli import names, shapes
from cloudckpt.cli.frame import (
    confirm,
    dry_run_option,
    opened,
    other_engine_options,
    run_argument,
    with_output,
    with_store,
    yes_option,
)
from cloudckpt.cli.screen import Output
from cloudckpt.model import CheckpointInfo
from cloudckpt.run import Run
from cloudckpt.store import Store


def _called(info: CheckpointInfo) -> str:
    return f"seq={info.seq}" + ("" if info.step is None else f" (step {info.step})")


@click.command("rollback")
@run_argument("name", "RUN@WHICH")
@dry_run_option
@yes_option
@with_output
@with_store
def rollback(store: Store, out: Output, name: str, *, dry_run: bool, yes: bool) -> None:
    """Make an older state the newest, as a new checkpoint.

    History only grows: what came after it stays. An agent that is at work on the run is fenced,
    and its next save fails.
    """

    def look(run: Run, point: dict[str, Any] | None) -> tuple[Run, CheckpointInfo]:
        if point is None:
            run.summary()  # first of all the run must be there
            raise click.UsageError("name the checkpoint to go back to, such as RUN@3, RUN@best or RUN@-1")
        return run, run.find(**point)

    run, old = names.either(store, name, look)
    if dry_run:
        out.done(f"would make {_called(old)} of run {run.id!r} its newest", shapes.checkpoint(old))
        return
    confirm(f"Make {_called(old)} of run {run.id!r} its newest? Its writer is fenced.", yes=yes)
    with store.run(run.id, busy="take") as writer:
        new = writer.rollback(seq=old.seq)
    out.done(f"seq={new.seq} of run {run.id!r} has the state of {_called(old)}", shapes.checkpoint(new))


@click.command("fork")
@run_argument("name", "RUN[@WHICH]")
@click.argument("new", metavar="NEW")
@click.option("--to", metavar="URL", help="The store of the new run. [default: the same]")
@other_engine_options
@with_output
@with_store
def fork(
    store: Store,
    out: Output,
    name: str,
    new: str,
    *,
    to: str | None,
    to_engine: str | None,
    to_storage_options: Mapping[str, Any] | None,
) -> None:
    """Begin a new run from a checkpoint.

    By default from the newest. The two share nothing afterwards; the new run's first checkpoint
    tells where it came from.
    """
    if to is None and (to_engine or to_storage_options):
        raise click.UsageError("--to-engine and --to-storage-options go with --to")
    with ExitStack() as stack:
        other = None if to is None else stack.enter_context(opened(to, to_engine, to_storage_options))
        info = names.at(store, name, lambda run, point: store.fork(run.id, new, **point, to=other))
    origin = info.origin
    came = f"seq={origin.seq} of run {origin.run!r}" if origin else name
    out.done(f"run {info.run!r} begins with the state of {came}", shapes.checkpoint(info))
