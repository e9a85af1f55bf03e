"""``cloudckpt cat`` and ``cloudckpt diff``: states as JSON, and what differs."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from cloudckpt.cli import names
from cloudckpt.cli.failures import NO
from cloudckpt.cli.frame import run_argument, with_output, with_store
from cloudckpt.cli.screen import Column, Output, remark
from cloudckpt.cli.words import as_json, shortened
from cloudckpt.codec.diffing import diff as differences
from cloudckpt.codec.readable import readable
from cloudckpt.codec.views import select
from cloudckpt.errors import InvalidInputError
from cloudckpt.run import Run
from cloudckpt.store import Store

WIDEST: Final = 60
"""Characters of a value in a table of differences."""


def state_of(run: Run, point: dict[str, Any], *, fallback: bool = False) -> Any:
    """Return a state as plain values and records.

    Raises:
        NotFoundError: There is none.
    """
    state = run.load(fallback=fallback, fingerprint="ignore", **point)
    if state is None:
        run.find(**point)  # raises unless None is what was saved
    return state


@click.command("cat")
@run_argument("name", "RUN[@WHICH]")
@click.option("--path", metavar="PATH", help="Only this part, such as state.messages[3] or messages[*].role.")
@click.option("--raw", is_flag=True, help="A str or bytes as it is, not as JSON.")
@click.option("--stored", is_flag=True, help="The payload's bytes as they are in the store.")
@click.option("--fallback", is_flag=True, help="Where it is damaged, the newest intact one before it.")
@with_output
@with_store
def cat(
    store: Store, out: Output, name: str, *, path: str | None, raw: bool, stored: bool, fallback: bool
) -> None:
    """Print a state, or a part of it.

    As JSON, in which what JSON has no type for is an object such as {"$tuple": [1, 2]}. A path
    with a wildcard may mean many parts: then each is a line, {"path": ..., "value": ...}.
    """
    if stored and (path or raw):
        raise click.UsageError("--stored is the whole payload; it goes without --path and --raw")
    if stored:
        payload = names.at(store, name, lambda run, point: run.payload(**point, fallback=fallback))
        for error in payload.damage:
            remark(f"went back to seq={payload.info.seq}: {error}")
        _write(payload.data)
        return
    state = names.at(store, name, lambda run, point: state_of(run, point, fallback=fallback))
    parts = list(select(state, path or "state"))
    if not parts:
        raise InvalidInputError("the state has no such part", path=path)
    if raw:
        _write(b"".join(_as_bytes(part, where) for where, part in parts))
    elif path and "*" in path:
        for where, part in parts:
            click.echo(as_json({"path": where, "value": readable(part)}))
    elif out.as_json:
        click.echo(as_json(readable(parts[0][1])))
    else:
        out.document(readable(parts[0][1]))


def _as_bytes(part: Any, path: str) -> bytes:
    if isinstance(part, bytes):
        return part
    if isinstance(part, str):
        return part.encode("utf-8", "surrogatepass")
    raise InvalidInputError("--raw is for a str or bytes; leave it out", path=path, got=type(part).__name__)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _value(value: Any) -> str:
    return "" if value is None else shortened(as_json(value), WIDEST)


CHANGES: Final = (
    Column("kind", "", style="yellow"),
    Column("path", "path", style="bold"),
    Column("old", "old", _value, style="red"),
    Column("new", "new", _value, style="green"),
)


@click.command("diff")
@run_argument("old", "RUN[@WHICH]")
@run_argument("new", "[RUN][@WHICH]", required=False)
@with_output
@with_store
def diff(store: Store, out: Output, old: str, new: str | None) -> None:
    """Compare the states of two checkpoints, by path.

    The second is a checkpoint of the same run where it begins with @, and the newest of the
    same run where it is left out. Exit code 1 when they differ, as of diff.
    """
    run, before = names.at(store, old, lambda run, point: (run, state_of(run, point)))
    if new is None or new.startswith("@"):
        after = names.at(store, f"{run.id}{new or '@'}", state_of)
    else:
        after = names.at(store, new, state_of)
    found = differences(before, after)
    out.rows(({"path": c.path, "kind": c.kind, "old": _old(c), "new": _new(c)} for c in found), CHANGES)
    if found:
        raise click.exceptions.Exit(NO)


def _old(change: Any) -> Any:
    return None if change.kind == "added" else readable(change.old)


def _new(change: Any) -> Any:
    return None if change.kind == "removed" else readable(change.new)
