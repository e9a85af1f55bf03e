"""Whether all that a store's manifests promise is there.

Owns: what is read and listed for it. Invariants: verifying never writes; damage is
told, never raised, so that one damaged run or page hides no other; what a writer
expires meanwhile is not taken for damage, since a problem counts only under a
manifest that still stands, or when two manifests have it. It does not repair.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar

from cloudckpt import keys
from cloudckpt.access import Access
from cloudckpt.collect import objects_of
from cloudckpt.effects import Effects, gather, sha256
from cloudckpt.errors import (
    ArchivedError,
    CloudckptError,
    CorruptCheckpointError,
    DataError,
    InvalidInputError,
    RunNotFoundError,
    UnsupportedFormatError,
)
from cloudckpt.examine import Examination, Problem, Verified, problem_of
from cloudckpt.format import decode_manifest
from cloudckpt.load import read_payload
from cloudckpt.model import Action, Entry, Extent, Manifest, Page
from cloudckpt.objects import PART_BYTES
from cloudckpt.pages import READS_AT_ONCE, Pages, Walk, ledger_pages
from cloudckpt.pointer import Base
from cloudckpt.storage.contract import Listed, Storage
from cloudckpt.storage.retry import each_its_own

T = TypeVar("T")

RUNS_AT_ONCE = 8
PAYLOADS_AT_ONCE = 8


class TolerantPages(Pages):
    """The pages of a run that is examined: one that is missing or damaged is noted, and empty."""

    tolerated: ClassVar[tuple[type[CloudckptError], ...]] = (DataError,)

    def __init__(self, storage: Storage, effects: Effects, run: str, examination: Examination) -> None:
        super().__init__(storage, effects, run)
        self._examination = examination
        self._in_ledger = False

    async def read(self, page: Page) -> tuple[tuple[Entry, ...], tuple[Page, ...]]:
        """Return what is in a page; nothing when it can't be read."""
        key, examination = self.key(page), self._examination
        try:
            entries, below = await super().read(page)
        except self.tolerated as error:
            (examination.ledger_is_broken if self._in_ledger else examination.page_is_broken)(
                page, key, error
            )
            return (), ()
        if self._in_ledger:
            examination.ledger_page(page, key, (), below)
        else:
            examination.page(page, key, entries, below)
        return entries, below

    async def actions(self, page: Page) -> tuple[Action, ...]:
        """Return what is in a leaf of the ledger; nothing when it can't be read."""
        key = self.key(page)
        try:
            actions = await super().actions(page)
        except self.tolerated as error:
            self._examination.ledger_is_broken(page, key, error)
            return ()
        self._examination.ledger_page(page, key, actions, ())
        return actions

    async def checkpoints(self, manifest: Manifest, *, ahead: int) -> AsyncIterator[list[Entry]]:
        """Examine all checkpoints; yield those whose payload may be read, page by page."""
        walk = Walk(self, manifest, ahead=ahead)
        while (piece := await walk.next()) is not None:
            yield [entry for entry in piece.entries if self._examination.entry(entry)]

    async def ledger(self, manifest: Manifest, *, ahead: int) -> AsyncIterator[list[Action]]:
        """Examine the ledger; yield the actions whose result may be read, page by page."""
        yield [action for action in manifest.actions if self._examination.action(action)]
        self._in_ledger = True
        leaves, _ = await ledger_pages(self, manifest)
        for start in range(0, len(leaves), ahead):
            reads = [partial(self.actions, page) for page in leaves[start : start + ahead]]
            for actions in await gather(self._effects, reads, width=ahead):
                yield [action for action in actions if self._examination.action(action)]


class _PagesInPlace(TolerantPages):
    """Those in a store, where one may be in a cold tier: that hides no other damage."""

    tolerated = (DataError, ArchivedError)


def in_batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield items in groups that are read side by side: few, and of no more bytes than one large part."""
    batch: list[T] = []
    total = 0
    for item in items:
        total += size(item)
        if batch and (total > PART_BYTES or len(batch) == PAYLOADS_AT_ONCE):
            yield batch
            batch, total = [], size(item)
        batch.append(item)
    if batch:
        yield batch


async def look(access: Access, manifest: Manifest, depth: int) -> tuple[Verified, Examination]:
    """Hold a manifest against what is in the store now.

    Costs one request a page of history, one per 1,000 objects from depth 2, and one an object at 3.
    """
    # Listed after the manifest was read: an object is put before a manifest refers to it.
    sizes = await objects_of(access.storage, access.run) if depth > 1 else None
    examination = Examination(manifest, sizes)
    pages = _PagesInPlace(access.storage, access.effects, access.run, examination)
    async for entries in pages.checkpoints(manifest, ahead=READS_AT_ONCE):
        for batch in in_batches(entries if depth > 2 else (), lambda entry: entry.size):
            reads = [partial(_read, access, manifest, entry, examination) for entry in batch]
            await gather(access.effects, reads, width=PAYLOADS_AT_ONCE)
    async for actions in pages.ledger(manifest, ahead=READS_AT_ONCE):
        extents = [extent for action in actions for extent in action.extents]
        for some in in_batches(extents if depth > 2 else (), lambda extent: extent.length):
            checks = [partial(_read_result, access, extent, examination) for extent in some]
            await gather(access.effects, checks, width=PAYLOADS_AT_ONCE)
    return examination.verified(depth), examination


async def _read(access: Access, manifest: Manifest, entry: Entry, examination: Examination) -> None:
    try:
        data = await read_payload(access.storage, access.effects, manifest, entry)
    except (CorruptCheckpointError, ArchivedError) as error:
        examination.note(error, "object-bytes", keys.manifest_key(manifest.run))
    else:
        examination.read += len(data)


async def _read_result(access: Access, extent: Extent, examination: Examination) -> None:
    try:
        stored = await access.storage.read(extent.key)
    except ArchivedError as error:
        examination.note(error, "result", extent.key)
        return
    if stored is None or await sha256(access.effects, stored.data) != extent.digest:
        examination.say("result", "an action's result does not match its digest", key=extent.key)
    else:
        examination.read += len(stored.data)


async def verify(access: Access, depth: int) -> tuple[Verified, Base | None]:
    """Verify one run; return also the manifest that was looked at, None when it can't be read.

    Raises:
        RunNotFoundError: There is nothing of such a run in the store.
        StorageError: The store failed.
    """
    with each_its_own():
        base = await _base(access)
        if isinstance(base, Problem):
            return Verified(access.run, depth, problems=(base,)), None
        report, _ = await look(access, base.manifest, depth)
        if report.ok or (newer := await _newer(access, base)) is None:
            return report, base
        if isinstance(newer, Problem):
            return Verified(access.run, depth, problems=(newer,)), None
        again, _ = await look(access, newer.manifest, depth)
        if again.ok or await _newer(access, newer) is None:
            return again, newer
        both = tuple(problem for problem in again.problems if problem in report.problems)
        return replace(again, problems=both), newer


async def _newer(access: Access, base: Base) -> Base | Problem | None:
    """Return what stands now; None when it is the same manifest still."""
    newer = await _base(access)
    return None if isinstance(newer, Base) and newer.token == base.token else newer


async def _base(access: Access) -> Base | Problem:
    """Return the manifest, or what is wrong with it."""
    key = keys.manifest_key(access.run)
    try:
        return await access.base(deleted=True)
    except RunNotFoundError:
        left = await objects_of(access.storage, access.run)
        found = await access.pointer.read() if left else None  # a run may have begun meanwhile
        if found is not None:
            return found
        if not left:
            raise
        return missing(access.run, key, len(left))
    except (CorruptCheckpointError, UnsupportedFormatError) as error:
        return problem_of(error, "manifest", run=access.run, key=key)


def missing(run: str, key: str, objects: int) -> Problem:
    """Return the problem of objects whose manifest is gone."""
    return Problem(
        "manifest-missing", run, None, key, f"the manifest is missing, and {objects} objects are there"
    )


class OverStore:
    """Verifies the runs of a store, some at a time.

    From depth 2 it also lists all objects, for runs whose manifest is gone.

    Args:
        access: Returns a run as operations have it.
        storage: The store.
        effects: Time, chance and concurrency.
        prefix: Of the ids of the runs that are wanted.
        depth: How deep to look.
    """

    def __init__(
        self, access: Callable[[str], Access], storage: Storage, effects: Effects, prefix: str, depth: int
    ) -> None:
        if not isinstance(prefix, str):
            raise InvalidInputError("a prefix of run ids must be a str", got=type(prefix).__name__)
        self._access = access
        self._storage = storage
        self._effects = effects
        self._prefix = prefix
        self._depth = depth
        self._rows: list[Listed] = []
        self._cursor: str | None = None
        self._listed = False
        self._ended = False
        self._seen: set[str] = set()

    async def next(self) -> list[Verified] | None:
        """Return the reports of the next runs; None at the end."""
        with each_its_own():
            while not self._rows and not self._listed:
                await self._list()
            if self._rows:
                rows, self._rows = self._rows[:RUNS_AT_ONCE], self._rows[RUNS_AT_ONCE:]
                work = [partial(self._one, row) for row in rows]
                found = await gather(self._effects, work, width=RUNS_AT_ONCE)
                return [report for report in found if report is not None]
            if self._ended or self._depth < 2:
                return None
            self._ended = True
            return await self._without_manifest()

    async def _list(self) -> None:
        page = await self._storage.list(keys.manifest_prefix(self._prefix), cursor=self._cursor)
        self._rows = [row for row in page.rows if _is_ours(row.key)]
        self._cursor = page.cursor
        self._listed = page.cursor is None
        if self._depth > 1:
            self._seen.update(keys.run_segment(row.key) or "" for row in self._rows)

    async def _one(self, row: Listed) -> Verified | None:
        segment = keys.run_segment(row.key) or ""
        run = keys.decode_run(segment)
        if run is None:  # a long id, which only its manifest tells
            stored = await self._storage.read(row.key)
            if stored is None:
                return None
            try:
                run = decode_manifest(stored.data, None).run
                if keys.manifest_key(run) != row.key:
                    raise CorruptCheckpointError("the manifest is of another run")
            except DataError as error:
                run = keys.cut_run(segment)
                wrong = problem_of(error, "manifest", run=run, key=row.key)
                return Verified(run, self._depth, problems=(wrong,))
        if not run.startswith(self._prefix):
            return None
        try:
            return (await verify(self._access(run), self._depth))[0]
        except RunNotFoundError:
            return None  # gone since it was listed, and nothing is left of it

    async def _without_manifest(self) -> list[Verified]:
        """Return a report for each run that has objects and no manifest."""
        within = keys.manifest_prefix(self._prefix).removeprefix(keys.MANIFESTS)
        left: dict[str, int] = {}
        cursor = None
        while True:
            page = await self._storage.list(keys.OBJECTS + within, cursor=cursor)
            for row in page.rows:
                segment = row.key.split("/")[1]
                if segment not in self._seen:
                    left[segment] = left.get(segment, 0) + 1
            cursor = page.cursor
            if cursor is None:
                break
        found = []
        for segment, count in left.items():
            key = keys.manifest_of(segment)
            if not _is_ours(key) or await self._storage.read(key) is not None:
                continue  # it began since the manifests were listed
            run = keys.decode_run(segment) or keys.cut_run(segment)
            if run.startswith(self._prefix):
                found.append(Verified(run, self._depth, problems=(missing(run, key, count),)))
        return found


def _is_ours(key: str) -> bool:
    """Whether a key is that of a manifest, and not somebody else's file among them."""
    segment = keys.run_segment(key)
    return segment is not None and keys.is_segment(segment)
