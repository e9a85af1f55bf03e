"""Which of a run's checkpoints is meant, and what became of one that is not there.

Owns: finding one by seq, tag or step, and the listing of many. Invariant: only pages
of history that may hold what is asked for are read. Reading never writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cloudckpt.errors import CheckpointNotFoundError, InvalidInputError, RunDeletedError
from cloudckpt.labels import MAX_INT, check_tags
from cloudckpt.model import Entry, Manifest, Page
from cloudckpt.pages import Pages, Walk, find

MOST_AHEAD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """One checkpoint: by at most one of these; by none, the newest.

    Attributes:
        seq: Its number.
        tag: The newest with this tag.
        step: The newest with this step.

    Raises:
        InvalidInputError: More than one is given, or one that is not usable.
    """

    seq: int | None = None
    tag: str | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.seq, self.tag, self.step)) > 1:
            raise InvalidInputError("name the checkpoint by one of seq, tag and step")
        if self.seq is not None and (type(self.seq) is not int or self.seq < 1):
            raise InvalidInputError("seq must be a whole number from 1", got=self.seq)
        _check_step(self.step)
        if self.tag is not None:
            check_tags([self.tag])

    def is_it(self, entry: Entry) -> bool:
        """Whether the checkpoint is one of these."""
        if self.seq is not None:
            return entry.seq == self.seq
        if self.tag is not None:
            return self.tag in entry.tags
        return self.step is None or entry.step == self.step

    def may_be_in(self, page: Page) -> bool:
        """Whether one may be in a page."""
        if self.seq is not None:
            return page.oldest <= self.seq <= page.newest
        if self.tag is not None:
            return page.tags is None or self.tag in page.tags
        return self.step is None or (page.steps is not None and page.steps[0] <= self.step <= page.steps[1])


def _check_step(step: int | None) -> None:
    if step is not None and (type(step) is not int or not 0 <= step <= MAX_INT):
        raise InvalidInputError("step must be a whole number from 0", got=step)


async def choose(pages: Pages, manifest: Manifest, which: Which) -> Entry | None:
    """Return the checkpoint, or None when the newest is wanted of a run that has none.

    Raises:
        CheckpointNotFoundError: It is not there; says when it expired and by which rule, if it did.
        RunDeletedError: The run has a tombstone.
    """
    if manifest.status == "deleted":
        raise RunDeletedError("the run was deleted; there is nothing to load", run=manifest.run)
    if which == Which():
        return manifest.head
    entry = await find(pages, manifest, which.is_it, which.may_be_in)
    if entry is None:
        raise not_there(manifest, which)
    return entry


def not_there(manifest: Manifest, which: Which) -> CheckpointNotFoundError:
    """Return the error for a checkpoint that is not retained."""
    retained = [entry.seq for entry in manifest.checkpoints]
    if which.seq is None:
        return CheckpointNotFoundError(
            "the run has no such checkpoint, or it has expired; look at its history",
            run=manifest.run,
            tag=which.tag,
            step=which.step,
            newest=manifest.seq,
        )
    if which.seq > manifest.seq:
        return CheckpointNotFoundError(
            "the run has no such checkpoint yet; load one that is retained",
            run=manifest.run,
            seq=which.seq,
            retained=retained,
        )
    told = next((one for one in manifest.expired if one.first <= which.seq <= one.last), None)
    return CheckpointNotFoundError(
        "the checkpoint has expired; load one that is retained",
        run=manifest.run,
        seq=which.seq,
        rule=told and told.rule,
        until=told and told.time.isoformat(timespec="seconds"),
        retained=retained,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which checkpoints of a history are wanted; all of what is given must hold.

    Attributes:
        since: Saved at or after this time.
        until: Saved before this time.
        step: With this step.
        tag: With this tag.
        limit: At most so many of the newest, from 1.

    Raises:
        InvalidInputError: A time has no zone, or a number is not usable.
    """

    since: datetime | None = None
    until: datetime | None = None
    step: int | None = None
    tag: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            time = getattr(self, name)
            if time is not None and (not isinstance(time, datetime) or time.tzinfo is None):
                raise InvalidInputError(f"{name} must be a datetime with a time zone", got=time)
        if self.limit is not None and (type(self.limit) is not int or self.limit < 1):
            raise InvalidInputError("limit must be a whole number from 1", got=self.limit)
        _check_step(self.step)
        if self.tag is not None:
            check_tags([self.tag])

    def holds(self, entry: Entry) -> bool:
        """Whether the checkpoint is wanted."""
        return (
            (self.since is None or entry.time >= self.since)
            and (self.until is None or entry.time < self.until)
            and (self.step is None or entry.step == self.step)
            and (self.tag is None or self.tag in entry.tags)
        )

    def may_hold(self, page: Page) -> bool:
        """Whether a wanted one may be in a page."""
        return (
            (self.since is None or page.until >= self.since)
            and (self.until is None or page.since < self.until)
            and (self.step is None or Which(step=self.step).may_be_in(page))
            and (self.tag is None or Which(tag=self.tag).may_be_in(page))
        )


async def listed(pages: Pages, manifest: Manifest, wanted: Filter) -> list[Entry]:
    """Return the wanted checkpoints, newest first."""
    found: list[Entry] = []
    walk = Walk(pages, manifest, want=wanted.may_hold, ahead=1 if wanted.limit else MOST_AHEAD)
    while (piece := await walk.next()) is not None:
        for entry in piece.entries:
            if wanted.holds(entry):
                found.append(entry)
                if len(found) == wanted.limit:
                    return found
    return found
