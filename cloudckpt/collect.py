"""Removing what nothing refers to, and whole runs.

Owns: rule 3 of the protocol as an operation: list, fence, delete; and the tombstone
of rule 4. Invariants: only what was listed before the fence, and what the fenced
manifest does not refer to, is deleted; no clock and no grace period is involved; a
run whose history can't be read loses nothing. Two collectors at once are harmless,
and one that was interrupted is run again. What is half written is no object yet, and
its writer, if it lives, writes it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from cloudckpt import keys
from cloudckpt.access import Access, Edit
from cloudckpt.curate import check_not_held
from cloudckpt.errors import PermissionDeniedError, RunNotFoundError
from cloudckpt.format import manifest_digest
from cloudckpt.model import Manifest, Tombstone, Writer
from cloudckpt.pages import every_key
from cloudckpt.pointer import Base
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.versions import Version, Versions

DELETES_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed of one run, or would remove.

    Attributes:
        run: The run's id.
        objects: How many objects the run had in the store; those that a killed writer left half written
            in a folder, too.
        removed: How many of them were removed; what a lock of the store's keeps was not.
        bytes: Bytes of these.
    """

    run: str
    objects: int
    removed: int
    bytes: int


async def objects_of(storage: Storage, run: str) -> dict[str, int]:
    """List a run's objects: key to size. One request per 1,000."""
    return await objects_in(storage, keys.encode_run(run))


async def objects_in(storage: Storage, segment: str) -> dict[str, int]:
    """List the objects of the run that has this segment, see `objects_of`."""
    found: dict[str, int] = {}
    cursor = None
    while True:
        page = await storage.list(f"{keys.OBJECTS}{segment}/", cursor=cursor)
        found.update((row.key, row.size) for row in page.rows)
        cursor = page.cursor
        if cursor is None:
            return found


async def collect(access: Access, *, dry_run: bool = False) -> Collected:
    """Remove a run's objects that nothing refers to, such as those a crash left behind.

    Destructive, and safe while writers are at work. Nothing is written when there is
    nothing to remove.

    Args:
        access: To the run.
        dry_run: Only say what would be removed.

    Raises:
        RunNotFoundError: It has no manifest. Objects of a run without one are left alone.
        CorruptCheckpointError: Its manifest or history can't be read; nothing was removed.
    """
    halves = _Halves(access)
    before = await halves.there()
    listed = await objects_of(access.storage, access.run)
    doomed: dict[str, int] = {}

    async def fence(manifest: Manifest) -> Edit | None:
        used = await every_key(access.pages, manifest)
        doomed.clear()
        doomed.update((key, size) for key, size in listed.items() if key not in used)
        return Edit(manifest) if doomed and not dry_run else None  # a new nonce is all that changes

    fenced, _ = await access.amend(fence, deleted=True)
    removed = doomed if dry_run else await delete_all(access.storage, doomed, _Unused(access, fenced))
    left = [half for name, half in (await halves.there()).items() if name in before]
    if not dry_run:
        await halves.erase(left)
    size = sum(removed.values()) + sum(half.size for half in left)
    return Collected(access.run, len(listed) + len(left), len(removed) + len(left), size)


class _Halves:
    """Objects that writers of a run have half written, dead or alive, in a store that keeps them.

    Not those of its manifest, which are small: to look for them takes as long as there are runs.
    """

    def __init__(self, access: Access) -> None:
        self._versions = Versions(access.storage)
        self._prefix = keys.objects_prefix(access.run)

    async def there(self) -> dict[str, Version]:
        return {half.version: half for half in await self._versions.unfinished(self._prefix)}

    async def erase(self, halves: list[Version]) -> None:
        if halves:
            await self._versions.erase(halves)


class _Unused:
    """Looks again, in the middle of a long deletion, whether anything refers to what is next.

    Only a copy refers again to what nothing referred to, see docs/design/copying.md.
    """

    def __init__(self, access: Access, fenced: Base) -> None:
        self._access = access
        self._token = fenced.token
        self._used: Collection[str] = ()

    async def __call__(self, batch: list[str]) -> list[str]:
        base = await self._access.base(deleted=True)
        if base.token != self._token:
            self._token = base.token
            self._used = await self._access.reading(
                lambda manifest: every_key(self._access.pages, manifest), deleted=True
            )
        return [key for key in batch if key not in self._used]


async def delete_all(
    storage: Storage,
    doomed: Mapping[str, int],
    unused: Callable[[list[str]], Awaitable[list[str]]] | None = None,
) -> dict[str, int]:
    """Delete keys, many at a time; return those that went, which are not what a lock or a policy keeps.

    Args:
        storage: The store.
        doomed: The keys, and bytes of each.
        unused: Returns what of a batch is still to be deleted. The first one is not asked about.

    Raises:
        PermissionDeniedError: Deleting at all is denied.
    """
    gone: dict[str, int] = {}
    every = list(doomed)
    for start in range(0, len(every), DELETES_AT_ONCE):
        batch = every[start : start + DELETES_AT_ONCE]
        if start and unused is not None:
            batch = await unused(batch)
        kept = await _delete(storage, batch)
        gone |= {key: doomed[key] for key in batch if key not in kept}
    return gone


async def _delete(storage: Storage, batch: list[str]) -> set[str]:
    """Delete keys; return those that a lock keeps."""
    kept: set[str] = set()
    try:
        await storage.delete(batch)
    except PermissionDeniedError as error:
        if error.kind != "retained":
            raise
        for key in batch:  # one that is kept must not keep the others
            try:
                await storage.delete([key])
            except PermissionDeniedError as error:
                if error.kind != "retained":
                    raise
                kept.add(key)
    return kept


async def delete_run(
    access: Access, *, by: str, why: str = "", dry_run: bool = False
) -> tuple[Manifest, Collected]:
    """Delete a run: its tombstone refuses every later commit. Destructive; safe to call again.

    Args:
        access: To the run.
        by: Who deletes it.
        why: Kept in the tombstone.
        dry_run: Only say what would be removed, and whether it may be.

    Returns:
        The tombstone, and what was removed.

    Raises:
        HeldError: A hold forbids it; names who set it, when, and why.
        RunNotFoundError: There is nothing of such a run.
    """
    manifest = await bury(access, by=by, why=why, dry_run=dry_run)
    listed = await objects_of(access.storage, access.run)
    removed = listed if dry_run else await delete_all(access.storage, listed)
    return manifest, Collected(access.run, len(listed), len(removed), sum(removed.values()))


async def bury(access: Access, *, by: str, why: str = "", dry_run: bool = False) -> Manifest:
    """Put a tombstone in the place of a run's manifest; return what stands there then.

    By a dry run that is the manifest of a run that may be deleted. Where a copy or an import broke
    off, or somebody deleted the manifest, there is none, and objects all the same: they get a
    tombstone too, since nothing else could remove them.

    Raises:
        HeldError: A hold forbids it; names who set it, when, and why.
        RunNotFoundError: There is nothing of such a run.
    """
    now = access.effects.clock.now()
    writer = Writer(access.effects.new_id(), by, 0, now)

    def tombstone(manifest: Manifest, digest: str) -> Manifest:
        return Manifest(
            run=manifest.run,
            seq=manifest.seq,
            nonce="",
            epoch=manifest.epoch + 1,
            writer=writer,
            status="deleted",
            recent=manifest.recent,
            tombstone=Tombstone(by=by, why=why, time=now, digest=digest),
            extra=manifest.extra,
        )

    async def edit(manifest: Manifest) -> Edit | None:
        if manifest.status == "deleted":
            return None
        await check_not_held(access, manifest)
        return None if dry_run else Edit(tombstone(manifest, manifest_digest(manifest)))

    alone = replace(tombstone(Manifest(access.run, 0, "", 0, writer), ""), nonce=access.effects.new_id())
    while True:
        try:
            return (await access.amend(edit, deleted=True))[0].manifest
        except RunNotFoundError:
            if not await objects_of(access.storage, access.run):
                raise
        if dry_run:
            return alone
        seen, landed = await access.pointer.swap(None, alone, lambda found: found.nonce == alone.nonce)
        if landed:  # else it has begun meanwhile
            return seen.manifest
