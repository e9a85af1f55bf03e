"""What Azure's Blob service can beside the contract: versions, snapshots, and the archive tier.

Owns: which requests these are, for `azure.py`. What soft delete keeps can't be erased
before its time, and is told as kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from cloudckpt.errors import InvalidInputError
from cloudckpt.storage.answers import AbsentError
from cloudckpt.storage.cold import Warmth
from cloudckpt.storage.placing import Placing
from cloudckpt.storage.versions import Kept, Version, VersionPage, each

PAGE_ROWS = 1000
SNAPSHOT, VERSION = "snapshot:", "version:"
TIERS = ("Hot", "Cool", "Cold", "Archive")

_MODES = {"governance": "Unlocked", "compliance": "Locked"}


class AzureBeside:
    """`Versioned`, `Restorable` and `Places` for Azure."""

    _prefix: str
    _each: dict[str, Any]

    async def _opened(self) -> Any:
        raise NotImplementedError

    def _told(self, key: str) -> AbstractContextManager[None]:
        raise NotImplementedError

    # ---- versions

    async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        with self._told(prefix):
            container = await self._opened()
            pages = container.list_blobs(
                name_starts_with=self._prefix + prefix,
                include=["versions", "snapshots", "deleted"],
                results_per_page=PAGE_ROWS,
                **self._each,
            ).by_page(cursor)
            blobs = [blob async for blob in await anext(pages)]
        return VersionPage(tuple(map(self._version, blobs)), pages.continuation_token or None)

    def _version(self, blob: Any) -> Version:
        days = blob.remaining_retention_days
        if blob.snapshot:
            version = f"{SNAPSHOT}{blob.snapshot}"
        else:
            version = f"{VERSION}{blob.version_id}" if blob.version_id else ""
        return Version(
            blob.name[len(self._prefix) :],
            version,
            blob.size or 0,
            newest=not blob.deleted
            and not blob.snapshot
            and (not blob.version_id or bool(blob.is_current_version)),
            kept="the account's soft delete keeps it for its time" if blob.deleted else "",
            until=datetime.now(UTC) + timedelta(days=days) if blob.deleted and days is not None else None,
        )

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        return await each(rows, self._erase)

    async def _erase(self, row: Version) -> None:
        container, name = await self._opened(), self._prefix + row.key
        if row.newest:  # it has to become an older version before that can be deleted
            with suppress(AbsentError), self._told(row.key):
                await container.get_blob_client(name).delete_blob(delete_snapshots="include", **self._each)
        which = {}
        if row.version.startswith(SNAPSHOT):
            which["snapshot"] = row.version.removeprefix(SNAPSHOT)
        elif row.version.startswith(VERSION):
            which["version_id"] = row.version.removeprefix(VERSION)
        if which:
            with suppress(AbsentError), self._told(row.key):
                await container.get_blob_client(name, **which).delete_blob(**self._each)

    # ---- the archive tier

    async def warmth(self, key: str) -> Warmth:
        try:
            with self._told(key):
                blob = (await self._opened()).get_blob_client(self._prefix + key)
                found = await blob.get_blob_properties(**self._each)
        except AbsentError:
            return Warmth.WARM
        if found.blob_tier != "Archive":
            return Warmth.WARM
        return Warmth.COMING if found.archive_status else Warmth.COLD

    async def rewarm(self, key: str, *, days: int, speed: str) -> None:  # noqa: ARG002 - the blob moves, for good
        priority = "High" if speed == "expedited" else "Standard"
        with self._told(key):
            blob = (await self._opened()).get_blob_client(self._prefix + key)
            await blob.set_standard_blob_tier("Hot", rehydrate_priority=priority, **self._each)

    def check_placing(self, placing: Placing) -> None:
        check_tier(placing)


def check_tier(placing: Placing) -> None:
    """Refuse a storage class that is none of Azure's tiers."""
    if placing.storage_class is not None and placing.storage_class.capitalize() not in TIERS:
        raise InvalidInputError(
            f"a storage class of Azure's is one of {', '.join(TIERS)}", storage_class=placing.storage_class
        )


def placed(placing: Placing) -> dict[str, Any]:
    """Return the arguments of an upload that place a blob."""
    from azure.storage.blob import ImmutabilityPolicy, StandardBlobTier

    found: dict[str, Any] = {}
    if placing.storage_class is not None:
        found["standard_blob_tier"] = StandardBlobTier(placing.storage_class.capitalize())
    until = placing.until()
    if placing.lock is not None and until is not None:
        found["immutability_policy"] = ImmutabilityPolicy(
            expiry_time=until, policy_mode=_MODES[placing.lock.mode]
        )
    return found
