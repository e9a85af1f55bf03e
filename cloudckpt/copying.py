"""Copying runs from one store to another, of whatever kind.

Owns: the order of steps: objects first, the manifest last and on condition. Invariants:
what stands at the destination is one consistent point of the source, with all its
history, tags and holds; every byte was checked against the digest in its key on its
way; a copy that was interrupted goes on where it stopped, since objects that are there
are not sent again; a run of the destination's own is never overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from cloudckpt import keys
from cloudckpt.collect import objects_of
from cloudckpt.core import Core
from cloudckpt.errors import ConflictError, CorruptCheckpointError, RunDeletedError
from cloudckpt.model import Manifest
from cloudckpt.pages import every_key, find

AT_ONCE = 8
LARGE_AT_ONCE = 2
LARGE_BYTES = 16 << 20
"""Objects over this travel two at a time, as each is held in memory."""

TRIES = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """What copying a run did.

    Attributes:
        run: The run's id.
        seq: The newest checkpoint at the destination.
        objects: How many objects belong to the run.
        sent: How many of them had to be sent.
        bytes: Bytes of these.
    """

    run: str
    seq: int
    objects: int
    sent: int
    bytes: int


def copy_run(source: Core, run_id: str, to: Core) -> Copied:
    """Copy a run, or what is new of one that was copied before. The source may be written to meanwhile.

    Safe to call again after a failure half way.

    Args:
        source: Where the run is.
        run_id: Its id, which stays the same.
        to: Another store, or another prefix.

    Raises:
        ConflictError: The destination has a run of that id which is no copy of this one.
        CorruptCheckpointError: The source is damaged; names the key.
        RunNotFoundError, RunDeletedError: There is nothing to copy.
    """
    for _ in range(TRIES):
        copied = _once(source, run_id, to)
        if copied is not None:
            return copied
    raise ConflictError("the run changes faster than it can be copied; try again later", run=run_id)


def _once(source: Core, run_id: str, to: Core) -> Copied | None:
    """Copy what stands now; None when it changed on either side and must be looked at again."""
    here, there = source.access(run_id), to.access(run_id)

    async def point(manifest: Manifest) -> tuple[Manifest, dict[str, int]]:
        return manifest, await every_key(here.pages, manifest)

    manifest, wanted = source.call(here.reading(point))
    base = to.call(there.pointer.read())
    if base is not None:
        _check_copy(source, manifest, base.manifest)
        if as_copy(manifest, source, base.manifest.nonce) == base.manifest:
            return Copied(run_id, manifest.seq, len(wanted), 0, 0)
    have = to.call(objects_of(there.storage, run_id))
    missing = {key: size for key, size in wanted.items() if key not in have and key not in manifest.inline}
    try:
        sent = _send(source, to, run_id, missing)
    except CorruptCheckpointError:
        newer, _ = source.call(here.reading(point))
        if newer.nonce == manifest.nonce:
            raise
        return None  # it expired while it was being copied
    if base is None:
        to.call(to.prepare())
    new = as_copy(manifest, source, to.effects.new_id())
    _, landed = to.call(there.pointer.swap(base, new, lambda m: m.nonce == new.nonce))
    return Copied(run_id, manifest.seq, len(wanted), len(missing), sent) if landed else None


def as_copy(manifest: Manifest, source: Core, nonce: str) -> Manifest:
    """Return the manifest as it is written at the destination."""
    return replace(manifest, nonce=nonce, copied=source.url)


def _check_copy(source: Core, manifest: Manifest, old: Manifest) -> None:
    """Refuse to overwrite what did not come from this run.

    A copy that nobody wrote to since says where it came from; else its newest
    checkpoint must be one of the source's.
    """
    if old.status == "deleted":
        raise RunDeletedError(
            "the destination has a tombstone of the run; copy it under another store", run=old.run
        )
    if old.copied == source.url or old.seq == 0 or old == manifest:
        return
    head = old.head
    access = source.access(old.run)
    known = manifest.commit_of(old.seq) or source.call(
        find(
            access.pages,
            manifest,
            lambda entry: entry.seq == old.seq,
            lambda page: page.oldest <= old.seq <= page.newest,
        )
    )
    commit = known if isinstance(known, str) else known and known.commit
    if head is None or commit != head.commit:
        raise ConflictError(
            "the destination has a run of that id with another history; copy to another store",
            run=old.run,
            there=old.seq,
            here=manifest.seq,
        )


def _send(source: Core, to: Core, run_id: str, missing: Mapping[str, int]) -> int:
    """Copy objects; return their bytes."""

    def send(key: str) -> int:
        stored = source.call(source.storage.read(key))
        if stored is None:
            raise CorruptCheckpointError("the checkpoint's object is missing", run=run_id, key=key)
        if hashlib.sha256(stored.data).hexdigest() != keys.object_digest(key):
            raise CorruptCheckpointError("the object's bytes do not match its digest", run=run_id, key=key)
        to.call(to.storage.put(key, stored.data))
        return len(stored.data)

    small = [key for key, size in missing.items() if size <= LARGE_BYTES]
    large = [key for key, size in missing.items() if size > LARGE_BYTES]
    total = 0
    for some, width in ((small, AT_ONCE), (large, LARGE_AT_ONCE)):
        with ThreadPoolExecutor(width, "cloudckpt") as pool:
            total += sum(pool.map(send, some))
    return total
