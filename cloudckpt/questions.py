"""What becomes of a question in a run's ledger: it is answered once, or expires for good.

Owns: how a question is found, how it is changed by who is not the run's writer, and when it
expires. Invariants: only the store's own clock decides when; that is noted before anybody acts
on it, so a question that has expired takes no answer, whatever clocks do afterwards. What is
asked of whom is `asking.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from cloudckpt import keys
from cloudckpt.access import Access, Edit
from cloudckpt.entries import time_in, time_out
from cloudckpt.errors import PermissionDeniedError
from cloudckpt.ledger import Begin, status_of
from cloudckpt.model import Action, Manifest
from cloudckpt.pointer import Base


def asked_by(actions: Iterable[Action], token: str) -> Action | None:
    """Return the question with this token."""
    return next((one for one in actions if one.attempt == token and one.question is not None), None)


def named(manifest: Manifest, key: str) -> Action | None:
    """Return the action of a manifest with this key."""
    return next((one for one in manifest.actions if one.key == key), None)


def with_action(manifest: Manifest, key: str, change: Callable[[Action], Action]) -> Edit | None:
    """Return the manifest with an action changed, and its status by that; None when it is so already."""
    actions = tuple(change(one) if one.key == key else one for one in manifest.actions)
    if actions == manifest.actions:
        return None
    return Edit(replace(manifest, actions=actions, status=status_of(manifest.status, actions)))


# ---- by the store's clock


async def store_time(access: Access) -> datetime:
    """Return what time it is by the store's own clock: three requests."""
    key = f"{keys.PROBES}{access.effects.new_id()}"
    await access.storage.put(key, b"now")
    page = await access.storage.list(key)
    with suppress(PermissionDeniedError):  # a writer's role may not delete; a few bytes harm nobody
        await access.storage.delete([key])
    return page.rows[0].modified


async def dated(access: Access, ask: Begin) -> Begin:
    """Return what is asked with the store's time, if it expires.

    It is in the commit that asks: a question that was left without a time would never expire.
    """
    question = ask.question or {}
    if question.get("expires") is None:
        return ask
    return replace(ask, question={**question, "asked": time_out(await store_time(access))})


def due(question: Mapping[str, Any]) -> datetime | None:
    """Return when a question expires; None for never."""
    if question.get("expires") is None or "asked" not in question:
        return None
    return time_in(question["asked"]) + timedelta(seconds=question["expires"])


def is_expired(action: Action) -> bool:
    """Whether it is noted that a question has expired."""
    return bool((action.question or {}).get("expired"))


async def has_expired(access: Access, action: Action) -> bool:
    """Whether a question has expired, noted or not; asks the store what time it is if need be."""
    when = due(action.question or {})
    if is_expired(action) or action.ended is not None or when is None:
        return is_expired(action)
    return await store_time(access) >= when


async def expire(access: Access, action: Action, nothing: bytes) -> tuple[Base, Action]:
    """Note that a question has expired, unless an answer is faster; return what stands then, and what it is.

    Else an answer that was under way, or a clock that is set back, would count after all, when the
    run has gone on without.

    Args:
        access: The run.
        action: The question.
        nothing: None as a result is encoded.
    """
    end = replace(
        action,
        ended=access.effects.clock.now(),
        result=nothing,
        question={**(action.question or {}), "expired": True},
    )

    async def edit(manifest: Manifest) -> Edit | None:
        return with_action(manifest, action.key, lambda one: end if one.ended is None else one)

    base, _ = await access.amend(edit)
    return base, named(base.manifest, action.key) or end
