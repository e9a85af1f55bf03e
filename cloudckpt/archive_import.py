"""Bringing runs of an archive into a store.

Owns: the order of steps: a run's objects first, its manifest last and on condition.
Invariants: no object is written that does not match its digest, and no manifest of a
run that is not whole; a run that exists is never overwritten; an import that was
interrupted is run again and goes on where it stopped, since objects that are there are
not put again. It does not check signatures: verify the archive first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

from cloudckpt import keys
from cloudckpt.access import Access
from cloudckpt.archive import ArchivedObject, ArchivedRun, Contents
from cloudckpt.collect import objects_in
from cloudckpt.core import Core
from cloudckpt.effects import gather
from cloudckpt.errors import ConflictError, CorruptCheckpointError, RunNotFoundError
from cloudckpt.examine import Problem
from cloudckpt.model import Manifest
from cloudckpt.storage.retry import each_its_own

PUTS_AT_ONCE = 8
WAITING_BYTES = 16 << 20
"""Objects wait for each other, to be put side by side, until they are so many bytes."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What importing a run did.

    Attributes:
        run: The run's id.
        seq: Its newest checkpoint.
        checkpoints: How many are retained.
        objects, bytes: What had to be put.
        was_there: Whether an earlier import had brought it already.
    """

    run: str
    seq: int
    checkpoints: int
    objects: int
    bytes: int
    was_there: bool


class _Arrival:
    """A run whose objects come: what of it is in the store already."""

    def __init__(self, segment: str, there: dict[str, int] | None) -> None:
        self.segment = segment
        self.objects = 0
        self.bytes = 0
        self._there = there

    @property
    def has_manifest(self) -> bool:
        """Whether a manifest stands in the store, so that nothing may be put."""
        return self._there is None

    def needs(self, item: ArchivedObject, size: int) -> bool:
        """Whether an object must be put.

        Raises:
            CorruptCheckpointError: There is something else of that name.
        """
        if self._there is None:
            return False
        found = self._there.get(item.key)
        if found is None:
            self.objects += 1
            self.bytes += size
        elif found != size:
            raise CorruptCheckpointError(
                "an object of that name is in the store and has another length; delete it first",
                key=item.key,
                there=found,
                archived=size,
            )
        return found is None


class Importer:
    """Reads one archive into one store.

    Args:
        core: The store.
        file: The archive.
        runs: Ids of the runs that are wanted; None for all.
    """

    def __init__(self, core: Core, file: BinaryIO, runs: Iterable[str] | None) -> None:
        self._core = core
        self._storage = core.storage
        self._effects = core.effects
        self._contents = Contents(file, keep=True)
        self._wanted = None if runs is None else {keys.encode_run(run): run for run in runs}
        self._arrival: _Arrival | None = None
        self._waiting: list[tuple[str, bytes]] = []
        self._done: list[Imported] = []

    async def run(self) -> tuple[Imported, ...]:
        """Import; return what was done for each run."""
        items = iter(self._contents)
        with each_its_own():
            while await self._next(items):
                pass
        if self._contents.problems:
            raise _refused(self._contents.problems[0])
        missing = set(self._wanted or ()) - {keys.encode_run(one.run) for one in self._done}
        if missing:
            run = min((self._wanted or {})[segment] for segment in missing)
            raise RunNotFoundError("the archive has no such run", run=run)
        return tuple(self._done)

    async def _next(self, items: Iterator[ArchivedObject | ArchivedRun]) -> bool:
        # Off the loop: whoever writes into a pipe may take hours, and other runs save meanwhile.
        item = await self._effects.offload(lambda: next(items, None))
        if isinstance(item, ArchivedObject):
            await self._object(item)
        elif item is not None:
            await self._run(item)
        return item is not None

    def _is_wanted(self, segment: str) -> bool:
        return self._wanted is None or segment in self._wanted

    async def _object(self, item: ArchivedObject) -> None:
        if not self._is_wanted(item.segment) or item.data is None:
            return
        arrival = await self._arriving(item.segment)
        if not item.is_sound:
            return  # its run is refused when its manifest comes
        if arrival.needs(item, len(item.data)):
            self._waiting.append((item.key, item.data))
            if (
                len(self._waiting) == PUTS_AT_ONCE
                or sum(len(data) for _, data in self._waiting) > WAITING_BYTES
            ):
                await self._put()

    async def _arriving(self, segment: str) -> _Arrival:
        if self._arrival is None or self._arrival.segment != segment:
            await self._put()
            stands = await self._storage.read(keys.manifest_of(segment)) is not None
            self._arrival = _Arrival(segment, None if stands else await objects_in(self._storage, segment))
        return self._arrival

    async def _put(self) -> None:
        waiting, self._waiting = self._waiting, []
        await gather(
            self._effects,
            [partial(self._storage.put, key, data) for key, data in waiting],
            width=PUTS_AT_ONCE,
        )

    async def _run(self, item: ArchivedRun) -> None:
        manifest, report = item.manifest, item.report
        segment = keys.encode_run(manifest.run)
        if not self._is_wanted(segment):
            return
        if report.problems:
            raise _refused(report.problems[0])
        arrival = await self._arriving(segment)
        await self._put()
        self._arrival = None
        if not arrival.has_manifest:
            await self._core.prepare()
        was_there = await self._create(self._core.access(manifest.run), manifest, stands=arrival.has_manifest)
        self._done.append(
            Imported(
                manifest.run, manifest.seq, report.checkpoints, arrival.objects, arrival.bytes, was_there
            )
        )

    async def _create(self, access: Access, manifest: Manifest, *, stands: bool) -> bool:
        """Create the manifest; return whether it was there.

        Raises:
            ConflictError: Another one is.
        """
        if stands:
            seen, landed = await access.base(deleted=True), False
        else:
            # A nonce of its own, so that the token of a manifest that once stood here never returns.
            new = replace(manifest, nonce=self._effects.new_id())
            seen, landed = await access.pointer.swap(None, new, lambda found: found.nonce == new.nonce)
        if not landed and replace(seen.manifest, nonce=manifest.nonce) != manifest:
            raise ConflictError(
                "the store has a run of that id that is not what the archive has; import into another store, "
                "and fork from there",
                run=manifest.run,
                there=seen.manifest.seq,
                archived=manifest.seq,
            )
        return not landed


def _refused(problem: Problem) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"the archive is damaged: {problem.what}; {problem.do}",
        run=problem.run,
        seq=problem.seq,
        key=problem.key,
        kind=problem.kind,
    )
