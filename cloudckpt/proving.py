"""What shows that a store is whole: verification and archives.

Owns: these as methods of `Store`; each in two forms, sync and async with a leading
``a``. What they do is in modules of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from cloudckpt.core import Core
from cloudckpt.late import Late
from cloudckpt.twins import awaited, waits

if TYPE_CHECKING:
    from cloudckpt import archive_export, archive_import, examine, fleet
    from cloudckpt import verify as verifying
    from cloudckpt.archive_export import Exported
    from cloudckpt.archive_import import Imported
    from cloudckpt.examine import Verified
    from cloudckpt.fleet import Executor
    from cloudckpt.model import RunInfo
    from cloudckpt.signing import PrivateKey
else:  # a load needs none of them
    archive_export = Late("cloudckpt.archive_export")
    archive_import = Late("cloudckpt.archive_import")
    examine = Late("cloudckpt.examine")
    fleet = Late("cloudckpt.fleet")
    verifying = Late("cloudckpt.verify")


class Proving:
    """The part of `Store` that is for auditors."""

    url: str
    _core: Core

    def verify(
        self,
        prefix: str = "",
        *,
        depth: int = 2,
        deep: bool = False,
        executor: Executor | None = None,
    ) -> Iterator[Verified]:
        """Iterate over reports on the runs whose id starts with `prefix`: what is damaged or missing.

        Reads only, and safe while writers are at work. A damaged run is reported like any other.

        Args:
            prefix: Of the runs' ids.
            depth: 1: manifests, pages of history, the hash chain through both. 2: also that every
                object exists with the right length, by listing, and runs whose manifest is gone.
                3: every byte is read and hashed.
            deep: The same as depth 3.
            executor: Where it is done, as in `Store.each`; by default several runs at a time here.
                Objects of runs whose manifest is gone are not looked for then.

        Raises:
            InvalidInputError: There is no such depth.
            StorageError: The store failed.
        """
        if executor is not None:
            work = partial(_verified, depth=examine.check_depth(depth, deep=deep))
            for outcome in fleet.each(self, work, (info.id for info in self.runs(prefix)), executor=executor):
                if outcome.value is None:
                    raise outcome.error or AssertionError(outcome)
                yield outcome.value
            return
        over = self._over(prefix, depth, deep=deep)
        while (found := self._core.call(over.next())) is not None:
            yield from found

    async def averify(
        self, prefix: str = "", *, depth: int = 2, deep: bool = False
    ) -> AsyncIterator[Verified]:
        """`verify`, for ``async for``."""
        over = self._over(prefix, depth, deep=deep)
        while (found := await self._core.acall(over.next())) is not None:
            for report in found:
                yield report

    def run(self, run_id: str) -> Any:
        """See `Store.run`."""
        raise NotImplementedError

    def runs(self, prefix: str = "") -> Iterator[RunInfo]:
        """See `Store.runs`."""
        raise NotImplementedError

    def _over(self, prefix: str, depth: int, *, deep: bool) -> verifying.OverStore:
        core = self._core
        depth = examine.check_depth(depth, deep=deep)
        return verifying.OverStore(core.access, core.storage, core.effects, prefix, depth)

    async def _export(
        self, runs: Iterable[str], file: BinaryIO, *, sign: bytes | PrivateKey | None = None
    ) -> Exported:
        """Write runs into an archive: a tar file with all that they refer to, which verifies by itself.

        Reads only, and safe while writers are at work: each run is archived as it was at one point. A
        deleted run is archived as its tombstone. See docs/archives.md.

        Args:
            runs: Their ids.
            file: Open for writing bytes; it need not be seekable.
            sign: An Ed25519 private key to sign it with: the bytes of a PEM file, or a key of
                `cryptography`, which the extra `sign` installs.

        Raises:
            RunNotFoundError: There is no such run.
            CorruptCheckpointError: A run is damaged; what was written so far is no archive.
            InvalidInputError: No run is named, or the key can't be used.
        """
        core = self._core
        return await archive_export.export(core.access, core.effects, runs, file, sign=sign)

    export = waits(_export)
    aexport = awaited(_export)

    async def _import(self, file: BinaryIO, *, runs: Iterable[str] | None = None) -> tuple[Imported, ...]:
        """Bring the runs of an archive into this store. No run that exists is changed.

        Safe to call again after a failure half way: it goes on where it stopped.

        Args:
            file: The archive, open for reading bytes; it need not be seekable.
            runs: Ids of the runs that are wanted; by default all.

        Raises:
            ConflictError: The store has a run of that id that is not what the archive has.
            CorruptCheckpointError: The archive is damaged; names the member. Runs in front of it are whole.
            RunNotFoundError: The archive has no such run.
        """
        return await archive_import.Importer(self._core, file, runs).run()

    import_ = waits(_import)
    aimport = awaited(_import)


def _verified(store: Proving, run_id: str, *, depth: int) -> Verified:
    report: Verified = store.run(run_id).verify(depth=depth)
    return report
