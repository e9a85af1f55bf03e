"""A store in memory that keeps every version of every key, as a bucket with versioning does.

Owns: `VersionedMemory`, whose delete leaves a marker, and whose versions can be locked. Its
current values are `MemoryStorage`'s, so the contract's methods are too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime

from cloudckpt.storage.contract import Data, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.versions import Kept, Version, VersionPage

UNTIL = datetime(2040, 1, 1, tzinfo=UTC)
_names = itertools.count()


class VersionedMemory(MemoryStorage):
    """One bucket.

    Attributes:
        kept: Every version of every key, the newest last; None for a marker.
        locked: Keys whose values nobody can erase.
        page_rows: Rows of one page of versions.
    """

    page_rows = 3  # so that a key's versions straddle pages

    def __init__(self) -> None:
        super().__init__(f"versioned-{next(_names)}")
        self.kept: dict[str, list[tuple[str, bytes | None]]] = {}
        self.locked: set[str] = set()
        self._numbers = itertools.count(1)

    async def create(self, key: str, data: Data) -> Token:
        token = await super().create(key, data)
        self._keep(key, bytes(data))
        return token

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        token = await super().replace(key, data, token)
        self._keep(key, bytes(data))
        return token

    async def put(self, key: str, data: Data) -> None:
        if await self.read(key) is None:
            await super().put(key, data)
            self._keep(key, bytes(data))

    async def delete(self, keys: Sequence[str]) -> None:
        await super().delete(keys)
        for key in keys:
            self._keep(key, None)

    def _keep(self, key: str, data: bytes | None) -> None:
        self.kept.setdefault(key, []).append((f"n{next(self._numbers)}", data))

    def rows(self, prefix: str = "") -> list[Version]:
        return [
            Version(key, name, len(data or b""), newest=place == 0, marker=data is None)
            for key in sorted(self.kept)
            if key.startswith(prefix)
            for place, (name, data) in enumerate(reversed(self.kept[key]))
        ]

    async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        rows = self.rows(prefix)
        names = [f"{row.key}\n{row.version}" for row in rows]
        start = names.index(cursor) + 1 if cursor in names else 0
        if cursor is not None and cursor not in names:  # erased since: S3 goes on behind its name as well
            key = cursor.split("\n")[0]
            start = next((place for place, row in enumerate(rows) if row.key >= key), len(rows))
        page = rows[start : start + self.page_rows]
        more = start + self.page_rows < len(rows)
        return VersionPage(tuple(page), f"{page[-1].key}\n{page[-1].version}" if more and page else None)

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        failed = []
        for row in rows:
            if row.key in self.locked and not row.marker:
                failed.append(Kept(row, "retained", "locked", UNTIL))
                continue
            left = [one for one in self.kept.get(row.key, []) if one[0] != row.version]
            if left:
                self.kept[row.key] = left
            else:
                self.kept.pop(row.key, None)
            await self._show(row.key, left)
        return failed

    async def _show(self, key: str, left: list[tuple[str, bytes | None]]) -> None:
        newest = left[-1][1] if left else None
        stored = await super().read(key)
        if newest is None:
            await super().delete([key])
        elif stored is None or stored.data != newest:
            await super().delete([key])
            await super().put(key, newest)
