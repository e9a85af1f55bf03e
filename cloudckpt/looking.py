"""What can be seen of a run: its summary, its history, its payloads, what differs.

Owns: looking, as methods of `Run`; each in two forms, sync and async with a leading
``a``. Invariant: none of them writes or becomes the run's writer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudckpt.core import Core
from cloudckpt.errors import CheckpointNotFoundError, CorruptCheckpointError, RunNotFoundError
from cloudckpt.history import Filter, Which, choose, listed
from cloudckpt.late import Late
from cloudckpt.load import Loaded
from cloudckpt.model import CheckpointInfo, Entry, Manifest, describe
from cloudckpt.twins import awaited, waits

if TYPE_CHECKING:
    from cloudckpt import summary
    from cloudckpt.access import Access
    from cloudckpt.codec import diffing
    from cloudckpt.codec.diffing import Change
    from cloudckpt.summary import RunSummary
else:  # a load needs none of them
    diffing = Late("cloudckpt.codec.diffing")
    summary = Late("cloudckpt.summary")


@dataclass(frozen=True, slots=True)
class Payload:
    """A checkpoint's stored bytes, whose digest was checked.

    Attributes:
        info: The checkpoint.
        data: The bytes as they are stored: `info.size` of them, whose sha256 is `info.digest`.
        damage: Why newer checkpoints were passed over, newest first.
    """

    info: CheckpointInfo
    data: bytes
    damage: tuple[CorruptCheckpointError, ...] = ()


class Looking:
    """The part of `Run` that reads."""

    id: str
    _core: Core

    async def _load(self, which: Which, *, fallback: bool) -> Loaded | None:
        raise NotImplementedError

    def _decoded(self, loaded: Loaded | None, type: type[Any] | None) -> Any:
        raise NotImplementedError

    @property
    def access(self) -> Access:
        """The run as the operations of this package have it."""
        return self._core.access(self.id)

    # ---- what a manifest and its pages tell

    async def _history(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> list[CheckpointInfo]:
        """Return the retained checkpoints, newest first; none for a run that does not exist.

        Reads the manifest and only those pages of older checkpoints that may hold what is asked for.

        Args:
            since: Only those saved at or after this time, by their writers' clocks.
            until: Only those saved before this time.
            step: Only those with this step.
            tag: Only those with this tag.
            limit: At most so many of the newest, from 1.

        Raises:
            InvalidInputError: An argument is not usable.
            CorruptCheckpointError: The manifest or a page is damaged.
        """
        wanted = Filter(since=since, until=until, step=step, tag=tag, limit=limit)

        async def look(manifest: Manifest) -> list[CheckpointInfo]:
            entries = await listed(self.access.pages, manifest, wanted)
            return [describe(manifest, entry) for entry in entries]

        try:
            return await self.access.reading(look, deleted=True)
        except RunNotFoundError:
            return []

    history = waits(_history)
    ahistory = awaited(_history)

    async def _find(
        self, *, seq: int | None = None, tag: str | None = None, step: int | None = None
    ) -> CheckpointInfo:
        """Return what is known of one checkpoint, without its state: by default the newest.

        Raises:
            CheckpointNotFoundError: It is not there; says when it expired and by which rule, if it did.
            RunNotFoundError, RunDeletedError: Nor is the run.
        """
        manifest, entry = await self._look(Which(seq=seq, tag=tag, step=step))
        return describe(manifest, entry)

    find = waits(_find)
    afind = awaited(_find)

    async def _look(self, which: Which) -> tuple[Manifest, Entry]:
        async def look(manifest: Manifest) -> tuple[Manifest, Entry]:
            entry = await choose(self.access.pages, manifest, which)
            if entry is None:
                raise CheckpointNotFoundError("the run has no checkpoint yet", run=self.id)
            return manifest, entry

        return await self.access.reading(look)

    async def _summary(self) -> RunSummary:
        """Return what there is to know of the run as a whole, of a deleted one too: one request.

        Raises:
            RunNotFoundError: There is no such run.
            CorruptCheckpointError: Its manifest is damaged.
        """
        return summary.summarize((await self.access.base(deleted=True)).manifest)

    summary = waits(_summary)
    asummary = awaited(_summary)

    # ---- states

    async def _payload(
        self,
        *,
        seq: int | None = None,
        tag: str | None = None,
        step: int | None = None,
        fallback: bool = False,
    ) -> Payload:
        """Return a checkpoint's stored bytes, verified and not decoded: by default the newest's.

        Args:
            seq: Which checkpoint.
            tag: Which checkpoint, by its tag.
            step: Which checkpoint, by its step.
            fallback: When that one is damaged, go back to the newest intact one.

        Raises:
            CorruptCheckpointError: It is damaged; names run, seq, key and the newest intact one.
            CheckpointNotFoundError: It is not there; says when it expired and by which rule, if it did.
            RunNotFoundError, RunDeletedError: Nor is the run.
        """
        loaded = await self._loaded(Which(seq=seq, tag=tag, step=step), fallback=fallback)
        return Payload(describe(loaded.manifest, loaded.entry), loaded.data, loaded.damage)

    payload = waits(_payload)
    apayload = awaited(_payload)

    async def _loaded(self, which: Which, *, fallback: bool = False) -> Loaded:
        loaded = await self._load(which, fallback=fallback)
        if loaded is None:
            await self.access.base()  # says so where it is the run that is missing
            raise CheckpointNotFoundError("the run has no checkpoint yet", run=self.id)
        return loaded

    async def _diff(self, old: int | str, new: int | str | None = None) -> list[Change]:
        """Return what differs between the states of two checkpoints, by path; empty when nothing does.

        Args:
            old: seq, or else a tag, of the older one.
            new: The same of the newer one; by default the run's newest.

        Raises:
            CheckpointNotFoundError: One of them is not there.
            CorruptCheckpointError: One of them is damaged.
            RunNotFoundError, RunDeletedError: There is no such run.
        """
        before = await self._loaded(_which(old))
        after = await self._loaded(Which() if new is None else _which(new))
        return diffing.diff(self._decoded(before, None), self._decoded(after, None))

    diff = waits(_diff)
    adiff = awaited(_diff)


def _which(name: int | str) -> Which:
    return Which(tag=name) if isinstance(name, str) else Which(seq=name)
