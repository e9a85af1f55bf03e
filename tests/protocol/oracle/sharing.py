"""A store as a queue of runs for workers."""

from __future__ import annotations

from dataclasses import replace

from tests.protocol.oracle.operator import Handle
from tests.protocol.oracle.values import Act, Fates, Life, Refused, Saved
from tests.protocol.oracle.world import Desk


def submit(desk: Desk, run: str, saved: Saved | None, fates: Fates) -> Saved | None:
    """Begin a run that anybody may have."""
    handle = Handle(desk, run, None)
    handle.offers = True
    try:
        if saved is not None:
            return handle.save(saved, fates, expect=0)
        handle.become(fates, 0)
        handle.commit(lambda base: (base, None), fates)
    except Refused as refusal:
        raise Refused(
            *("ConflictError" if one == "StaleStateError" else one for one in refusal.names)
        ) from None
    return None


def offer(desk: Desk, run: str, fates: Fates) -> None:
    """Let anybody have a run that is there."""

    def edit(life: Life) -> Life | None:
        status = "waiting" if _waits_for(life) else "running"
        if life.lease is not None and life.lease[0] is None and life.status == status:
            return None
        if desk.is_busy(run, life):
            raise Refused("RunBusyError")
        return replace(life, status=status, lease=(None, (life.lease[1] if life.lease else 0) + 1))

    desk.world.amend(run, edit, fates)


def free(desk: Desk, prefix: str) -> set[str]:
    """Return the runs of which a worker may have any."""
    return {
        run
        for run, life in desk.world.lives.items()
        if run.startswith(prefix)
        and life.lease is not None
        and life.status in ("running", "waiting")
        and not any(act.child is None and act.expires is None for act in _waits_for(life))
        and not desk.is_busy(run, life)
        and all(_has_come(desk, act) for act in _waits_for(life))
    }


def _waits_for(life: Life) -> list[Act]:
    return [act for act in life.actions if act.prompt is not None and not act.ended]


def _has_come(desk: Desk, act: Act) -> bool:
    if act.child is not None:
        child = desk.world.get(act.child)
        return child is not None and (child.deleted or child.status == "done")
    if act.expires is None or act.asked is None:
        return False
    return (desk.world.time() - act.asked).total_seconds() >= act.expires
