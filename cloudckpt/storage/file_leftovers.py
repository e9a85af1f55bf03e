"""What a writer that was killed in the middle leaves in a folder: a temporary file with bytes in it.

Owns: how a temporary file's name tells what it was to be, so that erasing a run finds those of
its manifest and objects, and no other's. A folder keeps one version of a key, and these.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from cloudckpt.storage.versions import Kept, OneVersion, Version, VersionPage

TEMPORARY = ".tmp-"


def temporary_of(key: str) -> str:
    """Return how the names of all temporary files of a key begin."""
    return f"{TEMPORARY}{hashlib.sha256(key.encode()).hexdigest()[:16]}-"


class Leftovers(OneVersion):
    """`Versioned` for a folder, and `Unfinished`."""

    _root: Path

    def _told(self, key: str) -> AbstractContextManager[None]:
        raise NotImplementedError

    async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        page = await super().versions(prefix, cursor=cursor)
        if page.cursor is not None:
            return page
        return replace(page, rows=(*page.rows, *await self.unfinished(prefix)))

    async def unfinished(self, prefix: str) -> Sequence[Version]:
        with self._told(prefix):
            return tuple(self._left(prefix))

    def _left(self, prefix: str) -> Iterator[Version]:
        """Find those below a folder, when `prefix` is one, or else those of one key."""
        folder = self._root / prefix.rpartition("/")[0]
        if prefix.endswith("/"):
            for here, _, names in os.walk(folder):
                for name in names:
                    if name.startswith(TEMPORARY):
                        path = Path(here, name)
                        yield Version(path.relative_to(self._root).as_posix(), name, _size(path))
        elif folder.is_dir():
            for name in os.listdir(folder):
                if name.startswith(temporary_of(prefix)):
                    yield Version(prefix, name, _size(folder / name))

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        for row in rows:
            if row.version:
                with self._told(row.key):
                    (self._root / row.key).with_name(row.version).unlink(missing_ok=True)
        plain = [row for row in rows if not row.version]
        return await super().erase(plain) if plain else []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # its writer was alive, and went on
        return 0
