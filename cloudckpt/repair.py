"""Getting a damaged run to go on.

Owns: what is done about damage, planned before it is done. Invariants: nothing is
edited: the newest intact checkpoint becomes the newest once more, as a commit of its
own; nothing is dropped unless it is asked for, and nothing ever that is held; it can be
run again after a failure half way.

What is possible: docs/archives.md. A damaged manifest can't be repaired, as nothing
else says what the run is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from cloudckpt import keys
from cloudckpt.access import REREADS, Access, Edit
from cloudckpt.commit import RunWriter
from cloudckpt.drafts import Again, Draft
from cloudckpt.errors import CorruptCheckpointError, HeldError, StaleStateError
from cloudckpt.examine import PAYLOAD_KINDS, Examination, Problem, Verified
from cloudckpt.folding import merged, owned
from cloudckpt.load import read_payload
from cloudckpt.model import Entry, Expired, Manifest, Origin, Page
from cloudckpt.pages import READS_AT_ONCE, Walk
from cloudckpt.pointer import Base
from cloudckpt.storage.retry import each_its_own
from cloudckpt.verify import TolerantPages, verify

RULE = "repair: damaged"
"""What a manifest says of checkpoints that were dropped by a repair."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did, or would do.

    Attributes:
        run: The run's id.
        newest: The newest checkpoint before it.
        back_to: The newest intact one, which becomes the newest once more; None when the newest is intact.
        seq: Its new number; None when nothing was committed.
        dropped: Damaged older checkpoints that left the history, newest first.
        lost: Checkpoints that left with pages of history that can't be read.
        left: What is damaged still.
    """

    run: str
    newest: int
    back_to: int | None
    seq: int | None = None
    dropped: tuple[int, ...] = ()
    lost: int = 0
    left: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Rest:
    """What of a history is damaged, and what is left of it.

    Attributes:
        pages: Pages of the history that stay, newest first, with what stays of those in which a
            checkpoint is damaged.
        gone: The damaged checkpoints.
        lost: The pages that can't be read.
        seen: Every page that was read.
    """

    pages: list[tuple[Page, list[Entry] | None]] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    lost: list[Page] = field(default_factory=list)
    seen: list[Page] = field(default_factory=list)


async def repair(
    access: Access,
    claim: Callable[[], RunWriter],
    *,
    depth: int = 2,
    drop_damaged: bool = False,
    dry_run: bool = False,
) -> tuple[Repaired, Base | None]:
    """Make a run loadable again; return also the manifest that stands then, if it was edited.

    Args:
        access: To the run.
        claim: Returns a claim to write it, called when there is something to commit.
        depth: How deep to look at older checkpoints; the one to go back to is read whole.
        drop_damaged: Take damaged older checkpoints, and pages of history that can't be read, out of it.
        dry_run: Only say what would be done.

    Raises:
        CorruptCheckpointError: The manifest is damaged, or no checkpoint is intact.
        HeldError: What would be dropped is held.
        RunNotFoundError, RunDeletedError: There is no such run.
        StaleStateError: Somebody saves all the time.
    """
    before: set[object] = set()
    with each_its_own():
        for _ in range(REREADS + 1):
            await access.base()  # raises, with advice, what can't be repaired
            report, base = await verify(access, depth)
            if base is None:
                continue  # damaged since
            damaged = {p.seq for p in report.problems if p.kind in PAYLOAD_KINDS and p.seq is not None}
            try:
                back_to, unread, blind = await _newest_intact(access, base.manifest, damaged, report)
            except CorruptCheckpointError:
                if await _stands(access, base):
                    raise
                continue
            damaged |= unread
            rest = await _rest(access, base.manifest, damaged) if drop_damaged else Rest()
            doubts = {*unread, *blind, *map(access.pages.key, rest.lost)} - {p.key for p in report.problems}
            if not (doubts <= before or await _stands(access, base)):
                before = doubts  # what two manifests have, and neither can be read, is damaged
                continue
            _check_holds(base.manifest, rest)
            done = Repaired(
                access.run,
                base.manifest.seq,
                back_to,
                dropped=tuple(entry.seq for entry in rest.gone),
                lost=sum(page.count for page in rest.lost),
                left=_left(access, report, rest),
            )
            if dry_run:
                return done, None
            if back_to is not None:
                try:
                    done = replace(done, seq=await _go_back(access, claim(), base.manifest.seq, back_to))
                except StaleStateError:
                    continue  # somebody saved meanwhile, which may have mended it
            edited = await _drop(access, damaged, rest.lost) if rest.gone or rest.lost else None
            return done, edited
    raise StaleStateError(
        "somebody saves to the run faster than it can be looked at; nothing was repaired, try again later",
        run=access.run,
    )


async def _stands(access: Access, base: Base) -> bool:
    """Whether a manifest still stands: else what somebody has expired or replaced looks like damage."""
    return (await access.base()).token == base.token


async def _newest_intact(
    access: Access, manifest: Manifest, damaged: Collection[int], report: Verified
) -> tuple[int | None, set[int], set[str]]:
    """Return the newest intact checkpoint, None when it is the newest of all.

    And what could not be read on the way to it: checkpoints besides the `damaged` ones, and keys of pages.
    """
    pages, examination = _tolerant(access, manifest)
    walk = Walk(pages, manifest)
    unread: set[int] = set()
    error: CorruptCheckpointError | None = None
    while (piece := await walk.next()) is not None:
        for entry in piece.entries:
            if entry.seq in damaged:
                continue
            try:
                await read_payload(access.storage, access.effects, manifest, entry)
            except CorruptCheckpointError as found:
                unread.add(entry.seq)
                error = error or found
                continue
            blind = {keys.page_key(access.run, name) for name in examination.broken}
            return None if entry.seq == manifest.seq else entry.seq, unread, blind
    if manifest.head is None:
        return None, unread, set()
    told = next((p.key for p in report.problems if p.seq == manifest.seq), error.key if error else None)
    raise CorruptCheckpointError(
        "no checkpoint of the run is intact; bring its objects back, import it from an archive, "
        "or start a new run",
        run=access.run,
        seq=manifest.seq,
        key=told,
    ) from error


def _tolerant(access: Access, manifest: Manifest) -> tuple[TolerantPages, Examination]:
    examination = Examination(manifest, None)
    return TolerantPages(access.storage, access.effects, access.run, examination), examination


async def _rest(access: Access, manifest: Manifest, damaged: Collection[int]) -> Rest:
    """Tell what is damaged from what is not."""
    pages, examination = _tolerant(access, manifest)
    walk = Walk(pages, manifest, ahead=READS_AT_ONCE)
    rest = Rest(seen=walk.seen)
    while (piece := await walk.next()) is not None:
        page, entries = piece
        kept = [entry for entry in entries if entry.seq not in damaged]
        rest.gone.extend(entry for entry in entries if entry.seq in damaged)
        if page is None:
            continue
        if page.name in examination.broken:
            rest.lost.append(page)
        elif len(kept) == len(entries):
            rest.pages.append((page, None))
        elif kept:
            rest.pages.append((page, kept))
    return rest


def _check_holds(manifest: Manifest, rest: Rest) -> None:
    """Refuse to drop what is held.

    Raises:
        HeldError: Names who holds it; of a page that can't be read nobody knows that.
    """
    entry = next((one for one in rest.gone if one.hold), None)
    hold = manifest.hold if rest.gone or rest.lost else None
    hold = hold or (entry.hold if entry else None)
    if hold is not None:
        raise HeldError(
            "what is damaged is held; release it first, or bring it back from a copy",
            run=manifest.run,
            seq=None if manifest.hold else entry and entry.seq,
            by=hold.by,
            why=hold.why,
            since=hold.since.isoformat(timespec="seconds"),
        )
    page = next((one for one in rest.lost if one.held), None)
    if page is not None:
        raise HeldError(
            "a page of history that can't be read has held checkpoints; bring its object back from a copy",
            run=manifest.run,
            seq=page.newest,
            key=keys.page_key(manifest.run, page.name),
            held=page.held,
        )


def _left(access: Access, report: Verified, rest: Rest) -> tuple[Problem, ...]:
    gone = {entry.seq for entry in rest.gone}
    lost = {access.pages.key(page) for page in rest.lost}
    return tuple(p for p in report.problems if p.key not in lost and p.seq not in gone)


async def _go_back(access: Access, writer: RunWriter, newest: int, seq: int) -> int:
    """Make an older checkpoint the newest once more, unless somebody saved meanwhile."""
    draft = Draft(
        commit=access.effects.new_id(), state=Again(seq), origin=Origin(access.run, seq), expect=newest
    )
    _, entry = await writer.save(draft)
    return entry.seq


async def _drop(access: Access, damaged: Collection[int], lost: Collection[Page]) -> Base:
    """Take damaged checkpoints, and pages that can't be read, out of the history."""
    known = {page.name for page in lost}

    async def edit(manifest: Manifest) -> Edit | None:
        rest = await _rest(access, manifest, {seq for seq in damaged if seq != manifest.seq})
        for page in rest.lost:
            if page.name not in known:  # replaced meanwhile, as by a tag; then it is looked at again
                raise CorruptCheckpointError(
                    "more of the history was damaged since it was looked at; repair the run again",
                    run=access.run,
                    seq=page.newest,
                    key=access.pages.key(page),
                )
        _check_holds(manifest, rest)
        return await _without(access, manifest, rest) if rest.gone or rest.lost else None

    return (await access.amend(edit))[0]


async def _without(access: Access, manifest: Manifest, rest: Rest) -> Edit:
    gone = {entry.seq for entry in rest.gone}
    leaves = [page if kept is None else await access.pages.leaf(kept) for page, kept in rest.pages]
    now = access.effects.clock.now()
    told = [Expired(entry.seq, entry.seq, now, RULE) for entry in rest.gone]
    told += [Expired(page.oldest, page.newest, now, RULE) for page in rest.lost]
    told.sort(key=lambda one: -one.last)
    new = replace(
        manifest,
        checkpoints=tuple(entry for entry in manifest.checkpoints if entry.seq not in gone),
        history=await access.pages.grouped(leaves),
        thinned=min(manifest.thinned, sum(page.count for page in leaves)),
        expired=merged((*told, *manifest.expired)),
    )
    wanted = new.keys()
    new = replace(new, inline={key: data for key, data in manifest.inline.items() if key in wanted})
    walk = Walk(access.pages, new, ahead=READS_AT_ONCE)
    used: set[str] = set()  # of the ledger, which may be damaged too, nothing is dropped
    while (piece := await walk.next()) is not None:
        used.update(extent.key for entry in piece.entries for extent in entry.extents)
    used.update(access.pages.key(page) for page in walk.seen)
    dropped = {access.pages.key(page): page.size for page in rest.seen}
    for entry in rest.gone:
        dropped |= owned(entry)
    return Edit(new, {key: size for key, size in dropped.items() if key not in used})
