"""``cloudckpt forget`` and ``cloudckpt restore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cloudckpt.cli import names
from cloudckpt.cli.failures import NO, Failure
from cloudckpt.cli.frame import confirm, dry_run_option, run_argument, with_output, with_store, yes_option
from cloudckpt.cli.screen import Column, Document, Output, remark
from cloudckpt.cli.words import counted, size
from cloudckpt.storage.cold import SPEEDS
from cloudckpt.store import Store

if TYPE_CHECKING:
    from cloudckpt.forget import Receipt
    from cloudckpt.restore import Restored

RECEIPT: Final = (
    Column("run", "run", style="bold"),
    Column("values", "values"),
    Column("markers", "delete markers"),
    Column("bytes", "bytes", size),
    Column("left", "left"),
    Column("versions", "versions"),
    Column("last_manifest", "last manifest"),
    Column("digest", "digest of the rows"),
    Column("complete", "complete"),
)
RESTORED: Final = (Column("seq", "seq", right=True), Column("state", "state"), Column("key", "object"))


@click.command("forget")
@run_argument("run", "RUN")
@click.option("--why", required=True, help="For the receipt and the tombstone.")
@click.option("--by", help="Who asks for it. [default: this user on this host]")
@click.option(
    "--receipt",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the sealed receipt into this file.",
)
@dry_run_option
@yes_option
@with_output
@with_store
def forget(
    store: Store,
    out: Output,
    run: str,
    *,
    why: str,
    by: str | None,
    path: Path | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Erase a run for good, with a receipt.

    Its objects, its history, and every version and delete marker of them that the bucket keeps.
    A hold forbids it. The tombstone stays: it holds no state and refuses every later save. Run it
    again after a failure, or when what a lock kept may go.
    """
    if path is not None and path.is_file() and not dry_run:
        raise click.UsageError(
            f"there is a file {str(path)!r}, and a receipt tells of its own erasing alone: name another"
        )
    plan = names.whole(store, run, lambda found: store.forget(found.id, why=why, by=by, dry_run=True))
    if dry_run:
        _tell(out, plan, None)
        return
    if not yes:
        told = (
            f"{counted(plan.values, 'value')} and {counted(plan.markers, 'delete marker')}, {size(plan.size)}"
        )
        remark(f"{plan.run}: {told}")
    confirm(f"Erase {plan.run!r}, with every version? Nothing brings it back.", yes=yes)
    receipt = store.forget(plan.run, why=why, by=by)
    _tell(out, receipt, path)
    if not receipt.complete:
        raise click.exceptions.Exit(NO)


def _tell(out: Output, receipt: Receipt, path: Path | None) -> None:
    if path is not None:
        try:
            with path.open("wb" if path.exists() and not path.is_file() else "xb") as file:  # or a device
                file.write(receipt.sealed())
        except OSError as error:  # after the erasing, and the receipt must not be lost
            click.echo(receipt.sealed())
            raise Failure(
                f"the receipt could not be written to {path}: {error.strerror}; it is above"
            ) from error
    if out.as_json:
        out.document(receipt.document())
        return
    for one in receipt.left:
        until = f", until {one.until.isoformat(timespec='seconds')}" if one.until else ""
        remark(f"stays: {one.row.key} {one.row.version}: {one.why}{until}")
    out.record(_line(receipt), RECEIPT)


def _line(receipt: Receipt) -> dict[str, Any]:
    """Return the receipt without its rows."""
    return {
        "run": receipt.run,
        "values": receipt.values,
        "markers": receipt.markers,
        "bytes": receipt.size,
        "left": len(receipt.left),
        "versions": receipt.versions,
        "last_manifest": receipt.last_manifest,
        "digest": receipt.digest,
        "complete": "yes" if receipt.complete else "no: only a plan" if receipt.dry_run else "no",
    }


@click.command("restore")
@run_argument("name", "RUN[@WHICH]")
@click.option("--days", default=7, show_default=True, help="How long it can be read afterwards, on S3.")
@click.option(
    "--tier", type=click.Choice(SPEEDS), default="standard", show_default=True, help="How fast it is wanted."
)
@click.option("--wait", is_flag=True, help="Return only when it can be read.")
@with_output
@with_store
def restore(store: Store, out: Output, name: str, *, days: int, tier: str, wait: bool) -> None:
    """Ask for a checkpoint in a cold tier.

    Such as S3 Glacier or Azure's archive; it takes from a minute to two days. Asks for nothing that
    can be read already, so it can be run again to see how far it is. Exit code 1 as long as the
    checkpoint can't be read.
    """
    found: Restored = names.at(
        store, name, lambda run, point: run.restore(**point, days=days, tier=tier, wait=wait)
    )
    if out.as_json:
        out.document(shape(found))
    else:
        out.rows(({**one, "seq": found.seq} for one in shape(found)["objects"]), RESTORED)
        if found.seq is None:
            remark("this is an object of the history; run it again when it can be read, for the checkpoint's")
        elif found.ready:
            remark(f"{found.run}@{found.seq} can be read")
    if not found.ready:
        raise click.exceptions.Exit(NO)


def shape(found: Restored) -> Document:
    """Return how far a restore is, as JSON."""
    objects = [{"key": key, "state": str(state)} for key, state in found.objects.items()]
    return {"run": found.run, "seq": found.seq, "ready": found.ready, "objects": objects}
