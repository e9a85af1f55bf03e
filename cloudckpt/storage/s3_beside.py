"""What S3 can beside the contract: versions of a key, and objects in an archive.

Owns: which requests of S3 these are, for `s3_requests.py`. Invariant: a version is named
in each deletion, so nothing is deleted by key alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cloudckpt.errors import ArchivedError, CloudckptError, StorageError
from cloudckpt.storage.answers import AbsentError
from cloudckpt.storage.cold import Warmth
from cloudckpt.storage.placing import Placing
from cloudckpt.storage.s3_answers import raise_answer
from cloudckpt.storage.versions import Kept, Version, VersionPage, newest_last

PAGE_ROWS = 1000
ERASE_BATCH = 1000
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Classes that can't be read at once; GLACIER_IR can."""

_REFUSED = ("AccessDenied", "InvalidRequest", "ObjectLocked")  # InvalidRequest is how MinIO words a lock
GONE = ("NoSuchVersion", "NoSuchKey")


class S3Beside:
    """`Versioned`, `Restorable` and `Places` for S3."""

    _prefix: str

    async def _call(self, method: str, key: str | None, **parameters: Any) -> Any:
        raise NotImplementedError

    def check_placing(self, placing: Placing) -> None:
        """Refuse nothing: which words a bucket takes is told by the answer to a write."""

    # ---- versions

    async def versions(self, prefix: str, *, cursor: str | None = None) -> VersionPage:
        more = dict(zip(("KeyMarker", "VersionIdMarker"), json.loads(cursor), strict=True)) if cursor else {}
        answer = await self._call(
            "list_object_versions", None, Prefix=self._prefix + prefix, MaxKeys=PAGE_ROWS, **more
        )
        rows = [self._version(row, marker=False) for row in answer.get("Versions", ())]
        rows += [self._version(row, marker=True) for row in answer.get("DeleteMarkers", ())]
        if not answer.get("IsTruncated"):
            return VersionPage(tuple(rows), None)
        return VersionPage(
            tuple(rows), json.dumps([answer["NextKeyMarker"], answer.get("NextVersionIdMarker", "")])
        )

    def _version(self, row: Mapping[str, Any], *, marker: bool) -> Version:
        return Version(
            row["Key"][len(self._prefix) :],
            row.get("VersionId") or "null",
            int(row.get("Size", 0)),
            newest=bool(row.get("IsLatest")),
            marker=marker,
        )

    async def erase(self, rows: Sequence[Version]) -> Sequence[Kept]:
        found: list[Kept] = []
        for part in newest_last(rows):
            for start in range(0, len(part), ERASE_BATCH):
                found += await self._erase(part[start : start + ERASE_BATCH])
        return found

    async def _erase(self, rows: Sequence[Version]) -> list[Kept]:
        named = [{"Key": self._prefix + row.key, "VersionId": row.version} for row in rows]
        answer = await self._call("delete_objects", None, Delete={"Objects": named, "Quiet": True})
        found = []
        for failed in answer.get("Errors", ()):
            code, key = str(failed.get("Code", "")), str(failed.get("Key", ""))[len(self._prefix) :]
            if code in GONE:
                continue
            if code not in _REFUSED:
                raise_answer(code, 0, key, None)
            version = failed.get("VersionId")  # moto leaves it out: then it may be any of the key's
            meant = [row for row in rows if row.key == key and version in (None, row.version)]
            found += [await self._why(row) for row in meant]
        return found

    async def _why(self, row: Version) -> Kept:
        """Say why a version was not deleted: one more request."""
        try:
            answer = await self._call("head_object", row.key, VersionId=row.version)
        except CloudckptError:  # one who may not look, or a delete marker, which has nothing to look at
            return Kept(row, "denied", "the store denies it, and does not tell why")
        if answer.get("ObjectLockLegalHoldStatus") == "ON":
            return Kept(row, "retained", "a legal hold of the store's is on it")
        if answer.get("ObjectLockMode"):
            mode, until = str(answer["ObjectLockMode"]).lower(), answer.get("ObjectLockRetainUntilDate")
            return Kept(row, "retained", f"object lock ({mode}) keeps it", until)
        return Kept(row, "denied", "the store denies it; grant s3:DeleteObjectVersion")

    # ---- archives

    async def warmth(self, key: str) -> Warmth:
        try:
            answer = await self._call("head_object", key)
        except AbsentError:
            return Warmth.WARM
        restored = str(answer.get("Restore", ""))
        if 'ongoing-request="true"' in restored:
            return Warmth.COMING
        is_copy = 'ongoing-request="false"' in restored
        cold = answer.get("StorageClass") in ARCHIVES or "ArchiveStatus" in answer
        return Warmth.COLD if cold and not is_copy else Warmth.WARM

    async def rewarm(self, key: str, *, days: int, speed: str) -> None:
        wanted: dict[str, Any] = {"GlacierJobParameters": {"Tier": speed.capitalize()}}
        answer = await self._call("head_object", key)
        if "ArchiveStatus" not in answer:  # Intelligent-Tiering moves it back, and makes no copy for a time
            wanted["Days"] = days
        try:
            await self._call("restore_object", key, RestoreRequest=wanted)
        except ArchivedError:  # InvalidObjectState: it is in a class that is read at once
            if await self.warmth(key) is not Warmth.WARM:
                raise
        except StorageError as error:
            code = error.facts.get("code")
            if code == "GlacierExpeditedRetrievalNotAvailable":
                raise StorageError(
                    "the store has no room for an expedited restore now; ask with the tier standard",
                    kind="no-expedited",
                    key=key,
                ) from error
            if code != "RestoreAlreadyInProgress":
                raise


def placed(placing: Placing) -> dict[str, Any]:
    """Return the parameters of a PutObject that place an object."""
    found: dict[str, Any] = {}
    if placing.storage_class is not None:
        found["StorageClass"] = placing.storage_class
    if placing.lock is not None:
        found |= {"ObjectLockMode": placing.lock.mode.upper(), "ObjectLockRetainUntilDate": placing.until()}
    return found
