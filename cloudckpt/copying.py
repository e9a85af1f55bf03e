"""Copying runs from one store to another, of whatever kind.

Owns: the order of steps: objects first, the manifest last and on condition. Invariants:
what stands at the destination is one consistent point of the source, with all its
history, tags and holds; every byte was checked against the digest in its key on its
way; a copy that was interrupted goes on where it stopped, since objects that are there
are not sent again; a run of the destination's own is never overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from cloudckpt import keys
from cloudckpt.access import Access
from cloudckpt.collect import objects_of
from cloudckpt.core import Core
from cloudckpt.errors import ConflictError, CorruptCheckpointError, HeldError, RunDeletedError
from cloudckpt.model import Action, Hold, Manifest, Page
from cloudckpt.pages import Walk, every_key, find, ledger_pages
from cloudckpt.pointer import Base

AT_ONCE = 8
LARGE_AT_ONCE = 2
LARGE_BYTES = 4 << 20
"""Objects over this travel two at a time, as each is held in memory."""

TRIES = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """What copying a run did, or would do.

    Attributes:
        run: The run's id.
        seq: The newest checkpoint at the destination.
        objects: How many objects belong to the run.
        sent: How many of them had to be sent.
        bytes: Bytes of these.
        changed: Whether the destination was not up to date already.
    """

    run: str
    seq: int
    objects: int
    sent: int
    bytes: int
    changed: bool


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What is to be copied of a run, as both sides stand.

    Attributes:
        manifest: The point of the source that is copied.
        base: What stands at the destination, or None.
        objects: What belongs to the run, with the bytes of each.
        missing: Those that the destination lacks, with their bytes.
        changed: Whether there is anything to do.
    """

    manifest: Manifest
    base: Base | None
    objects: Mapping[str, int]
    missing: Mapping[str, int]
    changed: bool


def copy_run(
    source: Core,
    run_id: str,
    to: Core,
    *,
    check: bool = False,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Copied:
    """Copy a run, or what is new of one that was copied before. The source may be written to meanwhile.

    Safe to call again after a failure half way.

    Args:
        source: Where the run is.
        run_id: Its id, which stays the same.
        to: Another store, or another prefix.
        check: Look also when the destination is up to date, and send what it has lost.
        dry_run: Only say what would be sent; nothing is written.
        progress: Is told the bytes of each object that was sent, from several threads. What it
            raises ends the copy.

    Raises:
        ConflictError: The destination has a run of that id which is no copy of this one, or an action
            or an answer that this one does not know.
        HeldError: The destination has a hold that the source has not; names who set it, when, and why.
        CorruptCheckpointError: The source is damaged; names the key.
        RunNotFoundError, RunDeletedError: There is nothing to copy; or, with `kind` "there", the
            destination has a tombstone of the run.
    """
    missing: str | None = None
    for _ in range(TRIES):
        try:
            plan = plan_copy(source, run_id, to, check=check)
        except CorruptCheckpointError as error:
            if error.key == missing:
                raise
            missing = error.key  # a page that somebody replaced since is not missed a second time
            continue
        if dry_run or not plan.changed:
            return _copied(plan, len(plan.missing), sum(plan.missing.values()))
        try:
            sent = _act(source, to, plan, progress or _unheard)
            if sent is not None:
                again, more = _again(source, to, plan, progress or _unheard)
                return _copied(plan, len(plan.missing) + again, sent + more)
        except CorruptCheckpointError:
            newer = source.call(source.access(run_id).base())
            if newer.manifest.nonce == plan.manifest.nonce:
                raise  # else it expired while it was being copied
    raise ConflictError("the run changes faster than it can be copied; try again later", run=run_id)


def plan_copy(source: Core, run_id: str, to: Core, *, check: bool = False) -> CopyPlan:
    """Look at both sides and say what is to be done; raises as `copy_run`."""
    here, there = source.access(run_id), to.access(run_id)

    async def point(manifest: Manifest) -> tuple[Manifest, dict[str, int]]:
        return manifest, await every_key(here.pages, manifest)

    manifest, wanted = source.call(here.reading(point))
    base = to.call(there.pointer.read())
    if base is not None:
        _check_copy(source, manifest, base.manifest)
        _check_said(source, to, manifest, base.manifest)
        if as_copy(manifest, source, base.manifest.nonce) == base.manifest:
            lost = _lacking(source, to, manifest, wanted, base) if check else {}
            return CopyPlan(manifest, base, wanted, lost, changed=bool(lost))
    lacking = _lacking(source, to, manifest, wanted, base)
    # One document under two names is one store: a copy onto itself.
    same = base is not None and base.manifest.nonce == manifest.nonce and not lacking
    return CopyPlan(manifest, base, wanted, lacking, changed=not same)


def _lacking(
    source: Core, to: Core, manifest: Manifest, wanted: Mapping[str, int], base: Base | None
) -> dict[str, int]:
    """Return what the destination has not of the objects of a run, with their bytes.

    What rides needs none, but where somebody wrote at the destination itself: an agent there may know that it
    has put one, and an operator may have deleted that since.
    """
    have = to.call(objects_of(to.storage, manifest.run))
    own = base is not None and base.manifest.copied != source.url and base.manifest.nonce != manifest.nonce
    missing = [key for key in wanted if key not in have and (own or key not in manifest.inline)]
    # Several checkpoints may refer to one object, as after a rollback: the listing says how large it is.
    sizes = source.call(objects_of(source.storage, manifest.run)) if missing else {}
    return {key: sizes.get(key, wanted[key]) for key in missing}


def _copied(plan: CopyPlan, sent: int, total: int) -> Copied:
    manifest = plan.manifest
    return Copied(manifest.run, manifest.seq, len(plan.objects), sent, total, plan.changed)


def _unheard(_: int) -> None:
    """Tell nobody."""


def _act(source: Core, to: Core, plan: CopyPlan, progress: Callable[[int], None]) -> int | None:
    """Do what is planned; return the bytes sent. None when the destination must be looked at again."""
    manifest, base = plan.manifest, plan.base
    sent = _send(source, to, manifest, plan.missing, progress)
    if base is None:
        to.call(to.prepare())
    new = as_copy(manifest, source, to.effects.new_id())
    pointer = to.access(manifest.run).pointer
    _, landed = to.call(pointer.swap(base, new, lambda m: m.nonce == new.nonce))
    return sent if landed else None


def _again(source: Core, to: Core, plan: CopyPlan, progress: Callable[[int], None]) -> tuple[int, int]:
    """Send what is gone from the destination since it was looked at; return how many, and their bytes.

    An earlier copy that broke off left objects that nothing referred to, and a collector may have
    listed them before this copy did refer to them: it deletes them all the same.
    """
    if plan.base is None:  # of a run without a manifest nothing is collected
        return 0, 0
    gone = _lacking(source, to, plan.manifest, plan.objects, plan.base)
    return len(gone), _send(source, to, plan.manifest, gone, progress)


def as_copy(manifest: Manifest, source: Core, nonce: str) -> Manifest:
    """Return the manifest as it is written at the destination."""
    return replace(manifest, nonce=nonce, copied=source.url)


def _check_copy(source: Core, manifest: Manifest, old: Manifest) -> None:
    """Refuse to overwrite what did not come from this run.

    Nobody became its writer whom the source does not know: an epoch that went back would fence nobody any
    more. And its newest checkpoint must be one of the source's. Of a copy that nobody wrote to since, that
    may have expired here; but a source that is behind it has lost something, or begun anew.
    """
    if old.status == "deleted":
        raise RunDeletedError(
            "the destination has a tombstone of the run; copy it to another store", kind="there", run=old.run
        )
    if old == manifest:
        return
    is_ahead = (
        old.seq > manifest.seq
        or old.epoch > manifest.epoch
        or (old.epoch == manifest.epoch and old.writer.id != manifest.writer.id)
    )
    if old.copied == source.url:
        known = manifest.commit_of(old.seq) or old.commit_of(old.seq)
    else:
        known = _commit_of(source, manifest, old.seq)
    if is_ahead or (old.head is not None and known != old.head.commit):
        raise ConflictError(
            "the destination has a run of that id with another history; copy to another store",
            run=old.run,
            there=old.seq,
            here=manifest.seq,
        )


def _check_said(source: Core, to: Core, manifest: Manifest, old: Manifest) -> None:
    """Refuse to drop what was said or done at the destination and is not known here: a hold, an action."""
    if old.copied == source.url:
        return
    here, there = source.access(old.run), to.access(old.run)
    ours, theirs = source.call(_ledger(here, manifest)), to.call(_ledger(there, old))
    done = to.call(_actions(there, old, theirs - ours))
    known = source.call(_actions(here, manifest, ours - theirs)) if done else {}
    for key, action in done.items():
        if key not in known or (action.ended is not None and known[key].ended is None):
            raise ConflictError(
                "at the destination something was done, or answered, that the source does not know; copy to "
                "another store",
                run=old.run,
                action=key,
                by=action.by,
            )
    held = to.call(_holds(there, old))
    known_holds = source.call(_holds(here, manifest)) if held else {}
    lost = next((seq for seq in held if seq not in known_holds), None)
    if lost is not None:
        hold = held[lost]
        raise HeldError(
            "the destination has a hold that the source has not; release it there first, or set it here too",
            run=old.run,
            seq=lost or None,
            by=hold.by,
            why=hold.why,
            since=hold.since.isoformat(timespec="seconds"),
        )


async def _ledger(access: Access, manifest: Manifest) -> set[Page]:
    return set((await ledger_pages(access.pages, manifest))[0])


async def _actions(access: Access, manifest: Manifest, pages: Collection[Page]) -> dict[str, Action]:
    """Return the actions of a manifest and of pages of its ledger, by their keys."""
    found: dict[str, Action] = {}
    for page in pages:
        found |= {action.key: action for action in await access.pages.actions(page)}
    return found | {action.key: action for action in manifest.actions}


async def _holds(access: Access, manifest: Manifest) -> dict[int, Hold]:
    """Return the holds of a run's checkpoints by seq, and that of the whole run as 0."""
    found = {} if manifest.hold is None else {0: manifest.hold}
    walk = Walk(access.pages, manifest, want=lambda page: page.held > 0)
    while (piece := await walk.next()) is not None:
        found |= {entry.seq: entry.hold for entry in piece.entries if entry.hold is not None}
    return found


def _commit_of(source: Core, manifest: Manifest, seq: int) -> str | None:
    """Return the id of the commit that made a checkpoint of the source, as long as it is known there."""
    known = manifest.commit_of(seq)
    if known is not None:
        return known
    entry = source.call(
        find(
            source.access(manifest.run).pages,
            manifest,
            lambda entry: entry.seq == seq,
            lambda page: page.oldest <= seq <= page.newest,
        )
    )
    return None if entry is None else entry.commit


def _send(
    source: Core, to: Core, manifest: Manifest, missing: Mapping[str, int], progress: Callable[[int], None]
) -> int:
    """Copy objects; return their bytes. After a failure no other is begun."""
    failed: list[str] = []

    def send(key: str) -> int:
        if failed:
            return 0
        try:
            data = manifest.inline.get(key) or _checked(source, manifest.run, key)
            to.call(to.storage.put(key, data))
            progress(len(data))
        except BaseException:
            failed.append(key)
            raise
        return len(data)

    small = [key for key, size in missing.items() if size <= LARGE_BYTES]
    large = [key for key, size in missing.items() if size > LARGE_BYTES]
    total = 0
    for some, width in ((small, AT_ONCE), (large, LARGE_AT_ONCE)):
        if len(some) < 2:  # where small runs are copied by the thousand, threads cost more than the object
            total += sum(map(send, some))
            continue
        with ThreadPoolExecutor(width, "cloudckpt") as pool:
            total += sum(pool.map(send, some))
    return total


def _checked(source: Core, run_id: str, key: str) -> bytes:
    stored = source.call(source.storage.read(key))
    if stored is None:
        raise CorruptCheckpointError("the checkpoint's object is missing", run=run_id, key=key)
    if hashlib.sha256(stored.data).hexdigest() != keys.object_digest(key):
        raise CorruptCheckpointError("the object's bytes do not match its digest", run=run_id, key=key)
    return stored.data
