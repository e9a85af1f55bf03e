"""``cloudckpt export`` and ``cloudckpt import``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from cloudckpt.archive_export import Exported
from cloudckpt.archive_import import Imported
from cloudckpt.cli import names
from cloudckpt.cli.failures import USAGE, Failure
from cloudckpt.cli.frame import run_argument, with_output, with_store
from cloudckpt.cli.screen import Column, Output, remark
from cloudckpt.cli.words import counted, size
from cloudckpt.run import Run
from cloudckpt.store import Store

MIB: Final = 1 << 20
STDOUT: Final = (Path("-"), Path("/dev/stdout"))

IMPORTED: Final = (
    Column("run", "run", style="bold"),
    Column("seq", "seq", right=True),
    Column("checkpoints", "checkpoints", right=True),
    Column("objects", "objects put", right=True),
    Column("bytes", "bytes put", size, right=True),
    Column("was_there", "was there", lambda value: "yes" if value else "no"),
)


def exported_shape(done: Exported) -> dict[str, Any]:
    """Return what an export wrote, as JSON."""
    return {
        "runs": [
            {"run": one.run, "seq": one.seq, "checkpoints": one.checkpoints, "digest": one.digest}
            for one in done.runs
        ],
        "members": done.members,
        "bytes": done.bytes,
        "digest": done.digest,
        "signed_by": done.signed_by,
    }


def imported_shape(one: Imported) -> dict[str, Any]:
    """Return what importing a run did, as JSON."""
    return {
        "run": one.run,
        "seq": one.seq,
        "checkpoints": one.checkpoints,
        "objects": one.objects,
        "bytes": one.bytes,
        "was_there": one.was_there,
    }


@click.command("export")
@run_argument("runs", "[RUN...]", nargs=-1)
@click.option("--prefix", default="", help="Without RUN: only runs whose id begins like this.")
@click.option(
    "--output",
    "-o",
    "path",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="The file; - is stdout. [default: stdout]",
)
@click.option("--sign", type=click.File("rb"), metavar="PRIVATE", help="Sign it with this Ed25519 key (PEM).")
@with_output
@with_store
def export(
    store: Store,
    out: Output,
    runs: tuple[str, ...],
    *,
    prefix: str,
    path: Path | None,
    sign: BinaryIO | None,
) -> None:
    """Write runs into an archive.

    All runs of the store, or those that are named: a tar file with all that they refer to, which
    verifies by itself. Safe while agents are at work: each run is archived as it was at one point.
    """
    path = None if path in STDOUT else path  # where no sentence may follow
    if path is None and (out.as_json or sys.stdout.isatty()):
        raise click.UsageError("say where to: --output FILE, or > FILE without --json")
    ids = [names.whole(store, name, _id_of) for name in runs] or [info.id for info in store.runs(prefix)]
    if not ids:
        raise click.UsageError("the store has no such run")
    key = None if sign is None else sign.read()
    with _target(path) as file, out.progress("runs", lambda: len(ids)) as advance:
        done = store.export(_counted(ids, advance), file, sign=key)
    told = f"{counted(len(done.runs), 'run')}, {counted(done.members, 'member')}, {size(done.bytes)}"
    signed = f", signed by {done.signed_by}" if done.signed_by else ""
    if path is None:
        remark(f"{told}{signed}")
    else:
        out.done(f"{path}: {told}{signed}", exported_shape(done))


def _id_of(run: Run) -> str:
    run.summary()  # it must be there
    return run.id


def _counted(ids: Iterable[str], advance: Callable[[int], None]) -> Iterator[str]:
    for run in ids:
        yield run
        advance(1)


@contextmanager
def _target(path: Path | None) -> Iterator[BinaryIO]:
    """Open what is written to; a file has its name only when it is whole.

    Raises:
        Failure: The file can't be written.
    """
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        if path.exists() and not path.is_file():  # a pipe or a device: no other may take its name
            with path.open("wb") as file:
                yield file
            return
        whole = path.resolve()
        # Another export into the same file has a part of its own.
        part = whole.with_name(f"{whole.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(whole)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise Failure(f"the archive could not be written to {path}: {error.strerror}", USAGE) from error


@click.command("import")
@click.argument("file", metavar="FILE", type=click.File("rb"))
@click.argument("runs", metavar="[RUN...]", nargs=-1)
@with_output
@with_store
def import_(store: Store, out: Output, file: BinaryIO, runs: tuple[str, ...]) -> None:
    """Bring the runs of an archive into the store.

    All of them, or those that are named; - reads stdin. A run that exists is never changed. Safe
    to call again after an interruption: it goes on where it stopped.
    """
    with out.progress("MiB", lambda: _length(file) // MIB) as advance:
        done = store.import_(_Ticking(file, advance), runs=runs or None)  # type: ignore[arg-type]
    out.rows(map(imported_shape, done), IMPORTED)


def _length(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size if file.seekable() else 0


class _Ticking:
    """A file that tells how much of it was read, in MiB."""

    def __init__(self, file: BinaryIO, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance
        self._read = 0

    def read(self, size: int = -1) -> bytes:
        """Read on."""
        data = self._file.read(size)
        before, self._read = self._read, self._read + len(data)
        self._advance(self._read // MIB - before // MIB)
        return data

    def seekable(self) -> bool:
        """Whether it can seek: all of it is read, so nobody asks for that."""
        return False
