"""Erasing a run for good, with a receipt.

Owns: what is erased of a run, in which order, and what the receipt says of it. Invariants:
the tombstone is committed first and stays, so a late save is refused; the newest version of
the manifest's key is never touched; a version that the last listing still shows is never
called erased; `complete` is said only when every version could be looked at and none is
left. Each step can be done again, so what was interrupted is called again. It does not
destroy: `storage/versions.py` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudckpt import keys
from cloudckpt.access import Access
from cloudckpt.collect import bury
from cloudckpt.errors import PermissionDeniedError, StorageError, UnsupportedStoreError
from cloudckpt.format import manifest_digest
from cloudckpt.model import Tombstone
from cloudckpt.sealed import canonical, seal
from cloudckpt.storage.versions import Kept, Version, Versions

RECEIPT_FORMAT = 1
LISTED = 1000
"""Most rows that a receipt names one by one; the digest covers all."""

ROUNDS = 4
"""Values first, then markers, then what came late; the last listing only looks."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What erasing a run did, or would do.

    Attributes:
        run: The run's id.
        store: The store's URL.
        by: Who asked for it.
        why: Their reason.
        time: When this call ended, by this machine's clock.
        deleted: The run's tombstone: who deleted it first, when and why, and the digest of its
            last manifest. None in a dry run of a run that is still there.
        last_manifest: The digest of the last manifest that held state.
        values: How many values this call erased: objects, pages of history, old pointers.
        markers: How many delete markers.
        size: Bytes of the values.
        digest: sha256 of the canonical JSON of all that was erased: ``[key, version, size]``, sorted.
        erased: The same rows, when they are at most `LISTED`; else None.
        left: What could not be erased, and why.
        versions: ``"looked at"``, or why not.
        complete: Whether nothing of the run is left but its tombstone, as far as the store tells.
        dry_run: Whether nothing was done.
    """

    run: str
    store: str
    by: str
    why: str
    time: datetime
    deleted: Tombstone | None
    last_manifest: str
    values: int
    markers: int
    size: int
    digest: str
    erased: tuple[tuple[str, str, int], ...] | None
    left: tuple[Kept, ...]
    versions: str
    complete: bool
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return the receipt as JSON values."""
        tomb = self.deleted
        return {
            "receipt": "cloudckpt forget",
            "format": RECEIPT_FORMAT,
            "run": self.run,
            "store": self.store,
            "by": self.by,
            "why": self.why,
            "time": self.time.isoformat(),
            "deleted": tomb and {"by": tomb.by, "why": tomb.why, "time": tomb.time.isoformat()},
            "last_manifest": self.last_manifest,
            "erased": {
                "values": self.values,
                "markers": self.markers,
                "bytes": self.size,
                "digest": self.digest,
                "rows": None if self.erased is None else [list(row) for row in self.erased],
            },
            "left": [
                {
                    "key": one.row.key,
                    "version": one.row.version,
                    "bytes": one.row.size,
                    "kind": one.kind,
                    "why": one.why,
                    "until": one.until and one.until.isoformat(),
                }
                for one in self.left
            ],
            "versions": self.versions,
            "complete": self.complete,
            "dry_run": self.dry_run,
        }

    def sealed(self) -> bytes:
        """Return the receipt as a document that starts with its own digest, see docs/FORMAT.md."""
        return seal(self.document())


async def forget(access: Access, *, by: str, why: str, dry_run: bool = False) -> Receipt:
    """Erase a run for good. Destructive; call it again after a failure, or when `left` may go.

    Args:
        access: To the run.
        by: Who asks for it.
        why: Their reason.
        dry_run: Only count, and say whether it may be done.

    Raises:
        HeldError: A hold forbids it; names who set it, when, and why.
        RunNotFoundError: There is nothing of such a run.
        StorageError: The store failed half way; what is left is erased by another call.
    """
    manifest = await bury(access, by=by, why=why, dry_run=dry_run)
    versions, told = await _looker(access)
    erasure = _Erasure(access, versions)
    await (erasure.count() if dry_run else erasure.erase())
    if not dry_run and await access.pointer.read() is None:
        raise StorageError(
            "the store deleted the newest version where an older one was named, so the run has no tombstone "
            "any more; erase versions by the store's own tools, and use its id for nothing",
            kind="unfit",
            run=access.run,
            key=keys.manifest_key(access.run),
        )
    tomb = manifest.tombstone
    rows = sorted((row.key, row.version, row.size) for row in erasure.erased.values())
    left = tuple(erasure.kept.values())
    return Receipt(
        run=access.run,
        store=access.storage.url,
        by=by,
        why=why,
        time=access.effects.clock.now(),
        deleted=tomb,
        last_manifest=tomb.digest if tomb else manifest_digest(manifest),
        values=sum(not row.marker for row in erasure.erased.values()),
        markers=sum(row.marker for row in erasure.erased.values()),
        size=sum(row.size for row in erasure.erased.values()),
        digest=hashlib.sha256(canonical(rows)).hexdigest(),
        erased=tuple(rows) if len(rows) <= LISTED else None,
        left=left,
        versions=told,
        complete=not dry_run and versions.known and not left,
        dry_run=dry_run,
    )


async def _looker(access: Access) -> tuple[Versions, str]:
    """Return how versions are looked at, and what the receipt says of it."""
    versions = Versions(access.storage)
    if not versions.known:
        return versions, (
            "not looked at: this engine can't list versions; if the bucket keeps any, forget the run again "
            "with the engine s3fs or boto3 (s3://), gcsfs (gs://) or adlfs (az://)"
        )
    try:
        await versions.page(keys.manifest_key(access.run))
    except (PermissionDeniedError, UnsupportedStoreError) as error:
        why = error.message.partition(";")[0]
    except StorageError as error:
        if error.kind != "refused":
            raise
        why = error.message
    else:
        return versions, "looked at"
    return (
        versions.plain(),
        f"not looked at: {why}; grant the right to list versions, and forget the run again",
    )


class _Erasure:
    """The erasing of one run's versions.

    Attributes:
        erased: What is gone, or would go.
        kept: What the store does not let go of.
    """

    def __init__(self, access: Access, versions: Versions) -> None:
        self._storage = access.storage
        self._versions = versions
        self._manifest = keys.manifest_key(access.run)
        self._objects = keys.objects_prefix(access.run)
        self.erased: dict[tuple[str, str], Version] = {}
        self.kept: dict[tuple[str, str], Kept] = {}

    async def _pages(self) -> AsyncIterator[list[Version]]:
        """Yield what is to be erased: all below the run's objects, and old versions of its manifest."""
        for prefix in (self._objects, self._manifest):
            cursor = None
            while True:
                page = await self._versions.page(prefix, cursor=cursor)
                # The manifest's key may begin another run's: `a.json` is an id too.
                yield [
                    row
                    for row in page.rows
                    if prefix == self._objects or (row.key == self._manifest and not row.newest)
                ]
                cursor = page.cursor
                if cursor is None:
                    break

    async def count(self) -> None:
        """Only look."""
        async for rows in self._pages():
            self.erased.update((_id(row), row) for row in rows if not row.kept)

    async def erase(self) -> None:
        """Erase all that the store lets go of."""
        for turn in range(ROUNDS):
            seen: set[tuple[str, str]] = set()
            busy = False
            covered = {one.row.key for one in self.kept.values()}
            async for rows in self._pages():
                seen.update(map(_id, rows))
                doomed = [row for row in rows if self._is_due(row, turn, covered)]
                if doomed and turn < ROUNDS - 1:
                    busy = True
                    await self._erase(doomed)
                for row in doomed if turn == ROUNDS - 1 else ():
                    self.kept[_id(row)] = Kept(
                        row, "still-listed", "the store still lists it; try again later"
                    )
            if turn and not (self._believe(seen) or busy):
                break
        for name in self.kept:
            self.erased.pop(name, None)
        await self._hide()

    def _believe(self, seen: set[tuple[str, str]]) -> bool:
        """Believe a listing that something is gone, whatever was answered; return whether anything is."""
        gone = [name for name in self.kept if name not in seen]
        for name in gone:
            self.erased[name] = self.kept.pop(name).row
        return bool(gone)

    def _is_due(self, row: Version, turn: int, covered: set[str]) -> bool:
        if row.kept:
            self.kept[_id(row)] = Kept(row, "soft-deleted", row.kept, row.until)
            return False
        if row.marker:  # the last to go; one above a version that stays keeps that from coming back
            return turn > 0 and row.key not in covered
        return _id(row) not in self.kept

    async def _erase(self, rows: list[Version]) -> None:
        failed = {_id(one.row): one for one in await self._versions.erase(rows)}
        self.kept |= failed
        self.erased.update((_id(row), row) for row in rows if _id(row) not in failed)

    async def _hide(self) -> None:
        """Delete by key what stays and is its key's newest version, so that no reader finds it."""
        shown = [
            one.row.key for one in self.kept.values() if one.row.newest and one.row.key != self._manifest
        ]
        try:
            if shown:
                await self._storage.delete(shown)
        except PermissionDeniedError:
            return  # it stays as it is, and the receipt names it


def _id(row: Version) -> tuple[str, str]:
    return row.key, row.version
