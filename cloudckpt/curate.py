"""What people say of checkpoints and runs: tags, holds, notes, rules.

Owns: these changes of a manifest. Invariants: they are the same done twice; none
touches a state, adds a checkpoint or becomes the writer; only `release` lets go of a
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cloudckpt.access import Access, Edit
from cloudckpt.errors import HeldError
from cloudckpt.folding import Fold, merged, owned, ranges, thin
from cloudckpt.history import Filter, Which, choose, listed, not_there
from cloudckpt.model import Entry, Hold, Manifest
from cloudckpt.pages import find
from cloudckpt.pointer import Base
from cloudckpt.retention import (
    DEFAULT,
    Retention,
    inherits,
    no_weaker,
    placing_in,
    plan_expiry,
    rules_of,
    set_by,
)


async def edit_checkpoint(
    access: Access, which: Which, change: Callable[[Entry], Entry]
) -> tuple[Base, Entry]:
    """Change what is said of one checkpoint; return the manifest that stands then, and the checkpoint.

    Raises:
        CheckpointNotFoundError: It is not there.
        RunNotFoundError, RunDeletedError: Nor is the run.
    """
    found: list[Entry] = []

    async def edit(manifest: Manifest) -> Edit | None:
        entry = found[0] if found else await choose(access.pages, manifest, which)
        if entry is None:
            raise not_there(manifest, which)
        found[:] = [change(entry)]
        try:  # the same one as at first, when somebody saves meanwhile and the newest is meant
            return await access.edited(manifest, entry.seq, change)
        except KeyError:
            raise not_there(manifest, Which(seq=entry.seq)) from None

    base, _ = await access.amend(edit)
    return base, found[0]


async def edit_run(access: Access, change: Callable[[Manifest], Manifest]) -> Base:
    """Change what is said of the whole run; return the manifest that stands then."""

    async def edit(manifest: Manifest) -> Edit | None:
        new = change(manifest)
        return None if new == manifest else Edit(new)

    base, _ = await access.amend(edit)
    return base


def tagged(tag: str) -> Callable[[Entry], Entry]:
    """Return the change that gives a checkpoint a tag."""
    return lambda entry: entry if tag in entry.tags else replace(entry, tags=(*entry.tags, tag))


def untagged(tag: str) -> Callable[[Entry], Entry]:
    """Return the change that takes a tag from a checkpoint."""
    return lambda entry: replace(entry, tags=tuple(one for one in entry.tags if one != tag))


def held(hold: Hold | None) -> Callable[[Entry], Entry]:
    """Return the change that puts a hold on a checkpoint, or takes it off. A hold that is there stays."""
    return lambda entry: entry if hold and entry.hold else replace(entry, hold=hold)


def annotated(notes: Mapping[str, Any]) -> Callable[[Entry], Entry]:
    """Return the change that adds notes to a checkpoint; one that is None is taken away."""
    return lambda entry: replace(entry, notes=with_notes(entry.notes, notes))


def with_notes(old: Mapping[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return notes with others added; one that is None is taken away."""
    return {name: value for name, value in {**old, **notes}.items() if value is not None}


async def check_not_held(access: Access, manifest: Manifest) -> None:
    """Refuse what would delete a hold.

    Raises:
        HeldError: Names who set it, when, and why.
    """
    hold, seq = manifest.hold, None
    if hold is None:
        entry = await find(
            access.pages, manifest, lambda one: one.hold is not None, lambda page: page.held > 0
        )
        hold, seq = (entry.hold, entry.seq) if entry else (None, None)
    if hold is not None:
        raise HeldError(
            "a hold forbids it; release it first",
            run=manifest.run,
            seq=seq,
            by=hold.by,
            why=hold.why,
            since=hold.since.isoformat(timespec="seconds"),
        )


@dataclass(frozen=True, slots=True)
class Thinned:
    """What applying rules to a run did, or would do.

    Attributes:
        run: The run's id.
        rules: The rules.
        why: seq of each kept checkpoint, newest first, to the reason.
        dropped: seq of each dropped one, newest first.
        bytes: Bytes of payload that were written for the dropped ones.
    """

    run: str
    rules: Retention
    why: Mapping[int, str]
    dropped: tuple[int, ...]
    bytes: int


def rules_for(
    manifest: Manifest, rules: Retention | None, who: str | None
) -> tuple[Retention, Mapping[str, Any] | None]:
    """Return the rules to apply to a run, and what its manifest says of them from then on.

    Args:
        manifest: The run's.
        rules: Those that are given; None for those that the run has.
        who: Who gives them: "operator", or "store", whose rules are not for a run that an
            operator or its code gave its own, but for the placing that the code says nothing of;
            None to leave the run's own.
    """
    own = manifest.retention
    if rules is None:
        return rules_of(own), own
    if who is None:
        return rules, own
    if who == "operator":
        new = inherits(rules, rules_of(own))
    elif own is None or own["set_by"] == who:
        new = inherits(rules, DEFAULT)
    elif own["set_by"] == "operator":
        return rules_of(own), own
    else:
        new, who = no_weaker(rules_of(own), rules), own["set_by"]
    return new, set_by(who, new)


async def plan_retention(access: Access, manifest: Manifest, rules: Retention, *, now: datetime) -> Thinned:
    """Say what rules would keep and drop of a whole history at a time. Reads every page."""
    entries = await listed(access.pages, manifest, Filter())
    plan = plan_expiry(entries, rules=rules, epoch=manifest.epoch, now=now, hold=manifest.hold)
    size = sum(sum(owned(entry).values()) for entry in plan.dropped)
    return Thinned(manifest.run, rules, plan.why, tuple(entry.seq for entry in plan.dropped), size)


async def apply_retention(access: Access, rules: Retention | None, who: str | None) -> tuple[Base, Thinned]:
    """Apply rules to a whole history now.

    Args:
        access: To the run.
        rules: The rules; None for those that the run has.
        who: As in `rules_for`.
    """
    told: list[Thinned] = []

    async def edit(manifest: Manifest) -> Edit | None:
        chosen, retention = rules_for(manifest, rules, who)
        if retention != manifest.retention:
            access.placer.obey(placing_in, retention, access.effects.clock)
        now = access.effects.clock.now()
        told[:] = [await plan_retention(access, manifest, chosen, now=now)]
        if not told[0].dropped:
            return None if retention == manifest.retention else Edit(replace(manifest, retention=retention))
        return await _thinned(access, replace(manifest, retention=retention), chosen, now=now)

    base, _ = await access.amend(edit)
    return base, told[0]


async def _thinned(access: Access, manifest: Manifest, rules: Retention, *, now: datetime) -> Edit:
    fold, used = await thin(access.pages, manifest, rules, now=now)
    plan = plan_expiry(manifest.checkpoints, rules=rules, epoch=manifest.epoch, now=now, hold=manifest.hold)
    new = Fold.apply(fold, manifest) or manifest
    new = replace(
        new, checkpoints=plan.kept, expired=merged((*ranges(plan.dropped, now, rules), *new.expired))
    )
    wanted = new.keys()
    new = replace(new, inline={k: v for k, v in manifest.inline.items() if k in wanted})
    gone = {k: n for entry in plan.dropped for k, n in owned(entry).items()}
    gone = {k: n for k, n in gone.items() if k not in used and k not in wanted}
    return Edit(new, {**fold.dropped, **gone})
