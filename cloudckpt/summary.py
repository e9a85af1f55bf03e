"""What there is to know of a run without reading a state. Pure.

Owns: `RunSummary`, and how it is told from a manifest alone. Invariant: one request tells it
at any length of history, since a manifest counts what is in its pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudckpt.model import CheckpointInfo, Expired, Hold, Manifest, Tombstone, Writer, describe
from cloudckpt.retention import Retention, rules_of


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as its manifest tells of it.

    Attributes:
        id: The run's id.
        status: "running", "waiting", "done", "failed" or "deleted".
        seq: Number of the newest checkpoint ever committed, 0 before the first.
        epoch: Number of the writer, from 1.
        writer: Who became the writer last.
        newest: The newest checkpoint; None before the first and of a deleted run.
        oldest: seq of the oldest retained checkpoint, or None.
        checkpoints: How many are retained.
        stored: Bytes of their payloads; what two of them share is counted twice.
        held: How many of them are held.
        hold: What keeps the whole run, if something does.
        retention: The rules that hold for it.
        set_by: Who gave it rules of its own: "operator", "code" or "store"; None when nobody did.
        notes: What was said of the run.
        expired: Which checkpoints expired last, newest first.
        tombstone: Of a deleted run.
        lease: Seconds of the lease under which it is worked on; 0 when it is free for a worker to claim,
            None where leases are not used.
        max_steps: How many steps there will be at most, if its writer said so.
    """

    id: str
    status: str
    seq: int
    epoch: int
    writer: Writer
    newest: CheckpointInfo | None
    oldest: int | None
    checkpoints: int
    stored: int
    held: int
    hold: Hold | None
    retention: Retention
    set_by: str | None
    notes: Mapping[str, Any]
    expired: tuple[Expired, ...]
    tombstone: Tombstone | None
    lease: float | None = None
    max_steps: int | None = None


def summarize(manifest: Manifest) -> RunSummary:
    """Return what a manifest tells of its run.

    Raises:
        UnsupportedFormatError: A newer release wrote a rule that this one does not know.
    """
    own, pages = manifest.checkpoints, manifest.history
    oldest = pages[-1].oldest if pages else own[-1].seq if own else None
    return RunSummary(
        id=manifest.run,
        status=manifest.status,
        seq=manifest.seq,
        epoch=manifest.epoch,
        writer=manifest.writer,
        newest=None if manifest.head is None else describe(manifest, manifest.head),
        oldest=oldest,
        checkpoints=len(own) + sum(page.count for page in pages),
        stored=sum(entry.size for entry in own) + sum(page.stored for page in pages),
        held=sum(entry.hold is not None for entry in own) + sum(page.held for page in pages),
        hold=manifest.hold,
        retention=rules_of(manifest.retention),
        set_by=None if manifest.retention is None else manifest.retention["set_by"],
        notes=dict(manifest.notes),
        expired=manifest.expired,
        tombstone=manifest.tombstone,
        lease=None if manifest.lease is None else manifest.lease.seconds or 0,
        max_steps=manifest.max_steps,
    )
