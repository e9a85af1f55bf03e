"""The ledger of a run: what an agent does once.

Owns: how an action is noted before it is done, and its result after that; how old
ones leave the manifest; how one is found again. Invariants: an action's result is
written once and never changes; one that has not ended stays in the manifest; ledger
and checkpoints are in one document, so they can't disagree. It does not run actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from cloudckpt.effects import Effects, gather
from cloudckpt.entries import action_out
from cloudckpt.model import Action, Extent, Manifest
from cloudckpt.pages import READS_AT_ONCE, Pages, ledger_pages
from cloudckpt.sealed import canonical

WINDOW_BYTES = 12 * 1024
"""Actions of a manifest that take more than this move to pages, but for those that have not ended..."""

WINDOW_LEFT = 4 * 1024
"""...until this is left."""

INLINE_RESULT_BYTES = 4 * 1024
"""A result of at most this many bytes is in the ledger itself."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Note that an action begins.

    Attributes:
        key: Its name in the run.
        arguments: sha256 of what it is called with, in hex.
        attempt: New for every try.
        question: What is asked, if it is a question.
    """

    key: str
    arguments: str
    attempt: str
    question: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Note an action's result.

    Attributes:
        key: Its name in the run.
        attempt: That of its beginning.
        data: The encoded result; when it is large it is put
        extents: into an object first, and empty here.
    """

    key: str
    attempt: str
    data: bytes
    extents: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """What the ledger says of an action, or of a question, which is one too.

    Attributes:
        run: The run's id.
        number: From 1, in the order in which they were first begun.
        key: Its name in the run.
        arguments: sha256 of what it was called with, in hex.
        tries: How often it was begun.
        begun: When it was begun last, by that writer's clock.
        ended: When its result was recorded; None for one in flight.
        prompt: What is asked, for a question.
        by: Who answered it.
    """

    run: str
    number: int
    key: str
    arguments: str
    tries: int
    begun: datetime
    ended: datetime | None
    prompt: str | None
    by: str | None


Note = Begin | End


def noted(manifest: Manifest, notes: Iterable[Note], *, now: datetime) -> Manifest:
    """Return the manifest with notes in its ledger, and its status by them."""
    actions = {action.key: action for action in manifest.actions}
    number = max(
        [0, *(action.number for action in manifest.actions), *(page.newest for page in manifest.ledger)]
    )
    for note in notes:
        old = actions.get(note.key)
        if isinstance(note, End):
            if old is not None and old.ended is None:
                actions[note.key] = replace(
                    old,
                    ended=now,
                    result=None if note.extents else note.data,
                    extents=note.extents,
                )
        elif old is None:
            number += 1
            actions[note.key] = Action(
                number, note.key, note.arguments, note.attempt, 1, manifest.epoch, now, question=note.question
            )
        elif old.question is None:  # a question that was asked keeps its token
            actions[note.key] = replace(
                old, attempt=note.attempt, tries=old.tries + 1, epoch=manifest.epoch, begun=now
            )
    newest_first = tuple(sorted(actions.values(), key=lambda action: -action.number))
    return replace(manifest, actions=newest_first, status=status_of(manifest.status, newest_first))


def status_of(status: str, actions: Iterable[Action]) -> str:
    """Return a run's status: waiting, while a question has no answer."""
    if status not in ("running", "waiting"):
        return status
    open_ = any(action.question is not None and action.ended is None for action in actions)
    return "waiting" if open_ else "running"


def has(manifest: Manifest, notes: Iterable[Note]) -> bool:
    """Whether notes are in the manifest: how their writer knows its own commit again."""
    actions = {action.key: action for action in manifest.actions}
    for note in notes:
        action = actions.get(note.key)
        if action is None or action.attempt != note.attempt:
            return False
        if isinstance(note, End) and action.ended is None:
            return False
    return True


async def shortened(pages: Pages, manifest: Manifest, keep: Iterable[str]) -> Manifest:
    """Return the manifest with its oldest ended actions in a page, when they take too much room.

    Args:
        pages: Of the run.
        manifest: About to be committed; the page is put now.
        keep: Keys of actions that must stay, by which the commit is known again.
    """
    sizes = {action.key: len(canonical(action_out(action))) for action in manifest.actions}
    total = sum(sizes.values())
    if total <= WINDOW_BYTES:
        return manifest
    stay = set(keep)
    moved: list[Action] = []
    for action in reversed(manifest.actions):
        if total <= WINDOW_LEFT:
            break
        if action.ended is not None and action.key not in stay:
            moved.insert(0, action)
            total -= sizes[action.key]
    if not moved:
        return manifest
    leaf = await pages.leaf_of_actions(moved)
    gone = {action.key for action in moved}
    return replace(
        manifest,
        actions=tuple(action for action in manifest.actions if action.key not in gone),
        ledger=await pages.grouped((leaf, *manifest.ledger)),
    )


def action_info(run: str, action: Action) -> ActionInfo:
    """Return what a user is told of an action."""
    return ActionInfo(
        run=run,
        number=action.number,
        key=action.key,
        arguments=action.arguments,
        tries=action.tries,
        begun=action.begun,
        ended=action.ended,
        prompt=None if action.question is None else action.question.get("prompt", ""),
        by=action.by,
    )


async def newest_actions(pages: Pages, manifest: Manifest, *, limit: int | None) -> list[Action]:
    """Return a run's actions, the last begun first; a page that holds none of them is not read.

    What was long in flight moves to a page late, so pages may overlap: the next action is
    told only when no page that is left can hold a newer one.
    """
    left = list(manifest.ledger)
    known = list(manifest.actions)
    while left:
        newest = max(left, key=lambda page: page.newest)
        if limit is not None and sum(action.number > newest.newest for action in known) >= limit:
            break
        left.remove(newest)
        if newest.level:
            left += (await pages.read(newest))[1]
        else:
            known += await pages.actions(newest)
    return sorted(known, key=lambda action: -action.number)[:limit]


class Past:
    """The actions of one run that have left its manifest, as one process knows them.

    Args:
        pages: Of the run.
        effects: Time, chance and concurrency.
    """

    def __init__(self, pages: Pages, effects: Effects) -> None:
        self._pages = pages
        self._effects = effects
        self._read: set[str] = set()
        self._actions: dict[str, Action] = {}

    async def find(self, manifest: Manifest, key: str) -> Action | None:
        """Return the action, or None. Each page is read once in a process, however often this is asked."""
        if not manifest.ledger or key in self._actions:
            return self._actions.get(key)
        await self._read_all(manifest)
        return self._actions.get(key)

    async def _read_all(self, manifest: Manifest) -> None:
        leaves, branches = await ledger_pages(self._pages, manifest, known=self._read)
        for start in range(0, len(leaves), READS_AT_ONCE):
            some = leaves[start : start + READS_AT_ONCE]
            reads = [partial(self._pages.actions, page) for page in some]
            for actions in await gather(self._effects, reads, width=READS_AT_ONCE):
                self._actions.update((action.key, action) for action in actions)
        self._read.update(page.name for page in (*leaves, *branches))
