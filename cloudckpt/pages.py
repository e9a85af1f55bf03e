"""Older checkpoints of one run, in immutable history objects.

Owns: the tree of pages behind a manifest. A leaf holds checkpoints, a branch holds
references to `FAN` pages of one level; a manifest refers to at most `FAN` pages of
each level, newest first with levels that never fall, so it stays small at any length.
Invariants: a page is never changed, an edit makes new ones from the leaf to the
manifest; every page exists before a manifest refers to it; reading goes from the
newest to the oldest and skips what nobody asked for. It does not commit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import zstandard

from cloudckpt import keys
from cloudckpt.effects import Effects, gather, sha256
from cloudckpt.errors import ArchivedError, CorruptCheckpointError
from cloudckpt.format import decode_actions, decode_page, encode_actions, encode_branch, encode_leaf
from cloudckpt.model import Action, Entry, Manifest, Page
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.placed import Placer

FAN = 16
LEAF_ENTRIES = 64
"""Checkpoints of a leaf that is made anew."""

MAX_PAGE_TAGS = 8
MAX_PAGE_BYTES = 1 << 26
READS_AT_ONCE = 8


class Pages:
    """Reads and writes the history objects of one run.

    Args:
        storage: The store.
        effects: Time, chance and concurrency.
        run: The run's id.
        placer: Puts them; one that knows no rules by default.
    """

    def __init__(self, storage: Storage, effects: Effects, run: str, placer: Placer | None = None) -> None:
        self._storage = storage
        self._placer = placer or Placer(storage)
        self._effects = effects
        self._run = run

    def key(self, page: Page) -> str:
        """Return the key of a page's object."""
        return keys.page_key(self._run, page.name)

    async def read(self, page: Page) -> tuple[tuple[Entry, ...], tuple[Page, ...]]:
        """Return a page's checkpoints, or else its pages, newest first, verified.

        Raises:
            CorruptCheckpointError: Its object is missing or damaged.
        """
        return self.opened(page, await self.stored(page))

    async def stored(self, page: Page) -> bytes:
        """Return the bytes of a page's object, whose digest was checked; raises as `read`."""
        key = self.key(page)
        try:
            stored = await self._storage.read(key)
        except ArchivedError as error:
            raise archived(error, self._run, page.newest, key) from error
        if stored is None:
            raise CorruptCheckpointError(
                "an object of the run's history is missing", run=self._run, seq=page.newest, key=key
            )
        if await sha256(self._effects, stored.data) != keys.object_digest(key):
            raise CorruptCheckpointError(
                "an object of the run's history does not match its digest",
                run=self._run,
                seq=page.newest,
                key=key,
            )
        return stored.data

    async def actions(self, page: Page) -> tuple[Action, ...]:
        """Return the actions in a leaf of the ledger, newest first; raises as `read`."""
        return decode_actions(self._document(page, await self.stored(page)), self._run)

    def opened(self, page: Page, data: bytes) -> tuple[tuple[Entry, ...], tuple[Page, ...]]:
        """Return what is in the bytes of a page's object; raises as `read`."""
        return decode_page(self._document(page, data), self._run)

    def _document(self, page: Page, data: bytes) -> bytes:
        try:
            document: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_PAGE_BYTES)
        except zstandard.ZstdError as error:  # its digest is right, so it was written like this
            raise CorruptCheckpointError(
                "an object of the run's history is not one of ours", run=self._run, key=self.key(page)
            ) from error
        return document

    async def leaf(self, entries: Sequence[Entry]) -> Page:
        """Put an object that holds these checkpoints, newest first, at least one; return its reference."""
        name, size = await self._put(entries[0].seq, encode_leaf(self._run, entries))
        return leaf_page(name, size, entries)

    async def leaf_of_actions(self, actions: Sequence[Action]) -> Page:
        """Put an object that holds these actions, newest first, at least one; return its reference."""
        name, size = await self._put(actions[0].number, encode_actions(self._run, actions))
        return ledger_page(name, size, actions)

    async def branch(self, pages: Sequence[Page]) -> Page:
        """Put an object that holds these references, newest first, at least one; return its own."""
        name, size = await self._put(pages[0].newest, encode_branch(self._run, pages))
        return branch_page(name, size, pages)

    async def _put(self, newest: int, document: bytes) -> tuple[str, int]:
        data = zstandard.ZstdCompressor(level=3).compress(document)
        name = keys.page_name(newest, await sha256(self._effects, data), self._effects.new_id())
        await self._placer.put(keys.page_key(self._run, name), data)
        return name, len(data)

    async def grouped(self, pages: Iterable[Page]) -> tuple[Page, ...]:
        """Return pages, newest first, with every `FAN` of one level put into a branch.

        The newest of a level stay out of it, at least one: the newest checkpoints are asked for
        most, and are never more than one page away.
        """
        done: list[Page] = []
        rest = list(pages)
        level = 0
        while rest:
            same = list(takewhile(lambda page: page.level == level, rest))  # noqa: B023 - used up at once
            loose = (len(same) - 1) % FAN + 1
            done += same[:loose]
            groups = [same[start : start + FAN] for start in range(loose, len(same), FAN)]
            rest = [*[await self.branch(group) for group in groups], *rest[len(same) :]]
            level += 1
        return tuple(done)

    async def edit(
        self, pages: Sequence[Page], seq: int, change: Callable[[Entry], Entry]
    ) -> tuple[tuple[Page, ...], list[Page]] | None:
        """Return the pages with one checkpoint changed, and those that they replace.

        They replace none when it is like that already. None when no page holds `seq`.
        """
        place = next((i for i, page in enumerate(pages) if page.oldest <= seq <= page.newest), None)
        if place is None:
            return None
        page = pages[place]
        entries, below = await self.read(page)
        if below:
            edited = await self.edit(below, seq, change)
            if edited is None or edited[0] == below:
                return edited and (tuple(pages), [])
            new, replaced = await self.branch(edited[0]), edited[1]
        elif all(entry.seq != seq for entry in entries):
            return None
        else:
            changed = tuple(change(entry) if entry.seq == seq else entry for entry in entries)
            if changed == entries:
                return tuple(pages), []
            new, replaced = await self.leaf(changed), []
        return (*pages[:place], new, *pages[place + 1 :]), [*replaced, page]


def leaf_page(name: str, size: int, entries: Sequence[Entry]) -> Page:
    """Return the reference to a page that holds these checkpoints, newest first, at least one."""
    steps = [entry.step for entry in entries if entry.step is not None]
    times = [entry.time for entry in entries]
    return Page(
        name=name,
        size=size,
        level=0,
        count=len(entries),
        held=sum(entry.hold is not None for entry in entries),
        newest=entries[0].seq,
        oldest=entries[-1].seq,
        since=min(times),
        until=max(times),
        steps=(min(steps), max(steps)) if steps else None,
        tags=_few(tag for entry in entries for tag in entry.tags),
        stored=sum(entry.size for entry in entries),
    )


def ledger_page(name: str, size: int, actions: Sequence[Action]) -> Page:
    """Return the reference to a page that holds these actions, newest first, at least one."""
    return Page(
        name=name,
        size=size,
        level=0,
        count=len(actions),
        held=0,
        newest=max(action.number for action in actions),
        oldest=min(action.number for action in actions),
        since=min(action.begun for action in actions),
        until=max(action.begun for action in actions),
        steps=None,
        tags=(),
        stored=sum(extent.length for action in actions for extent in action.extents),
    )


def branch_page(name: str, size: int, pages: Sequence[Page]) -> Page:
    """Return the reference to a page that holds these references, newest first, at least one."""
    steps = [step for page in pages for step in page.steps or ()]
    every_tag = [page.tags for page in pages]
    return Page(
        name=name,
        size=size,
        level=pages[0].level + 1,
        count=sum(page.count for page in pages),
        held=sum(page.held for page in pages),
        newest=max(page.newest for page in pages),  # those of a ledger may overlap
        oldest=min(page.oldest for page in pages),
        since=min(page.since for page in pages),
        until=max(page.until for page in pages),
        steps=(min(steps), max(steps)) if steps else None,
        tags=None if None in every_tag else _few(tag for tags in every_tag for tag in tags or ()),
        stored=sum(page.stored for page in pages),
    )


def archived(error: ArchivedError, run: str, seq: int, key: str) -> ArchivedError:
    """Return what a reader of a run is told when one of its objects is in a cold tier."""
    return ArchivedError(
        f"an object of the checkpoint is in a cold tier: ask for it by Run.restore(seq={seq}, wait=True) or "
        f"`cloudckpt restore RUN@{seq} --wait`, which takes from a minute to two days, then load again",
        run=run,
        seq=seq,
        key=key,
        storage_class=error.facts.get("storage_class"),
    )


def _few(tags: Iterable[str]) -> tuple[str, ...] | None:
    found = sorted(set(tags))
    return tuple(found) if len(found) <= MAX_PAGE_TAGS else None


class Piece(NamedTuple):
    """Checkpoints, newest first, and the page that they are in; None for the manifest's own."""

    page: Page | None
    entries: tuple[Entry, ...]


class Walk:
    """A run's retained checkpoints from the newest to the oldest, a piece at a time.

    Args:
        pages: Of the run.
        manifest: The run's.
        want: Says of a page whether to look into it; all by default.
        ahead: How many pages are read side by side.

    Attributes:
        seen: Every page that was read so far.
    """

    def __init__(
        self,
        pages: Pages,
        manifest: Manifest,
        *,
        want: Callable[[Page], bool] = lambda _: True,
        ahead: int = 1,
    ) -> None:
        self._pages = pages
        self._want = want
        self._ahead = ahead
        self._left: list[Page | Piece] = [*reversed(manifest.history), Piece(None, manifest.checkpoints)]
        self.seen: list[Page] = []

    async def next(self) -> Piece | None:
        """Return the next piece, or None at the end.

        Raises:
            CorruptCheckpointError: A page is missing or damaged.
        """
        while self._left:
            last = self._left.pop()
            if isinstance(last, Piece):
                return last
            await self._read(last)
        return None

    async def _read(self, page: Page) -> None:
        """Read a page, and those behind it that are read ahead; put what is in them in their place."""
        wanted = [page] if self._want(page) else []
        while self._left and isinstance(after := self._left[-1], Page) and len(wanted) < self._ahead:
            self._left.pop()
            if self._want(after):
                wanted.append(after)
        reads = [partial(self._pages.read, one) for one in wanted]
        found = await gather(self._pages._effects, reads, width=READS_AT_ONCE)
        self.seen += wanted
        for one, (entries, below) in reversed(list(zip(wanted, found, strict=True))):
            if below:
                self._left += reversed(below)
            else:
                self._left.append(Piece(one, entries))


async def every_key(pages: Pages, manifest: Manifest) -> dict[str, int]:
    """Return the key of every object that a manifest refers to, pages too, with the bytes referred to."""
    walk = Walk(pages, manifest, ahead=READS_AT_ONCE)
    found: dict[str, int] = {}
    while (piece := await walk.next()) is not None:
        for entry in piece.entries:
            for extent in entry.extents:
                found[extent.key] = found.get(extent.key, 0) + extent.length
    found |= {pages.key(page): page.size for page in walk.seen}
    leaves, branches = await ledger_pages(pages, manifest)
    found |= {pages.key(page): page.size for page in (*leaves, *branches)}
    for start in range(0, len(leaves), READS_AT_ONCE):
        some = leaves[start : start + READS_AT_ONCE]
        reads = [partial(pages.actions, page) for page in some if page.stored]
        for actions in await gather(pages._effects, reads, width=READS_AT_ONCE):
            found |= {x.key: x.length for action in actions for x in action.extents}
    return found | {x.key: x.length for action in manifest.actions for x in action.extents}


async def ledger_pages(
    pages: Pages, manifest: Manifest, *, known: Container[str] = ()
) -> tuple[list[Page], list[Page]]:
    """Return the leaves of a run's ledger, newest first, and its branches. Reads the branches only.

    Args:
        pages: Of the run.
        manifest: The run's.
        known: Names of pages to leave out, with all that is below them.
    """
    leaves: list[Page] = []
    branches: list[Page] = []
    left = list(reversed(manifest.ledger))
    while left:
        page = left.pop()
        if page.name in known:
            continue
        if page.level == 0:
            leaves.append(page)
            continue
        branches.append(page)
        left += reversed((await pages.read(page))[1])
    return leaves, branches


async def find(
    pages: Pages, manifest: Manifest, is_it: Callable[[Entry], bool], may_be_in: Callable[[Page], bool]
) -> Entry | None:
    """Return the newest retained checkpoint that fits, or None."""
    walk = Walk(pages, manifest, want=may_be_in)
    while (piece := await walk.next()) is not None:
        for entry in piece.entries:
            if is_it(entry):
                return entry
    return None
