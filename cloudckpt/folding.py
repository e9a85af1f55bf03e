"""How a manifest stays small: its oldest checkpoints move into pages of history.

Owns: when they move, and what of the pages expires. Both are made ready aside and
take effect in a later commit, so no save waits for them unless it must. Invariants:
what is made ready is used only on the very lineage of manifests that it was made on,
as its objects may be gone otherwise (rule 1 and rule 3 of the protocol,
docs/ARCHITECTURE.md); a payload that rides never leaves the manifest's own
checkpoints before its object exists. Why it is done like this: docs/design/history.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate

from cloudckpt import keys
from cloudckpt.effects import ASIDE_SECONDS, Background, Effects
from cloudckpt.entries import entry_bytes
from cloudckpt.errors import CloudckptError, StorageError
from cloudckpt.model import MOST_EXPIRED, Entry, Expired, Manifest, Page
from cloudckpt.objects import Objects
from cloudckpt.pages import LEAF_ENTRIES, READS_AT_ONCE, Pages, Walk
from cloudckpt.retention import Planner, Retention

WINDOW_BYTES = 18 * 1024
"""Checkpoints of a manifest that take more than this (as JSON, without payloads) move to history..."""

MOST_WINDOW_BYTES = 21 * 1024
"""A save waits until they have moved when they would take more than this.

With all that 100,000 checkpoints make it refer to (three levels of `pages.FAN` pages, and the next one
begun: some 9 KiB) a manifest is within 32 KiB, riding payloads aside.
"""

WINDOW_LEFT = 9 * 1024
"""...until this is left."""

SLACK = 64
"""Expired checkpoints in pages wait for each other until they may be a quarter of all, and this many."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Pages that were put, and what of a manifest they take the place of.

    Attributes:
        moved: The manifest's oldest own checkpoints, which are in `after`.
        before, after: The manifest's history without and with them.
        dropped: Keys of objects that nothing refers to any more, with their bytes.
        expired: What expired.
        thinned: How many checkpoints the rules kept; None when they were not applied.
    """

    moved: tuple[Entry, ...]
    before: tuple[Page, ...]
    after: tuple[Page, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    expired: tuple[Expired, ...] = ()
    thinned: int | None = None

    def apply(self, manifest: Manifest) -> Manifest | None:
        """Return the manifest with the pages in place, or None when it is not what they were made for."""
        own = len(manifest.checkpoints) - len(self.moved)
        if own < 1 or manifest.checkpoints[own:] != self.moved or manifest.history != self.before:
            return None
        return replace(
            manifest,
            checkpoints=manifest.checkpoints[:own],
            history=self.after,
            expired=merged((*self.expired, *manifest.expired)),
            thinned=manifest.thinned if self.thinned is None else self.thinned,
        )


def tail(manifest: Manifest, most: int = WINDOW_LEFT) -> tuple[Entry, ...]:
    """Return the oldest of a manifest's own checkpoints, those beyond `most` bytes; never the newest."""
    sizes = [len(entry.cached or entry_bytes(entry)) for entry in manifest.checkpoints]
    if sum(sizes) <= most:
        return ()
    beyond = (place for place, total in enumerate(accumulate(sizes)) if total > most and place)
    return manifest.checkpoints[next(beyond, len(sizes)) :]


def owned(entry: Entry) -> dict[str, int]:
    """Return the objects that were written for this very checkpoint, with their bytes."""
    return {x.key: x.length for x in entry.extents if keys.object_seq(x.key) == entry.seq}


async def thin(pages: Pages, manifest: Manifest, rules: Retention, *, now: datetime) -> tuple[Fold, set[str]]:
    """Apply the rules to the pages of a manifest, exactly; return the new pages, and all they refer to.

    The manifest's own checkpoints are looked at and left alone. Reads every page once,
    and puts those in which something expired anew.
    """
    planner = Planner(rules, epoch=manifest.epoch, now=now, hold=manifest.hold)
    walk = Walk(pages, manifest, ahead=READS_AT_ONCE)
    leaves: list[Page] = []
    waiting: list[Entry] = []
    expired: list[Entry] = []
    own = manifest.keys()
    used: set[str] = set()
    while (piece := await walk.next()) is not None:
        page, entries = piece
        kept = [entry for entry in entries if planner.why(entry) is not None]
        if page is None:
            continue
        used |= {extent.key for entry in kept for extent in entry.extents}
        left = {entry.seq for entry in kept}
        expired += [entry for entry in entries if entry.seq not in left]
        if len(kept) == len(entries) and not waiting:
            leaves.append(page)
            continue
        waiting += kept
        while len(waiting) >= LEAF_ENTRIES:
            leaves.append(await pages.leaf(waiting[:LEAF_ENTRIES]))
            del waiting[:LEAF_ENTRIES]
    if waiting:
        leaves.append(await pages.leaf(waiting))
    if not expired:
        total = sum(page.count for page in manifest.history)
        return Fold((), manifest.history, manifest.history, thinned=total), used
    after = await pages.grouped(leaves)
    names = {page.name for page in leaves}
    dropped = {pages.key(page): page.size for page in walk.seen if page.name not in names}
    for entry in expired:
        dropped |= {key: size for key, size in owned(entry).items() if key not in used and key not in own}
    told = ranges(expired, now, rules)
    count = sum(page.count for page in leaves)
    return Fold((), manifest.history, after, dropped, told, count), used


def ranges(expired: Iterable[Entry], time: datetime, rules: Retention) -> tuple[Expired, ...]:
    """Return what a manifest tells of expired checkpoints, newest first."""
    return merged([Expired(entry.seq, entry.seq, time, rules.keeping) for entry in expired])


def merged(told: tuple[Expired, ...] | list[Expired]) -> tuple[Expired, ...]:
    """Join neighbours of one rule, and forget the oldest of too many."""
    found: list[Expired] = []
    for one in told:
        last = found[-1] if found else None
        if last is not None and last.rule == one.rule and one.last >= last.first - 1:
            found[-1] = Expired(
                min(one.first, last.first), max(one.last, last.last), max(one.time, last.time), one.rule
            )
        else:
            found.append(one)
    return tuple(found[:MOST_EXPIRED])


class Folding:
    """What one writer makes ready for its run's manifest. Not for concurrent callers.

    Args:
        pages: Of the run.
        objects: Of the run.
        effects: Time, chance and concurrency.
    """

    def __init__(self, pages: Pages, objects: Objects, effects: Effects) -> None:
        self._pages = pages
        self._objects = objects
        self._effects = effects
        self._ready: tuple[int, Fold] | None = None
        self._work: Background | None = None
        self._lineage = 0

    def forget(self) -> None:
        """Let go of what was made ready: somebody else may have written the manifest since."""
        self._ready = None
        self._lineage += 1

    async def fold(self, manifest: Manifest) -> tuple[Manifest, Fold | None]:
        """Return a manifest to be committed with what is ready in place, and what that is.

        Makes it ready now when the manifest would be too large otherwise.
        """
        fold = self._taken()
        folded = self._fits(manifest, fold)
        if folded is None and tail(manifest, MOST_WINDOW_BYTES):
            await self._ended()
            fold = self._taken()
            folded = self._fits(manifest, fold)
            if folded is None:
                fold = await self._moved(manifest)
                folded = self._fits(manifest, fold)
        return (manifest, None) if folded is None else (folded, fold)

    def _taken(self) -> Fold | None:
        ready, self._ready = self._ready, None
        return ready[1] if ready is not None and ready[0] == self._lineage else None

    def _fits(self, manifest: Manifest, fold: Fold | None) -> Manifest | None:
        if fold is None or any(
            x.key in manifest.inline and not self._objects.exists(x.key)
            for entry in fold.moved
            for x in entry.extents
        ):
            return None
        return fold.apply(manifest)

    def landed(self, manifest: Manifest, rules: Retention) -> None:
        """Take note of a manifest that was committed, and begin to make ready what it needs next."""
        if self._ready is not None or (self._work is not None and not self._work.done()):
            return
        count = sum(page.count for page in manifest.history)
        if tail(manifest, WINDOW_BYTES):
            self._work = self._effects.spawn(self._aside(self._lineage, manifest, None))
        elif (
            manifest.hold is None
            and count > manifest.thinned * 5 // 4 + SLACK
            and (rules.keep_last or 0) < count
        ):
            self._work = self._effects.spawn(self._aside(self._lineage, manifest, rules))

    async def _aside(self, lineage: int, manifest: Manifest, rules: Retention | None) -> None:
        await self._effects.sleep(ASIDE_SECONDS)
        try:
            if rules is None:
                fold = await self._moved(manifest)
            else:
                fold, _ = await thin(self._pages, manifest, rules, now=self._effects.clock.now())
        except CloudckptError:
            return  # the manifest stays as large as it is, and a later save tries again
        self._ready = lineage, fold

    async def _moved(self, manifest: Manifest) -> Fold:
        moved = tail(manifest)
        keys = {x.key for entry in moved for x in entry.extents}
        await self._objects.ended({key: data for key, data in manifest.inline.items() if key in keys})
        leaf = await self._pages.leaf(moved)
        after = await self._pages.grouped((leaf, *manifest.history))
        return Fold(moved, manifest.history, after)

    async def settle(self) -> None:
        """Wait for what was started aside."""
        await self._ended()

    async def _ended(self) -> None:
        if self._work is not None:
            with suppress(StorageError):  # an interrupt of who waited before: nothing is ready then
                await self._work.wait()
