"""Every version of a key, beside the contract: what a bucket keeps of what was replaced or deleted.

Owns: `Versioned`, which an engine may be, and `Versions`, which the core asks. Invariant:
`erase` destroys exactly the versions that it is given; a key's newest one goes last, so
that none of the older ones becomes the newest again. It decides nothing: `forget.py` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from cloudckpt.errors import PermissionDeniedError
from cloudckpt.storage.beside import Reach
from cloudckpt.storage.contract import Page, Storage

ERASES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a key.

    Attributes:
        key: The key.
        version: The store's name of it; "" where the store keeps one value of a key.
        size: Bytes.
        newest: Whether it is what a reader of the key gets now.
        marker: Whether it is no value, but says that the key was deleted.
        kept: Why the store keeps it although it was deleted, as by soft delete; "" when it can be erased.
        until: Until when, if the store tells.
    """

    key: str
    version: str
    size: int
    newest: bool = False
    marker: bool = False
    kept: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class VersionPage:
    """Some versions, in any order, and the cursor of the next page; None at the end."""

    rows: tuple[Version, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Kept:
    """A version that could not be erased.

    Attributes:
        row: Which.
        kind: ``"retained"`` (a lock, a hold or a policy), ``"denied"`` (a right is missing),
            ``"soft-deleted"``, or ``"still-listed"``.
        why: A sentence.
        until: Until when it is kept, if the store tells.
    """

    row: Version
    kind: str
    why: str
    until: datetime | None = None


@runtime_checkable
class Versioned(Protocol):
    """An engine that can list and erase versions. Failures are those of the contract."""

    async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        """Return one page of all versions of the keys that start with `prefix`, delete markers too."""
        ...

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        """Destroy versions for good; return those that the store does not let go of.

        One that does not exist any more is no failure. Safe to call twice.
        """
        ...


@runtime_checkable
class Unfinished(Versioned, Protocol):
    """An engine in which a killed writer leaves what it had half written, and no listing shows it."""

    async def unfinished(self, prefix: str) -> Sequence[Version]:
        """Return what is half written below a prefix that ends in a slash, or else of one key.

        Of writers that are alive, too: one whose value is erased under it writes it again.
        """
        ...


class OneVersion:
    """`Versioned` for a storage that keeps one value of a key, or whose others nobody can look at."""

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        """As in the contract."""
        raise NotImplementedError

    async def delete(self, keys: Sequence[str]) -> None:
        """As in the contract."""
        raise NotImplementedError

    async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        page = await self.list(prefix, cursor=cursor)
        return VersionPage(
            tuple(Version(row.key, "", row.size, newest=True) for row in page.rows), page.cursor
        )

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        try:
            await self.delete([row.key for row in rows])
        except PermissionDeniedError as error:
            if len(rows) == 1:
                return [kept(rows[0], error)]
            found: list[Kept] = []
            for row in rows:  # each by itself: the store may keep but one of them
                found += await self.erase([row])
                if found and found[-1].kind == "denied":  # a right that is missing is missing for all
                    return [kept(row, error) for row in rows]
            return found
        return []


async def each(rows: Sequence[Version], erase: Callable[[Version], Awaitable[None]]) -> list[Kept]:
    """Erase versions one by one, some side by side, for an engine that suspends; return those that stay."""
    import asyncio  # a load needs none of this

    found: list[Kept] = []

    async def some(rows: Sequence[Version]) -> None:
        for row in rows:
            try:
                await erase(row)
            except PermissionDeniedError as error:
                if error.kind not in ("denied", "retained"):
                    raise
                found.append(kept(row, error))

    for part in newest_last(rows):
        lanes = [part[n::ERASES_AT_ONCE] for n in range(min(ERASES_AT_ONCE, len(part)))]
        outcomes = await asyncio.gather(*map(some, lanes), return_exceptions=True)
        for failed in filter(None, outcomes):
            raise failed
    return found


def newest_last(rows: Sequence[Version]) -> tuple[list[Version], list[Version]]:
    """Return the older versions, and those that are their key's newest."""
    return [row for row in rows if not row.newest], [row for row in rows if row.newest]


def kept(row: Version, error: PermissionDeniedError) -> Kept:
    """Return what a refusal to erase says."""
    return Kept(row, "retained" if error.kind == "retained" else "denied", error.message.partition(";")[0])


class Plain(OneVersion):
    """The contract alone, where versions can't be looked at."""

    def __init__(self, storage: Storage) -> None:
        self.list = storage.list  # type: ignore[method-assign]
        self.delete = storage.delete  # type: ignore[method-assign]


class Versions:
    """The versions of a storage's keys, through its wrappers.

    Attributes:
        known: Whether its engine can look at them.
    """

    def __init__(self, storage: Storage) -> None:
        self._reach = Reach(storage)
        engine = self._reach.engine
        self.known = isinstance(engine, Versioned)
        self._engine: Versioned = engine if isinstance(engine, Versioned) else Plain(engine)

    async def page(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        """As `Versioned.versions`."""
        return await self._reach.call(
            "versions", prefix, lambda: self._engine.versions(prefix, cursor=cursor)
        )

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        """As `Versioned.erase`."""
        return await self._reach.call("erase", rows[0].key, lambda: self._engine.erase(rows))

    async def unfinished(self, prefix: str) -> Sequence[Version]:
        """As `Unfinished.unfinished`; nothing of an engine that leaves nothing."""
        engine = self._reach.engine
        if not isinstance(engine, Unfinished):
            return ()
        return await self._reach.call("versions", prefix, lambda: engine.unfinished(prefix))

    def plain(self) -> Versions:
        """Return the same storage by the contract alone."""
        other = Versions.__new__(Versions)
        other._reach, other.known, other._engine = self._reach, False, Plain(self._reach.engine)
        return other
