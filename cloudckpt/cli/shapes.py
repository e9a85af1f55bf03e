"""What `--json` says, from what the library says. docs/cli.md promises these shapes.

Invariant: a field that is there once stays; times are UTC in ISO 8601, sizes are bytes.
"""

from __future__ import annotations

from typing import Any

from cloudckpt.cli.words import iso
from cloudckpt.model import CheckpointInfo, Hold, Origin, RunInfo, Tombstone, Writer
from cloudckpt.summary import RunSummary


def listed(info: RunInfo) -> dict[str, Any]:
    """Return a row of a listing of runs."""
    return {"run": info.id, "modified": iso(info.modified), "manifest_size": info.manifest_size}


def checkpoint(info: CheckpointInfo) -> dict[str, Any]:
    """Return a checkpoint."""
    return {
        "run": info.run,
        "seq": info.seq,
        "step": info.step,
        "time": iso(info.time),
        "size": info.size,
        "encoded_size": info.encoded_size,
        "tags": list(info.tags),
        "hold": hold(info.hold),
        "origin": origin(info.origin),
        "metadata": dict(info.metadata),
        "notes": dict(info.notes),
        "schema": info.schema,
        "schema_version": info.schema_version,
        "codec": info.codec,
        "digest": info.digest,
        "fingerprint": None if info.fingerprint is None else dict(info.fingerprint),
        "commit": info.commit,
        "epoch": info.epoch,
        "parent": info.parent,
        "inline": info.inline,
    }


def summary(run: RunSummary) -> dict[str, Any]:
    """Return a run as a whole."""
    return {
        "run": run.id,
        "status": run.status,
        "seq": run.seq,
        "step": run.newest and run.newest.step,
        "saved": run.newest and iso(run.newest.time),
        "checkpoints": run.checkpoints,
        "oldest": run.oldest,
        "stored": run.stored,
        "epoch": run.epoch,
        "writer": writer(run.writer),
        "hold": hold(run.hold),
        "held": run.held,
        "retention": run.retention.to_json(),
        "retention_set_by": run.set_by,
        "notes": dict(run.notes),
        "expired": [
            {"first": one.first, "last": one.last, "time": iso(one.time), "rule": one.rule}
            for one in run.expired
        ],
        "tombstone": tombstone(run.tombstone),
        "newest": run.newest and checkpoint(run.newest),
        "lease": run.lease,
        "max_steps": run.max_steps,
    }


def writer(one: Writer) -> dict[str, Any]:
    """Return a writer."""
    return {"id": one.id, "host": one.host, "pid": one.pid, "since": iso(one.since)}


def hold(one: Hold | None) -> dict[str, Any] | None:
    """Return a hold."""
    return None if one is None else {"by": one.by, "why": one.why, "since": iso(one.since)}


def origin(one: Origin | None) -> dict[str, Any] | None:
    """Return what a checkpoint started from."""
    return None if one is None else {"run": one.run, "seq": one.seq, "store": one.store}


def tombstone(one: Tombstone | None) -> dict[str, Any] | None:
    """Return a deletion."""
    if one is None:
        return None
    return {"by": one.by, "why": one.why, "time": iso(one.time), "digest": one.digest}
