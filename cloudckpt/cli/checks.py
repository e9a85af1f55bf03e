"""``cloudckpt verify`` and ``cloudckpt repair``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import click

from cloudckpt.archive import ArchiveReport, verify_archive
from cloudckpt.cli import names
from cloudckpt.cli.failures import NO, complain
from cloudckpt.cli.frame import (
    confirm,
    dry_run_option,
    location,
    none_there,
    opened,
    run_argument,
    with_output,
    with_store,
    yes_option,
)
from cloudckpt.cli.screen import Column, Document, Output, remark
from cloudckpt.cli.words import counted, size
from cloudckpt.examine import Problem, Verified
from cloudckpt.repair import Repaired
from cloudckpt.store import Store

VERIFIED: Final = (
    Column("run", "run", style="bold"),
    Column("ok", "whole", lambda value: "yes" if value else "no"),
    Column("depth", "depth", right=True),
    Column("checkpoints", "checkpoints", right=True),
    Column("objects", "objects", right=True),
    Column("bytes", "bytes", size, right=True),
    Column("read", "read", size, right=True),
    Column("unreferenced", "spare objects", right=True),
)


def shape(report: Verified) -> dict[str, Any]:
    """Return what was found of a run, as JSON."""
    return {
        "run": report.run,
        "ok": report.ok,
        "depth": report.depth,
        "deleted": report.deleted,
        "checkpoints": report.checkpoints,
        "objects": report.objects,
        "bytes": report.bytes,
        "read": report.read,
        "unreferenced": report.unreferenced,
        "unreferenced_bytes": report.unreferenced_bytes,
        "problems": [problem_shape(problem) for problem in report.problems],
    }


def problem_shape(problem: Problem) -> dict[str, Any]:
    """Return a problem as JSON."""
    return {
        "kind": problem.kind,
        "run": problem.run,
        "seq": problem.seq,
        "key": problem.key,
        "what": problem.what,
        "do": problem.do,
    }


def archive_shape(name: str, report: ArchiveReport) -> dict[str, Any]:
    """Return what was found of an archive, as JSON."""
    own = {problem for run in report.runs for problem in run.problems}
    return {
        "archive": name,
        "ok": report.ok,
        "members": report.members,
        "bytes": report.bytes,
        "signed_by": report.signed_by,
        "runs": [shape(run) for run in report.runs],
        "problems": [problem_shape(problem) for problem in report.problems if problem not in own],
    }


@click.command("verify")
@run_argument("target", "[TARGET]", required=False)
@click.option("--prefix", default="", help="Without TARGET: only runs whose id begins like this.")
@click.option(
    "--depth",
    type=click.IntRange(1, 3),
    help="1: documents. 2: also that objects are there. 3: all bytes. [default: 2; of an archive 3]",
)
@click.option("--deep", is_flag=True, help="The same as --depth 3.")
@click.option(
    "--key",
    type=click.File("rb"),
    metavar="PUBLIC",
    help="Of an archive: the Ed25519 key that must have signed it.",
)
@with_output
@location
def verify(
    out: Output,
    target: str | None,
    *,
    prefix: str,
    depth: int | None,
    deep: bool,
    key: BinaryIO | None,
    store: str | None,
    engine: str | None,
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Find what is damaged or missing.

    TARGET is a run, or the file of an archive (- for stdin), which needs no store; without one it
    is all runs of the store. Only reads, and safe while agents are at work.
    """
    depth = 3 if deep else depth
    if target is not None and (target == "-" or Path(target).is_file()):
        _verify_archive(out, target, depth=depth or 3, key=key)
        return
    if key is not None or (target is not None and target.endswith(".tar") and not store):
        raise click.UsageError(
            f"there is no file {target!r}" if target else "a key is for an archive; name its file"
        )
    with opened(store, engine, storage_options) as found:
        if target is None:
            _verify_all(found, out, prefix, depth=depth or 2)
        else:
            report = names.whole(found, target, lambda run: run.verify(depth=depth or 2))
            _tell(out, [report], all_of_them=True)


def _verify_archive(out: Output, name: str, *, depth: int, key: BinaryIO | None) -> None:
    with cast("BinaryIO", click.open_file(name, "rb")) as file:
        report = verify_archive(file, depth=depth, public_key=None if key is None else key.read())
    if out.as_json:
        out.document(archive_shape(name, report))
    else:
        out.rows(map(shape, report.runs), VERIFIED)
        for problem in report.problems:
            complain(str(problem))
        signed = f", signed by {report.signed_by}" if report.signed_by else ""
        whole = "whole" if report.ok else "damaged"
        told = (
            f"{counted(len(report.runs), 'run')}, {counted(report.members, 'member')}, {size(report.bytes)}"
        )
        remark(f"{whole}: {told}{signed}")
    if not report.ok:
        raise click.exceptions.Exit(NO)


def _verify_all(store: Store, out: Output, prefix: str, *, depth: int) -> None:
    def reports() -> Iterator[Verified]:
        with out.progress("runs", lambda: sum(1 for _ in store.runs(prefix))) as advance:
            for report in store.verify(prefix, depth=depth):
                advance(1)
                yield report

    # People look for what is damaged.
    if not _tell(out, reports(), all_of_them=not out.pretty):
        none_there(store, prefix)


def _tell(out: Output, reports: Iterable[Verified], *, all_of_them: bool) -> int:
    """Tell what was found; return of how many runs."""
    problems: list[Problem] = []
    tally = {"runs": 0, "damaged": 0, "bytes": 0}

    def rows() -> Iterator[Document]:
        for report in reports:
            tally["runs"] += 1
            tally["damaged"] += not report.ok
            tally["bytes"] += report.bytes
            problems.extend(report.problems)
            if all_of_them or not report.ok:
                yield shape(report)

    out.rows(rows(), VERIFIED)
    if tally["runs"] and not out.as_json:
        for problem in problems:
            complain(str(problem))
        told = f"{tally['damaged']:,} damaged" if problems else "all whole"
        remark(f"{counted(tally['runs'], 'run')}, {size(tally['bytes'])}: {told}")
    if problems:
        raise click.exceptions.Exit(NO)
    return tally["runs"]


def repaired_shape(done: Repaired, *, dry_run: bool) -> dict[str, Any]:
    """Return what a repair did, as JSON."""
    return {
        "run": done.run,
        "newest": done.newest,
        "back_to": done.back_to,
        "seq": done.seq,
        "dropped": list(done.dropped),
        "lost": done.lost,
        "left": [problem_shape(problem) for problem in done.left],
        "dry_run": dry_run,
    }


@click.command("repair")
@run_argument("run", "RUN")
@click.option(
    "--depth",
    type=click.IntRange(1, 3),
    default=2,
    show_default=True,
    help="How deep to look at older checkpoints, as of verify.",
)
@click.option("--drop-damaged", is_flag=True, help="Also take damaged older checkpoints out of the history.")
@dry_run_option
@yes_option
@with_output
@with_store
def repair(
    store: Store, out: Output, run: str, *, depth: int, drop_damaged: bool, dry_run: bool, yes: bool
) -> None:
    """Make a damaged run go on.

    Its newest intact checkpoint becomes the newest once more, as a new checkpoint; an agent that
    is at work on the run is fenced. Nothing is edited. Exit code 1 when damage is left.
    """
    found = names.whole(store, run, lambda one: store.run(one.id))
    plan = found.repair(depth=depth, drop_damaged=drop_damaged, dry_run=True)
    if dry_run or not (plan.back_to or plan.dropped or plan.lost):
        _tell_repair(out, plan, "would become", "would leave", dry_run=dry_run)
        return
    confirm(f"{_sentence(plan, 'becomes', 'leave')}. Go on?", yes=yes)
    with store.run(found.id, busy="take") as writer:
        done = writer.repair(depth=depth, drop_damaged=drop_damaged)
    _tell_repair(out, done, "became", "left", dry_run=False)


def _tell_repair(out: Output, done: Repaired, became: str, left: str, *, dry_run: bool) -> None:
    out.done(_sentence(done, became, left), repaired_shape(done, dry_run=dry_run))
    if not out.as_json:
        for problem in done.left:
            complain(str(problem))
    if done.left and not dry_run:
        raise click.exceptions.Exit(NO)


def _sentence(done: Repaired, became: str, left: str) -> str:
    said = []
    if done.back_to is not None:
        new = "" if done.seq is None else f" as seq={done.seq}"
        said.append(f"seq={done.back_to} {became} the newest{new}")
    gone = len(done.dropped) + done.lost
    if gone:
        said.append(f"{counted(gone, 'damaged checkpoint')} {left} the history")
    if not said:
        said.append("the newest checkpoint is intact; nothing was changed")
    return f"run {done.run!r}: {', and '.join(said)}"
