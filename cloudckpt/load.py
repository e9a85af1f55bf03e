"""Reading a run: the manifest, a checkpoint's payload, the list of runs.

Owns: what is verified before anything is believed. Invariants: "newest" is the
manifest's word, never a timestamp's or a listing's; no byte of a payload leaves
here before its sha256 was checked; reading never writes. It does not decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cloudckpt import keys
from cloudckpt.access import REREADS
from cloudckpt.effects import Effects, gather, sha256
from cloudckpt.errors import ArchivedError, CorruptCheckpointError, DataError, InvalidInputError
from cloudckpt.format import decode_manifest
from cloudckpt.history import Which, choose
from cloudckpt.model import Entry, Extent, Manifest, RunInfo
from cloudckpt.objects import PARTS_AT_ONCE
from cloudckpt.pages import Pages, Walk, archived
from cloudckpt.pointer import Base, read_base
from cloudckpt.storage.contract import Listed, Storage

NEWEST = Which()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A verified payload.

    Attributes:
        manifest: The manifest that named it.
        entry: The checkpoint.
        data: Its stored bytes, whose digest was checked.
        damage: Why newer checkpoints were passed over, newest first.
    """

    manifest: Manifest
    entry: Entry
    data: bytes
    damage: tuple[CorruptCheckpointError, ...] = ()


async def load(
    storage: Storage,
    effects: Effects,
    run: str,
    *,
    which: Which = NEWEST,
    fallback: bool = False,
    base: Base | None = None,
) -> Loaded | None:
    """Read a checkpoint's payload: one request, or two when it does not ride in the manifest.

    Args:
        storage: The store.
        effects: Time, chance and concurrency.
        run: The run's id.
        which: Which checkpoint.
        fallback: Go back to the newest intact checkpoint when the wanted one is damaged.
        base: The manifest, when the caller has just read it: then it is not read twice.

    Returns:
        None when the run does not exist or has no checkpoint yet.

    Raises:
        CorruptCheckpointError: Damage; names the newest intact checkpoint.
        CheckpointNotFoundError: There is no such one.
        RunDeletedError: The run has a tombstone.
    """
    for again in range(REREADS + 1):
        base = base or await read_base(storage, run)
        if base is None:
            return None
        entry = None
        try:
            entry = await choose(Pages(storage, effects, run), base.manifest, which)
            if entry is None:
                return None
            return Loaded(base.manifest, entry, await read_payload(storage, effects, base.manifest, entry))
        except CorruptCheckpointError as error:
            newer = await read_base(storage, run)
            if newer is not None and newer.token != base.token and again < REREADS:
                base = newer  # somebody went on, and may have expired what was being read
                continue
            if entry is None:
                raise  # the history is damaged, and nobody knows what the wanted one is
            return await _older(storage, effects, base.manifest, entry, error, fallback=fallback)
    raise AssertionError("unreachable")


async def _older(
    storage: Storage,
    effects: Effects,
    manifest: Manifest,
    wanted: Entry,
    error: CorruptCheckpointError,
    *,
    fallback: bool,
) -> Loaded:
    """Find the newest intact checkpoint other than `wanted`: return it, or name it in the error."""
    damage = [error]
    newest = wanted.seq if fallback else manifest.seq
    walk = Walk(Pages(storage, effects, manifest.run), manifest, want=lambda page: page.oldest <= newest)
    left: list[Entry] = []
    while True:
        try:
            if not left:
                piece = await walk.next()
                if piece is None:
                    break
                left = [one for one in piece.entries if one.seq != wanted.seq and one.seq <= newest]
                continue
            entry = left.pop(0)
            data = await read_payload(storage, effects, manifest, entry)
        except CorruptCheckpointError as more:
            damage.append(more)
            continue
        except ArchivedError as cold:
            if fallback:
                raise  # it may be intact, and to go back further would lose what it holds
            raise CorruptCheckpointError(
                f"{error.message}; the newest other one is in a cold tier, restore it to go back to it",
                run=error.run,
                seq=error.seq,
                key=error.key,
                archived=cold.facts.get("seq"),
            ) from error
        if fallback:
            return Loaded(manifest, entry, data, tuple(damage))
        raise CorruptCheckpointError(
            f"{error.message}; load(fallback=True) goes back to the newest intact checkpoint",
            run=error.run,
            seq=error.seq,
            key=error.key,
            newest_intact=entry.seq,
        ) from error
    raise CorruptCheckpointError(
        f"{error.message}; no other checkpoint of the run is intact",
        run=error.run,
        seq=error.seq,
        key=error.key,
    ) from error


async def read_payload(storage: Storage, effects: Effects, manifest: Manifest, entry: Entry) -> bytes:
    """Return a checkpoint's stored bytes, verified.

    Raises:
        CorruptCheckpointError: Bytes are missing, cut, changed or added.
    """

    async def read_extent(extent: Extent) -> bytes:
        data = manifest.inline.get(extent.key)
        if data is None:
            # The key of a whole object names its digest. It is read to its end, so
            # that bytes which somebody added to it are found as well.
            whole = extent.offset == 0 and keys.object_digest(extent.key) == extent.digest
            try:
                stored = await storage.read(
                    extent.key, offset=extent.offset, length=None if whole else extent.length
                )
            except ArchivedError as error:
                raise archived(error, manifest.run, entry.seq, extent.key) from error
            if stored is None:
                raise _corrupt("the checkpoint's object is missing", manifest, entry, extent.key)
            data = stored.data
        if len(data) != extent.length:
            raise _corrupt("the checkpoint's object has a wrong length", manifest, entry, extent.key)
        if await sha256(effects, data) != extent.digest:
            raise _corrupt("the checkpoint's bytes do not match their digest", manifest, entry, extent.key)
        return data

    reads = [partial(read_extent, extent) for extent in entry.extents]
    parts = await gather(effects, reads, width=PARTS_AT_ONCE)
    if len(parts) == 1 and entry.extents[0].digest == entry.digest:
        return parts[0]
    data = b"".join(parts)
    if len(data) != entry.size or await sha256(effects, data) != entry.digest:
        key = entry.extents[0].key if entry.extents else None
        raise _corrupt("the checkpoint's parts do not make up what was saved", manifest, entry, key)
    return data


def _corrupt(message: str, manifest: Manifest, entry: Entry, key: str | None) -> CorruptCheckpointError:
    return CorruptCheckpointError(message, run=manifest.run, seq=entry.seq, key=key)


async def list_runs(storage: Storage, prefix: str, cursor: str | None) -> tuple[list[RunInfo], str | None]:
    """Return one page of the runs whose id starts with `prefix`, in order of their keys.

    One request, and one more for each run whose id is too long for its key.
    """
    if not isinstance(prefix, str):
        raise InvalidInputError("a prefix of run ids must be a str", got=type(prefix).__name__)
    page = await storage.list(keys.manifest_prefix(prefix), cursor=cursor)
    found = []
    for row in page.rows:
        run = await _run_of(storage, row)
        if run is not None and run.startswith(prefix):
            found.append(RunInfo(run, row.modified, row.size))
    return found, page.cursor


async def _run_of(storage: Storage, row: Listed) -> str | None:
    segment = keys.run_segment(row.key)
    if segment is None:
        return None
    try:
        run = keys.decode_run(segment)
    except InvalidInputError:
        return None  # somebody else's file among ours
    if run is not None:
        return run
    stored = await storage.read(row.key)
    if stored is None:
        return None  # deleted since the listing
    try:
        return decode_manifest(stored.data, None).run
    except DataError:
        return keys.cut_run(segment)  # a damaged run must not hide the others
