"""Writing runs into an archive.

Owns: the order of members (`archive.py` says what they are), and what happens when a
run is written to meanwhile. Invariants: a run is archived as one manifest of it says,
with all that it refers to; equal runs give equal bytes; every byte of an object was
checked against the digest in its key; no more than one large object, or a few small
ones, are in memory. It does not repair: damage ends it, with advice.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import BinaryIO, TypeAlias

from cloudckpt import keys, signing
from cloudckpt.access import REREADS, Access
from cloudckpt.archive import ARCHIVE_FORMAT, INDEX, SIGNATURES, Row
from cloudckpt.effects import Effects, gather, sha256
from cloudckpt.errors import CorruptCheckpointError, DataError, InvalidInputError
from cloudckpt.format import decode_manifest
from cloudckpt.model import Action, Extent, Manifest, Page
from cloudckpt.pages import READS_AT_ONCE, Pages, Walk, ledger_pages
from cloudckpt.sealed import DIGEST, seal
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.retry import each_its_own
from cloudckpt.tarball import Member, header, padding, tail
from cloudckpt.verify import PAYLOADS_AT_ONCE, in_batches

Referred: TypeAlias = tuple[Extent, datetime, int | None]
"""Where bytes are, the time of who refers to them, and its seq if it is a checkpoint."""


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run as it was archived.

    Attributes:
        run: The run's id.
        seq: Its newest checkpoint.
        checkpoints: How many are retained.
        digest: Of its manifest.
    """

    run: str
    seq: int
    checkpoints: int
    digest: str


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote.

    Attributes:
        runs: The runs, in the order of the archive.
        members: How many members it has.
        bytes: Length of the archive.
        digest: sha256 of its index.
        signed_by: Fingerprint of the key that signed it, or None.
    """

    runs: tuple[ExportedRun, ...]
    members: int
    bytes: int
    digest: str
    signed_by: str | None


async def export(
    access: Callable[[str], Access],
    effects: Effects,
    runs: Iterable[str],
    file: BinaryIO,
    *,
    sign: bytes | signing.PrivateKey | None = None,
) -> Exported:
    """Write runs into an archive, each at one consistent point.

    Args:
        access: Returns a run as operations have it.
        effects: Time, chance and concurrency.
        runs: Their ids; one that is named twice is archived once.
        file: Where to; it need not be seekable.
        sign: The Ed25519 key to sign it with.

    Raises:
        InvalidInputError: The file is not open for writing bytes, or the key can't be used.
        RunNotFoundError: There is no such run.
        CorruptCheckpointError: A run is damaged; what was written so far is no archive.
    """
    if isinstance(runs, str):
        raise InvalidInputError("give the ids of the runs in a list", got=runs)
    given: object = file
    if not callable(getattr(given, "write", None)) or isinstance(given, io.TextIOBase):
        raise InvalidInputError("an archive must be a file that is open for writing bytes")
    key = None if sign is None else signing.private_key(sign)
    writer = _Writer(file, effects)
    with each_its_own():
        done: dict[str, ExportedRun] = {}
        for run in runs:
            if run not in done:
                done[run] = await _ExportOfRun(access(run), writer).export()
        if not done:
            raise InvalidInputError("name the runs to export")
        return await writer.end(tuple(done.values()), key)


class _Writer:
    """The archive so far."""

    def __init__(self, file: BinaryIO, effects: Effects) -> None:
        self._file = file
        self._effects = effects
        self._size = 0
        self._rows: dict[str, Row] = {}

    def has(self, name: str) -> bool:
        """Whether a member was written."""
        return name in self._rows

    async def add(self, name: str, data: bytes, time: int, digest: str | None = None) -> None:
        """Write a member; `digest` is the sha256 of its bytes, where it is known."""
        digest = digest or await sha256(self._effects, data)
        self._rows[name] = Row(name, len(data), time, digest)
        await self._write(header(Member(name, len(data), time)), data, padding(len(data)))

    async def _write(self, *parts: bytes) -> None:
        # Off the loop: whoever reads a pipe may take hours, and other runs save meanwhile.
        await self._effects.offload(partial(_write_all, self._file, parts))
        self._size += sum(map(len, parts))

    async def end(self, runs: tuple[ExportedRun, ...], key: signing.PrivateKey | None) -> Exported:
        """Write the index, the signatures if there is a key, and the end."""
        time = max(row.time for row in self._rows.values())
        index = seal({"format": ARCHIVE_FORMAT, "members": [row.to_json() for row in self._rows.values()]})
        digest = hashlib.sha256(index).hexdigest()
        members = len(self._rows)
        await self.add(INDEX, index, time, digest)
        signed_by = None
        if key is not None:
            signed_by = signing.fingerprint(key.public_key())
            await self.add(SIGNATURES, seal(_signatures(runs, key, digest)), time)
        await self._write(tail(self._size))
        await self._effects.offload(self._file.flush)
        return Exported(runs, members, self._size, digest, signed_by)


def _write_all(file: BinaryIO, parts: Iterable[bytes]) -> None:
    for part in parts:
        left = memoryview(part)
        while left:  # a raw file may take less than it is given
            left = left[file.write(left) or len(left) :]


def _signatures(runs: Iterable[ExportedRun], key: signing.PrivateKey, index: str) -> dict[str, object]:
    return {
        "format": ARCHIVE_FORMAT,
        "key": signing.fingerprint(key.public_key()),
        "archive": signing.sign(key, signing.about_archive(index)),
        "runs": {one.run: signing.sign(key, signing.about_run(one.run, one.seq, one.digest)) for one in runs},
    }


class _StoredPages(Pages):
    """The history objects of a run, which keeps their bytes until they are taken."""

    def __init__(self, access: Access) -> None:
        super().__init__(access.storage, access.effects, access.run)
        self.held: dict[str, bytes] = {}

    async def stored(self, page: Page) -> bytes:
        """Return the bytes of a page's object, verified."""
        data = self.held[page.name] = await super().stored(page)
        return data


class _ExportOfRun:
    def __init__(self, access: Access, writer: _Writer) -> None:
        self._access = access
        self._writer = writer

    async def export(self) -> ExportedRun:
        stored, manifest = await self._manifest()
        for again in range(REREADS + 1):
            try:
                return await self._all(stored.data, manifest)
            except CorruptCheckpointError:
                token = stored.token
                stored, manifest = await self._manifest()
                if stored.token == token or again == REREADS:
                    raise  # else somebody went on, and what was being read has expired
        raise AssertionError("unreachable")

    async def _manifest(self) -> tuple[Stored, Manifest]:
        """Read the manifest as it is stored."""
        access = self._access
        while True:
            stored = await access.storage.read(keys.manifest_key(access.run))
            if stored is not None:
                with suppress(DataError):
                    return stored, decode_manifest(stored.data, access.run)
            await access.base(deleted=True)  # raises, with advice

    async def _all(self, data: bytes, manifest: Manifest) -> ExportedRun:
        pages = _StoredPages(self._access)
        count = await self._checkpoints(pages, manifest)
        await self._ledger(pages, manifest)
        time = manifest.head.time if manifest.head else manifest.writer.since
        await self._writer.add(keys.manifest_key(manifest.run), data, _seconds(time))
        return ExportedRun(manifest.run, manifest.seq, count, data[DIGEST].decode())

    async def _checkpoints(self, pages: _StoredPages, manifest: Manifest) -> int:
        walk = Walk(pages, manifest, ahead=READS_AT_ONCE)
        seen = count = 0
        while (piece := await walk.next()) is not None:
            await self._pages(pages, walk.seen[seen:])
            seen = len(walk.seen)
            count += len(piece.entries)
            extents = ((x, entry.time, entry.seq) for entry in piece.entries for x in entry.extents)
            await self._objects(extents, manifest.inline)
        return count

    async def _ledger(self, pages: _StoredPages, manifest: Manifest) -> None:
        leaves, branches = await ledger_pages(pages, manifest)
        await self._pages(pages, branches)
        await self._results(manifest.actions)
        for start in range(0, len(leaves), READS_AT_ONCE):
            some = leaves[start : start + READS_AT_ONCE]
            found = await gather(
                self._access.effects, [partial(pages.actions, page) for page in some], width=READS_AT_ONCE
            )
            await self._pages(pages, some)
            for actions in found:
                await self._results(actions)

    async def _results(self, actions: Iterable[Action]) -> None:
        await self._objects(((x, action.begun, None) for action in actions for x in action.extents), ())

    async def _pages(self, pages: _StoredPages, read: Iterable[Page]) -> None:
        for page in read:
            await self._add(pages.key(page), pages.held.pop(page.name), page.until)

    async def _objects(self, extents: Iterable[Referred], riding: Collection[str]) -> None:
        """Write the objects that are referred to, unless they ride or were written."""
        left = {x.key: (x, time, seq) for x, time, seq in extents if x.key not in riding}
        wanted = [one for key, one in left.items() if not self._writer.has(key)]
        for batch in in_batches(wanted, lambda one: one[0].length):
            await self._batch(batch)

    async def _batch(self, batch: list[Referred]) -> None:
        reads = [partial(self._object, extent.key, seq) for extent, _, seq in batch]
        found = await gather(self._access.effects, reads, width=PAYLOADS_AT_ONCE)
        for (extent, time, _), data in zip(batch, found, strict=True):
            await self._add(extent.key, data, time)

    async def _add(self, key: str, data: bytes, time: datetime) -> None:
        if not self._writer.has(key):  # as it may be when the run was begun again
            await self._writer.add(key, data, _seconds(time), keys.object_digest(key))

    async def _object(self, key: str, seq: int | None) -> bytes:
        access = self._access
        stored = await access.storage.read(key)
        if stored is None:
            what = "an object is missing"
        elif await sha256(access.effects, stored.data) != keys.object_digest(key):
            what = "an object's bytes do not match its digest"
        else:
            return stored.data
        raise CorruptCheckpointError(f"{what}; repair the run first", run=access.run, seq=seq, key=key)


def _seconds(time: datetime) -> int:
    return max(0, int(time.timestamp()))
