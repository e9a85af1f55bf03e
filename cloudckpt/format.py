"""Manifests and pages of history to bytes and back (docs/FORMAT.md). Pure.

Owns: the two kinds of documents that a run has, in the envelope of `sealed.py`.
Invariants: equal documents give equal bytes; fields that this release does not know
survive; no byte is believed before its digest was checked.
"""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from cloudckpt.entries import (
    action_in,
    action_out,
    entry_bytes,
    entry_in,
    expired_in,
    expired_out,
    hold_in,
    hold_out,
    int_in,
    lease_in,
    lease_out,
    optional,
    page_in,
    page_out,
    str_in,
    time_in,
    time_out,
    tombstone_in,
    tombstone_out,
)
from cloudckpt.errors import CorruptCheckpointError, UnsupportedFormatError
from cloudckpt.model import FORMAT_VERSION, STATUSES, Action, Entry, Manifest, Page, Writer
from cloudckpt.sealed import DIGEST, canonical, sealed, unseal

_MANIFEST_FIELDS = frozenset(f.name for f in fields(Manifest)) - {"extra"} | {"format"}


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's bytes."""
    writer = manifest.writer
    fields = {
        **manifest.extra,
        **_rare(manifest),
        "format": FORMAT_VERSION,
        "run": manifest.run,
        "seq": manifest.seq,
        "nonce": manifest.nonce,
        "epoch": manifest.epoch,
        "writer": {
            "id": writer.id,
            "host": writer.host,
            "pid": writer.pid,
            "since": time_out(writer.since),
        },
        "status": manifest.status,
        "recent": list(manifest.recent),
    }
    riders = (_rider(key, data) for key, data in sorted(manifest.inline.items()))
    entries = map(entry_bytes, manifest.checkpoints)
    ready = {"checkpoints": b"[%b]" % b",".join(entries), "inline": b"{%b}" % b",".join(riders)}
    return sealed(_canonical_object(fields, ready))


@functools.lru_cache(64)  # a payload rides through several saves
def _rider(key: str, data: bytes) -> bytes:
    return b'%b:"%b"' % (canonical(key), base64.b64encode(data))


def manifest_digest(manifest: Manifest) -> str:
    """Return the digest that the manifest's document starts with."""
    return encode_manifest(manifest)[DIGEST].decode()


def _rare(manifest: Manifest) -> dict[str, Any]:
    """Return the fields that most manifests do without."""
    found: dict[str, Any] = {}
    if manifest.history:
        found["history"] = [page_out(page) for page in manifest.history]
        found["thinned"] = manifest.thinned
    if manifest.actions:
        found["actions"] = [action_out(action) for action in manifest.actions]
    if manifest.ledger:
        found["ledger"] = [page_out(page) for page in manifest.ledger]
    if manifest.expired:
        found["expired"] = [expired_out(one) for one in manifest.expired]
    if manifest.retention is not None:
        found["retention"] = dict(manifest.retention)
    if manifest.hold is not None:
        found["hold"] = hold_out(manifest.hold)
    if manifest.notes:
        found["notes"] = dict(manifest.notes)
    if manifest.tombstone is not None:
        found["tombstone"] = tombstone_out(manifest.tombstone)
    if manifest.copied is not None:
        found["copied"] = manifest.copied
    if manifest.lease is not None:
        found["lease"] = lease_out(manifest.lease)
    if manifest.max_steps is not None:
        found["max_steps"] = manifest.max_steps
    return found


def _canonical_object(fields: Mapping[str, Any], ready: Mapping[str, bytes]) -> bytes:
    """Return what `canonical` gives, where some values are canonical JSON already: the large ones."""
    pieces: list[bytes] = []
    for is_ready, group in itertools.groupby(sorted([*fields, *ready]), key=ready.__contains__):
        if is_ready:
            pieces += (b"%b:%b" % (canonical(key), ready[key]) for key in group)
        else:
            pieces.append(canonical({key: fields[key] for key in group})[1:-1])
    return b"{%b}" % b",".join(pieces)


def decode_manifest(data: bytes, run: str | None) -> Manifest:
    """Return the manifest in `data`, which must be of `run` unless that is None.

    Raises:
        CorruptCheckpointError: Damaged, or of another run. Without `key`: the caller knows it.
        UnsupportedFormatError: Written by a newer release.
    """
    document = _known(unseal(data))
    try:
        manifest = _manifest_in(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptCheckpointError("the manifest lacks a field or has one of a wrong type") from error
    if run is not None and manifest.run != run:
        raise CorruptCheckpointError("the manifest is of another run", found=manifest.run)
    return manifest


def _known(document: dict[str, Any]) -> dict[str, Any]:
    version = document.get("format")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UnsupportedFormatError(
            "the manifest has a newer format than this release reads; upgrade cloudckpt",
            format=version,
            known=FORMAT_VERSION,
        )
    return document


def _manifest_in(document: dict[str, Any]) -> Manifest:
    writer = document["writer"]
    status = document["status"]
    if status not in STATUSES:
        raise ValueError(status)
    return Manifest(
        run=str_in(document["run"]),
        seq=int_in(document["seq"]),
        nonce=str_in(document["nonce"]),
        epoch=int_in(document["epoch"]),
        writer=Writer(
            id=str_in(writer["id"]),
            host=str_in(writer["host"]),
            pid=int_in(writer["pid"]),
            since=time_in(writer["since"]),
        ),
        status=status,
        checkpoints=tuple(entry_in(item) for item in document["checkpoints"]),
        recent=tuple(str_in(item) for item in document["recent"]),
        inline={key: base64.b64decode(data, validate=True) for key, data in document["inline"].items()},
        history=tuple(page_in(item) for item in document.get("history", ())),
        actions=tuple(action_in(item) for item in document.get("actions", ())),
        ledger=tuple(page_in(item) for item in document.get("ledger", ())),
        thinned=int_in(document.get("thinned", 0)),
        expired=tuple(expired_in(item) for item in document.get("expired", ())),
        retention=optional(dict, document.get("retention")),
        hold=optional(hold_in, document.get("hold")),
        notes=dict(document.get("notes", ())),
        tombstone=optional(tombstone_in, document.get("tombstone")),
        copied=optional(str_in, document.get("copied")),
        lease=optional(lease_in, document.get("lease")),
        max_steps=optional(int_in, document.get("max_steps")),
        extra={key: value for key, value in document.items() if key not in _MANIFEST_FIELDS},
    )


def encode_leaf(run: str, entries: Iterable[Entry]) -> bytes:
    """Return the document of a history object that holds checkpoints, newest first."""
    ready = {"checkpoints": b"[%b]" % b",".join(map(entry_bytes, entries))}
    return sealed(_canonical_object({"format": FORMAT_VERSION, "run": run}, ready))


def encode_actions(run: str, actions: Iterable[Action]) -> bytes:
    """Return the document of a page that holds actions of the ledger, newest first."""
    document = {"format": FORMAT_VERSION, "run": run, "actions": [action_out(one) for one in actions]}
    return sealed(canonical(document))


def encode_branch(run: str, pages: Iterable[Page]) -> bytes:
    """Return the document of a history object that holds references to others, newest first."""
    return sealed(
        canonical({"format": FORMAT_VERSION, "run": run, "history": [page_out(page) for page in pages]})
    )


def decode_actions(data: bytes, run: str) -> tuple[Action, ...]:
    """Return the actions in a page of the ledger; raises as `decode_page`."""
    document = _page_of(data, run)
    with _checked():
        return tuple(action_in(item) for item in document.get("actions", ()))


def decode_page(data: bytes, run: str) -> tuple[tuple[Entry, ...], tuple[Page, ...]]:
    """Return the checkpoints, or else the references, in the document of a history object.

    Raises:
        CorruptCheckpointError: Damaged, or of another run.
        UnsupportedFormatError: Written by a newer release.
    """
    document = _page_of(data, run)
    with _checked():
        return (
            tuple(entry_in(item) for item in document.get("checkpoints", ())),
            tuple(page_in(item) for item in document.get("history", ())),
        )


def _page_of(data: bytes, run: str) -> dict[str, Any]:
    document = _known(unseal(data))
    if document.get("run") != run:
        raise CorruptCheckpointError("the history is of another run", found=document.get("run"))
    return document


@contextmanager
def _checked() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptCheckpointError("the history lacks a field or has one of a wrong type") from error
