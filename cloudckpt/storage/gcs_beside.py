"""What Google Cloud Storage can beside the contract: versions of a key.

Owns: which requests of the JSON API these are, for `gcs.py`. A version is a generation.
Every class of Google's is read at once, so there is nothing to restore. What soft delete
keeps can't be erased before its time, and is told as kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cloudckpt.storage.gcs_answers import check, document, is_absent, no_bucket
from cloudckpt.storage.placing import Placing
from cloudckpt.storage.versions import Kept, Version, VersionPage, each

PAGE_ROWS = 1000
SOFT = "soft:"
"""Begins the cursor of the second listing: of what was deleted softly."""

_MODES = {"governance": "Unlocked", "compliance": "Locked"}


class GCSBeside:
    """`Versioned` and `Places` for Google Cloud Storage."""

    _prefix: str
    _objects: str

    async def _ask(self, method: str, path: str, key: str, **parameters: Any) -> Any:
        raise NotImplementedError

    def _path(self, key: str) -> str:
        raise NotImplementedError

    def check_placing(self, placing: Placing) -> None:
        """Refuse nothing: which words a bucket takes is told by the answer to a write."""

    async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        soft = cursor is not None and cursor.startswith(SOFT)
        answer = await self._ask(
            "GET",
            f"/storage/v1/{self._objects}",
            prefix,
            prefix=self._prefix + prefix,
            pageToken=(cursor or "").removeprefix(SOFT) or None,
            maxResults=str(PAGE_ROWS),
            fields="items(name,generation,size,timeDeleted,softDeleteTime,hardDeleteTime),nextPageToken",
            **({"softDeleted": "true"} if soft else {"versions": "true"}),
        )
        if is_absent(answer.status, answer.body, prefix):
            raise no_bucket()
        if soft and answer.status in (400, 501):  # a store that knows no soft delete
            return VersionPage((), None)
        found = document(answer.status, answer.body, prefix)
        # One that does not know the parameter answers with what is there.
        rows = [row for row in found.get("items", ()) if not soft or "softDeleteTime" in row]
        after = found.get("nextPageToken")
        if soft:
            return VersionPage(tuple(map(self._version, rows)), f"{SOFT}{after}" if after else None)
        return VersionPage(tuple(map(self._version, rows)), after or SOFT)

    def _version(self, row: Mapping[str, Any]) -> Version:
        soft = "softDeleteTime" in row
        until = row.get("hardDeleteTime")
        return Version(
            row["name"][len(self._prefix) :],
            str(row["generation"]),
            int(row.get("size", 0)),
            newest=not soft and "timeDeleted" not in row,
            kept="the bucket's soft delete keeps it for its time" if soft else "",
            until=datetime.fromisoformat(until) if soft and until else None,
        )

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        async def one(row: Version) -> None:
            answer = await self._ask("DELETE", self._path(row.key), row.key, generation=row.version)
            if not is_absent(answer.status, answer.body, row.key):
                check(answer.status, answer.body, row.key)

        return await each(rows, one)


def placed(placing: Placing) -> dict[str, Any]:
    """Return what an upload's document says to place an object."""
    found: dict[str, Any] = {}
    if placing.storage_class is not None:
        found["storageClass"] = placing.storage_class
    until = placing.until()
    if placing.lock is not None and until is not None:
        found["retention"] = {"mode": _MODES[placing.lock.mode], "retainUntilTime": until.isoformat()}
    return found
