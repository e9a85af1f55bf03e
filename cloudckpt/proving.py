"""What shows that a store is whole: verification and archives.

Owns: these as methods of `Store`; each in two forms, sync and async with a leading
``a``. What they do is in modules of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from cloudckpt.core import Core
from cloudckpt.late import Late

if TYPE_CHECKING:
    from cloudckpt import examine
    from cloudckpt import verify as verifying
    from cloudckpt.examine import Verified
else:  # a load needs none of them
    examine = Late("cloudckpt.examine")
    verifying = Late("cloudckpt.verify")


class Proving:
    """The part of `Store` that is for auditors."""

    url: str
    _core: Core

    def verify(self, prefix: str = "", *, depth: int = 1, deep: bool = False) -> Iterator[Verified]:
        """Iterate over reports on the runs whose id starts with `prefix`: what is damaged or missing.

        Reads only, and safe while writers are at work. A damaged run is reported like any other.

        Args:
            prefix: Of the runs' ids.
            depth: 1: manifests, pages of history, the hash chain through both. 2: also that every
                object exists with the right length, by listing, and runs whose manifest is gone.
                3: every byte is read and hashed.
            deep: The same as depth 3.

        Raises:
            InvalidInputError: There is no such depth.
            StorageError: The store failed.
        """
        over = self._over(prefix, depth, deep=deep)
        while (found := self._core.call(over.next())) is not None:
            yield from found

    async def averify(
        self, prefix: str = "", *, depth: int = 1, deep: bool = False
    ) -> AsyncIterator[Verified]:
        """`verify`, for ``async for``."""
        over = self._over(prefix, depth, deep=deep)
        while (found := await self._core.acall(over.next())) is not None:
            for report in found:
                yield report

    def _over(self, prefix: str, depth: int, *, deep: bool) -> verifying.OverStore:
        core = self._core
        depth = examine.check_depth(depth, deep=deep)
        return verifying.OverStore(core.access, core.storage, core.effects, prefix, depth)
