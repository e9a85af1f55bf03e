"""``cloudckpt tag``, ``annotate``, ``hold`` and ``release``: what people say of checkpoints and runs."""

from __future__ import annotations

import json
from typing import Any

import click

from cloudckpt.cli import names, shapes
from cloudckpt.cli.frame import run_argument, with_output, with_store
from cloudckpt.cli.screen import Output
from cloudckpt.cli.words import as_json
from cloudckpt.model import CheckpointInfo
from cloudckpt.run import Run
from cloudckpt.store import Store


def found(store: Store, name: str) -> tuple[Run, CheckpointInfo]:
    """Return the checkpoint that a name means, so that it is the same one from here on."""
    return names.at(store, name, lambda run, point: (run, run.find(**point)))


@click.command("tag")
@run_argument("name", "RUN[@WHICH]")
@click.argument("tag")
@click.option(
    "--remove", is_flag=True, help="Take the tag away: from RUN@WHICH, else the newest that has it."
)
@with_output
@with_store
def tag(store: Store, out: Output, name: str, tag: str, *, remove: bool) -> None:
    """Give a checkpoint a name; it no longer expires.

    By default the newest. It is then RUN@TAG to every command. Safe to call again.
    """
    if remove:

        def untag(run: Run, point: dict[str, Any] | None) -> CheckpointInfo:
            return run.untag(tag, seq=run.find(**point).seq if point is not None else None)

        info = names.either(store, name, untag)
        out.done(f"seq={info.seq} of run {info.run!r} has no tag {tag!r}", shapes.checkpoint(info))
        return
    run, at = found(store, name)
    info = run.tag(tag, seq=at.seq)
    out.done(f"seq={info.seq} of run {info.run!r} has the tag {tag!r}", shapes.checkpoint(info))


@click.command("annotate")
@run_argument("name", "RUN[@WHICH]")
@click.argument("notes", metavar="KEY=VALUE...", nargs=-1)
@click.option("--remove", metavar="KEY", multiple=True, help="Take this note away; may be given again.")
@with_output
@with_store
def annotate(
    store: Store, out: Output, name: str, notes: tuple[str, ...], *, remove: tuple[str, ...]
) -> None:
    """Write notes beside a checkpoint.

    By default the newest. A VALUE that is JSON is kept as such, any other as text. What was
    saved stays as it was: notes are beside it.
    """
    if not notes and not remove:
        raise click.UsageError("say a note as KEY=VALUE, or --remove one")
    said: dict[str, Any] = dict(map(_note, notes)) | dict.fromkeys(remove)
    run, at = found(store, name)
    info = run.annotate(said, seq=at.seq)
    out.done(
        f"seq={info.seq} of run {info.run!r} has the notes {as_json(dict(info.notes))}",
        shapes.checkpoint(info),
    )


def _note(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"a note is KEY=VALUE, not {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@click.command("hold")
@run_argument("name", "RUN[@WHICH]")
@click.option("--why", required=True, help="For those who will want to delete it.")
@click.option("--by", help="Who sets it. [default: this user on this host]")
@with_output
@with_store
def hold(store: Store, out: Output, name: str, *, why: str, by: str | None) -> None:
    """Keep a run or a checkpoint from expiry and deletion.

    RUN holds the whole run, RUN@WHICH one checkpoint, until it is released. A hold that is
    there stays as it is.
    """

    def put(run: Run, point: dict[str, Any] | None) -> None:
        if point is None:
            run.hold(why, by=by, whole=True)
            _say_run(out, run)
        else:
            seq = run.find(**point).seq
            run.hold(why, by=by, seq=seq)
            _say_checkpoint(out, run.find(seq=seq))

    names.either(store, name, put)


@click.command("release")
@run_argument("name", "RUN[@WHICH]")
@with_output
@with_store
def release(store: Store, out: Output, name: str) -> None:
    """Take a hold off again.

    RUN releases the run as a whole, RUN@WHICH one checkpoint. Safe to call again.
    """

    def take_off(run: Run, point: dict[str, Any] | None) -> None:
        if point is None:
            run.release(whole=True)
            _say_run(out, run)
        else:
            seq = run.find(**point).seq
            run.release(seq=seq)
            _say_checkpoint(out, run.find(seq=seq))

    names.either(store, name, take_off)


def _say_run(out: Output, run: Run) -> None:
    summary = run.summary()
    out.done(f"run {run.id!r} {_held(summary.hold)}", shapes.summary(summary))


def _say_checkpoint(out: Output, info: CheckpointInfo) -> None:
    out.done(f"seq={info.seq} of run {info.run!r} {_held(info.hold)}", shapes.checkpoint(info))


def _held(hold: Any) -> str:
    return "is not held" if hold is None else f"is held by {hold.by}: {hold.why}"
