"""A fresh store for each life, and what is in it.

Owns: the stores of a gauntlet below one URL, or in a temporary folder. Invariant: only
what lies below a prefix that this gauntlet made is ever deleted.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudckpt
from cloudckpt import keys
from cloudckpt.codec.diffing import diff
from cloudckpt.errors import InvalidInputError
from cloudckpt.format import decode_manifest
from cloudckpt.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class Saved:
    """A state that landed: its number in the run, the agent's own step, and the digest of its bytes."""

    run: str
    seq: int
    step: int | None
    digest: str


@dataclass(frozen=True, slots=True)
class Places:
    """Where lives are lived.

    Attributes:
        root: URL below which each life has a store.
        kept: Whether it stays when the gauntlet has ended.
        engine, storage_options: As `cloudckpt.open` takes them, for looking at it from here.
    """

    root: str
    kept: bool
    engine: str | None = None
    storage_options: Mapping[str, Any] | None = None

    def fresh(self, number: int) -> str:
        """Return the URL of a life's own store, probed already: a probe is no part of a life."""
        url = f"{self.root}/{number}"
        with self._opened(url) as store:
            store._core.call(store._core.prepare())
        return url

    def states(self, url: str) -> list[Saved]:
        """Return the newest states of each run in a store, a run's oldest first."""
        with self._opened(url) as store:
            return store._core.call(_states(store._core.storage))

    def compared(self, one: str, other: str, run: str) -> list[str]:
        """Return the paths at which a run's newest states in two stores differ."""
        states = []
        for url in (one, other):
            with self._opened(url) as store:
                states.append(store.run(run).load())
        return [change.path for change in diff(*states)]

    def remove(self, url: str) -> None:
        """Delete a life's store."""
        with self._opened(url) as store:
            store._core.call(_remove(store._core.storage))
        if "://" not in url:
            shutil.rmtree(url, ignore_errors=True)

    def _opened(self, url: str) -> cloudckpt.Store:
        return cloudckpt.open(url, engine=self.engine, storage_options=self.storage_options)


async def _keys(storage: Storage, prefix: str) -> AsyncIterator[list[str]]:
    cursor = None
    while True:
        page = await storage.list(prefix, cursor=cursor)
        yield [row.key for row in page.rows]
        cursor = page.cursor
        if cursor is None:
            return


async def _states(storage: Storage) -> list[Saved]:
    found: list[Saved] = []
    async for names in _keys(storage, keys.MANIFESTS):
        for key in names:
            stored = await storage.read(key)
            if stored is not None:
                manifest = decode_manifest(stored.data, None)
                found += [
                    Saved(manifest.run, entry.seq, entry.step, entry.encoded_digest)
                    for entry in reversed(manifest.checkpoints)
                ]
    return found


async def _remove(storage: Storage) -> None:
    found = [key async for names in _keys(storage, "") for key in names]
    for start in range(0, len(found), 1000):
        await storage.delete(found[start : start + 1000])


@contextmanager
def places(
    url: str | None, *, engine: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> Iterator[Places]:
    """Have places below a prefix of their own in a store; by default in a temporary folder.

    Raises:
        InvalidInputError: The store ends with its process.
        UnsupportedStoreError: Nothing serves the URL.
    """
    if url is None:
        folder = tempfile.mkdtemp(prefix="cloudckpt-gauntlet-")
        try:
            yield Places(folder, kept=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    if url.startswith("memory:"):
        raise InvalidInputError("a memory:// store ends with its process: use a folder or a bucket", url=url)
    # A path must be whole: the agents work in other folders.
    root = url.rstrip("/") if "://" in url else str(Path(url).absolute())
    cloudckpt.open(root, engine=engine, storage_options=storage_options).close()
    yield Places(
        f"{root}/gauntlet-{secrets.token_hex(4)}", kept=True, engine=engine, storage_options=storage_options
    )
