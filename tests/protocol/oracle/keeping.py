"""What is done with runs as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.protocol.oracle.operator import Handle
from tests.protocol.oracle.values import Act, Fates, Life, Refused, Saved
from tests.protocol.oracle.world import Desk, World, numbers

REMEMBERED = 32
"""Commits that a run knows by their names, whether they are kept or not."""


def fork(desk: Desk, run: str, which: Mapping[str, Any], to: Desk, new: str, fates: Fates) -> Saved:
    """Begin a run from a checkpoint of another."""
    old = desk.world.load(run, which)
    if old is None:
        raise Refused("RunNotFoundError" if desk.world.get(run) is None else "CheckpointNotFoundError")
    origin = (run, old.seq, None if to is desk else desk.world.url)
    begun = replace(old, tags=(), hold=None, notes={}, origin=origin)
    return Handle(to, new, None).save(begun, fates, expect=0)


def delete(world: World, run: str, *, by: str, why: str, dry_run: bool, left: bool, fates: Fates) -> Life:
    """Leave a tombstone of a run, or of what is `left` of one; return it, or by a dry run what stands."""
    if left:
        tomb = Life(epoch=1, writer=next(numbers), tomb=(by, why), status="deleted")
        if not dry_run:
            world.write(run, None, tomb, fates.next())
        return tomb if dry_run else world.existing(run, deleted=True)

    def edit(life: Life) -> Life | None:
        if life.deleted:
            return None
        if life.hold or any(saved.hold for saved in life.kept):
            raise Refused("HeldError")
        buried = Life(seq=life.seq, commits=life.commits, epoch=life.epoch + 1, writer=next(numbers))
        return None if dry_run else replace(buried, tomb=(by, why), status="deleted")

    return world.amend(run, edit, fates, deleted=True)


def collect(world: World, run: str, *, doomed: bool, fates: Fates) -> None:
    """Remove what nothing refers to, behind a write that changes nothing."""
    life = world.existing(run, deleted=True)
    if doomed:
        world.write(run, life, replace(life, copied=None), fates.next())


def may_copy(here: World, run: str, there: World) -> bool:
    """Return whether the two differ by what is known here; refuse what must be."""
    life, old = here.existing(run), there.get(run)
    if old is None:
        return True
    if old.deleted:
        raise Refused("RunDeletedError")
    if old is not life and old.copied != here.url:
        _check_nothing_lost(life, old)
    return old is not life and not old.same_as(replace(life, copied=here.url))


def _check_nothing_lost(life: Life, old: Life) -> None:
    if not _holds_all(life, old) or not all(_knows(life, act) for act in old.actions):
        raise Refused("ConflictError")
    if not _held(old) <= _held(life):
        raise Refused("HeldError")


def _knows(life: Life, act: Act) -> bool:
    same = life.action(act.key)
    return same is not None and (same.ended or not act.ended)


def _held(life: Life) -> set[int]:
    return {saved.seq for saved in life.kept if saved.hold} | ({0} if life.hold else set())


def _holds_all(life: Life, old: Life) -> bool:
    """Whether the one is a later form of the other, as far as a run remembers its past."""
    known = life.seq - old.seq < REMEMBERED or any(saved.seq == old.seq for saved in life.kept)
    if old.seq and (not known or life.commits[old.seq - 1 : old.seq] != old.commits[-1:]):
        return False
    return old.epoch < life.epoch or old.writer == life.writer


def copy(here: World, run: str, to: Desk, *, changed: bool, fates: Fates) -> Life:
    """Copy a run; return what stands there then."""
    may_copy(here, run, to.world)
    if changed:
        old = to.world.get(run)
        if old is None:
            to.prepare()
        to.world.arriving.add(run)
        to.world.write(run, old, replace(here.existing(run), copied=here.url), fates.next())
    return to.world.existing(run)


def export(world: World, run: str) -> Life:
    """Return what an archive has of a run."""
    return world.existing(run, deleted=True)


def import_(point: Life, run: str, to: Desk, fates: Fates) -> bool:
    """Bring a run from an archive; return whether it was there."""
    old = to.world.get(run)
    if old is None:
        to.prepare()
        to.world.arriving.add(run)
        to.world.write(run, None, point, fates.next())
        return False
    if not old.same_as(point):
        raise Refused("ConflictError")
    return True
