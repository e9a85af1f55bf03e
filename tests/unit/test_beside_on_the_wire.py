"""Versions and cold tiers as the clouds word them, by scripted answers: what no emulator does.

The words are those of Google's JSON API, Azure's REST reference and Amazon's; what was sent is
looked at as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from cloudckpt.errors import (
    AmbiguousError,
    ArchivedError,
    PermissionDeniedError,
    StorageError,
    UnsupportedStoreError,
)
from cloudckpt.storage.azure import AzureStorage
from cloudckpt.storage.cold import Cold, Warmth
from cloudckpt.storage.gcs import GCSStorage
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.storage.versions import Kept, Version, Versions
from cloudckpt.testing.driver import Driver
from tests.servers.azurite import KEY
from tests.servers.scripted import Answer, Scripted, scripted


class Asking:
    """An engine before a scripted server, and what it was asked."""

    def __init__(self, engine: Any, server: Scripted, driver: Driver) -> None:
        self.engine, self.server, self._driver = engine, server, driver

    def run(self, work: Any) -> Any:
        return self._driver.run(work, blocking=self.engine.blocking)

    def rows(self, prefix: str = "objects/r/") -> list[Version]:
        found: list[Version] = []
        versions, cursor = Versions(self.engine), None
        while True:
            page = self.run(versions.page(prefix, cursor=cursor))
            found += page.rows
            cursor = page.cursor
            if cursor is None:
                return found

    def erase(self, rows: Sequence[Version]) -> list[Kept]:
        return list(self.run(Versions(self.engine).erase(rows)))

    def asked(self) -> list[tuple[str, str, dict[str, str]]]:
        found = []
        for one in self.server.requests:
            parts = urlsplit(one.path)
            query = {
                name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
            }
            found.append((one.method, unquote(parts.path), query))
        return found


@contextmanager
def asking(kind: str, *answers: Answer) -> Iterator[Asking]:
    driver = Driver()
    with scripted(*answers) as server:
        if kind == "gs":
            engine: Any = GCSStorage(
                "b", "root", storage_options={"endpoint_url": server.endpoint, "token": "anon"}
            )
        elif kind == "az":
            account = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey={KEY};"
            connection = f"{account}BlobEndpoint={server.endpoint}/a;"
            engine = AzureStorage("c", "root", storage_options={"connection_string": connection})
        else:
            engine = Boto3Storage(
                "b",
                "root",
                storage_options={
                    "key": "k",
                    "secret": "s",
                    "endpoint_url": server.endpoint,
                    "client_kwargs": {"region_name": "us-east-1"},
                },
            )
        try:
            yield Asking(engine, server, driver)
        finally:
            driver.run(engine.close(), blocking=engine.blocking)
            driver.close()


def doc(document: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


def google_says(reason: str, status: int = 403) -> Answer:
    return doc({"error": {"code": status, "message": reason, "errors": [{"reason": reason}]}}, status)


# ---- Google


def test_google_lists_every_generation_and_then_what_soft_delete_keeps() -> None:
    """Soft delete is on by default, for seven days: a receipt that says "complete" then would be a lie."""
    live = {"name": "root/objects/r/1", "generation": "30", "size": "5"}
    old = {"name": "root/objects/r/1", "generation": "20", "size": "4", "timeDeleted": "2026-11-01T00:00:00Z"}
    soft = {
        "name": "root/objects/r/2",
        "generation": "10",
        "size": "3",
        "softDeleteTime": "2026-11-01T00:00:00Z",
        "hardDeleteTime": "2026-11-08T00:00:00.5Z",
    }
    pages = doc({"items": [live], "nextPageToken": "more"}), doc({"items": [old]}), doc({"items": [soft]})
    with asking("gs", *pages) as google:
        rows = google.rows()
        asked = [query for _, _, query in google.asked()]
    assert rows[0] == Version("objects/r/1", "30", 5, newest=True)
    assert rows[1] == Version("objects/r/1", "20", 4)
    assert (rows[2].key, rows[2].newest) == ("objects/r/2", False)
    assert "soft delete" in rows[2].kept
    assert rows[2].until == datetime(2026, 11, 8, 0, 0, 0, 500_000, tzinfo=UTC)
    assert [query.get("versions") for query in asked] == ["true", "true", None]
    assert [query.get("softDeleted") for query in asked] == [None, None, "true"]
    assert [query.get("pageToken") for query in asked] == [None, "more", None]
    assert {query["prefix"] for query in asked} == {"root/objects/r/"}


def test_a_google_without_soft_delete_is_no_failure() -> None:
    """An emulator answers the parameter that it does not know with what is there."""
    live = {"name": "root/objects/r/1", "generation": "30", "size": "5"}
    with asking("gs", doc({"items": [live]}), doc({"items": [live]})) as google:
        assert [row.kept for row in google.rows()] == [""]
    with asking("gs", doc({}), google_says("invalid", 400)) as google:
        assert google.rows() == []


def test_google_erases_by_generation_the_newest_last() -> None:
    rows = [Version("objects/r/1", "30", 5, newest=True), Version("objects/r/1", "20", 4)]
    with asking("gs", Answer(204), google_says("notFound", 404)) as google:
        assert google.erase(rows) == []
        asked = google.asked()
    assert [(method, query["generation"]) for method, _, query in asked] == [
        ("DELETE", "20"),
        ("DELETE", "30"),
    ]
    assert {path for _, path, _ in asked} == {"/storage/v1/b/b/o/root/objects/r/1"}


@pytest.mark.parametrize(
    ("reason", "kind", "word"),
    [
        ("retentionPolicyNotMet", "retained", "retention policy"),
        ("objectUnderActiveHold", "retained", "hold"),
        ("forbidden", "denied", "denies"),
    ],
)
def test_google_says_why_a_generation_stays(reason: str, kind: str, word: str) -> None:
    row = Version("objects/r/1", "20", 4)
    with asking("gs", google_says(reason)) as google:
        [left] = google.erase([row])
    assert (left.row, left.kind) == (row, kind)
    assert word in left.why


def test_credentials_that_expire_meanwhile_are_no_lock() -> None:
    with (
        asking("gs", google_says("authError", 401)) as google,
        pytest.raises(PermissionDeniedError) as caught,
    ):
        google.erase([Version("objects/r/1", "20", 4)])
    assert caught.value.kind in ("credentials", "no-credentials")


# ---- Azure

LISTING = b"""<?xml version="1.0" encoding="utf-8"?>
<EnumerationResults ServiceEndpoint="http://x/a" ContainerName="c"><Blobs>
<Blob><Name>root/objects/r/1</Name><VersionId>2026-11-02T00:00:00.0000000Z</VersionId>
<IsCurrentVersion>true</IsCurrentVersion><Properties><Content-Length>5</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>
<Blob><Name>root/objects/r/1</Name><VersionId>2026-11-01T00:00:00.0000000Z</VersionId>
<Properties><Content-Length>4</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>
<Blob><Name>root/objects/r/2</Name><Snapshot>2026-11-01T00:00:00.0000000Z</Snapshot>
<Properties><Content-Length>3</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>
<Blob><Name>root/objects/r/3</Name><Deleted>true</Deleted>
<VersionId>2026-10-01T00:00:00.0000000Z</VersionId>
<Properties><Content-Length>2</Content-Length><BlobType>BlockBlob</BlobType><RemainingRetentionDays>6</RemainingRetentionDays></Properties></Blob>
</Blobs><NextMarker /></EnumerationResults>"""


def azure_says(code: str, status: int) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code></Error>".encode(), {"x-ms-error-code": code})


def test_azure_lists_versions_snapshots_and_what_soft_delete_keeps() -> None:
    with asking("az", Answer(200, LISTING, {"Content-Type": "application/xml"})) as azure:
        rows = azure.rows()
        [(_, _, query)] = azure.asked()
    assert query["include"] == "versions,snapshots,deleted"
    assert [(row.key, row.size, row.newest, bool(row.kept)) for row in rows] == [
        ("objects/r/1", 5, True, False),
        ("objects/r/1", 4, False, False),
        ("objects/r/2", 3, False, False),
        ("objects/r/3", 2, False, True),
    ]
    assert len({(row.key, row.version) for row in rows}) == 4
    until = rows[3].until
    assert until is not None
    assert timedelta(days=5, hours=23) < until - datetime.now(UTC) <= timedelta(days=6)


def test_azure_erases_each_by_its_name_and_the_current_one_by_two_steps() -> None:
    """Azure deletes no version while it is the current one: it has to become an older one first."""
    with asking("az", Answer(200, LISTING, {"Content-Type": "application/xml"}), Answer(202)) as azure:
        rows = azure.rows()[:3]
        assert azure.erase(rows) == []
        asked = azure.asked()[1:]
        heads = [one.headers for one in azure.server.requests[1:]]
    named = sorted((path, query.get("versionid"), query.get("snapshot")) for _, path, query in asked[:2])
    assert named == sorted(
        [
            ("/a/c/root/objects/r/1", "2026-11-01T00:00:00.0000000Z", None),
            ("/a/c/root/objects/r/2", None, "2026-11-01T00:00:00.0000000Z"),
        ],
        key=lambda one: (one[0], one[1] or ""),
    )
    assert [query.get("versionid") for _, _, query in asked[2:]] == [None, "2026-11-02T00:00:00.0000000Z"]
    assert heads[2]["x-ms-delete-snapshots"] == "include"
    assert {method for method, _, _ in asked} == {"DELETE"}


def test_azure_says_why_a_version_stays() -> None:
    row = Version("objects/r/1", "version:2026-11-01T00:00:00.0000000Z", 4)
    with asking("az", azure_says("BlobImmutableDueToPolicy", 409)) as azure:
        [left] = azure.erase([row])
    assert (left.row, left.kind) == (row, "retained")
    assert "immutability policy" in left.why
    with asking("az", azure_says("BlobNotFound", 404)) as azure:
        assert azure.erase([row]) == []


def test_azure_rehydrates_once_and_waits() -> None:
    def head(**more: str) -> Answer:
        return Answer(200, b"", {"x-ms-access-tier": "Archive", "x-ms-blob-type": "BlockBlob", **more})

    pending = {"x-ms-archive-status": "rehydrate-pending-to-hot"}
    with asking("az", head(), Answer(202), head(**pending)) as azure:
        cold = Cold(azure.engine)
        assert azure.run(cold.warmth("objects/r/1")) is Warmth.COLD
        azure.run(cold.rewarm("objects/r/1", days=7, speed="expedited"))
        assert azure.run(cold.warmth("objects/r/1")) is Warmth.COMING
        asked = azure.server.requests[1]
    assert (asked.method, asked.headers["x-ms-access-tier"]) == ("PUT", "Hot")
    assert asked.headers["x-ms-rehydrate-priority"] == "High"
    assert "comp=tier" in asked.path


@pytest.mark.parametrize("code", ["BlobArchived", "BlobBeingRehydrated"])
def test_an_archived_blob_is_told(code: str) -> None:
    with asking("az", azure_says(code, 409)) as azure, pytest.raises(ArchivedError) as caught:
        azure.run(azure.engine.read("objects/r/1"))
    assert caught.value.facts["key"] == "objects/r/1"


# ---- Amazon


def amazon_says(code: str, status: int, more: str = "") -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message>{more}</Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


def test_an_object_in_glacier_is_told_with_its_class() -> None:
    cold = amazon_says("InvalidObjectState", 403, "<StorageClass>DEEP_ARCHIVE</StorageClass>")
    with asking("s3", cold) as amazon, pytest.raises(ArchivedError) as caught:
        amazon.run(amazon.engine.read("objects/r/1"))
    assert caught.value.facts["storage_class"] == "DEEP_ARCHIVE"
    assert caught.value.facts["key"] == "objects/r/1"


@pytest.mark.parametrize(
    ("headers", "warmth"),
    [
        ({}, Warmth.WARM),
        ({"x-amz-storage-class": "GLACIER_IR"}, Warmth.WARM),
        ({"x-amz-storage-class": "GLACIER"}, Warmth.COLD),
        ({"x-amz-storage-class": "DEEP_ARCHIVE"}, Warmth.COLD),
        ({"x-amz-storage-class": "GLACIER", "x-amz-restore": 'ongoing-request="true"'}, Warmth.COMING),
        (
            {
                "x-amz-storage-class": "GLACIER",
                "x-amz-restore": 'ongoing-request="false", expiry-date="Fri, 21 Dec 2030 00:00:00 GMT"',
            },
            Warmth.WARM,
        ),
        ({"x-amz-storage-class": "INTELLIGENT_TIERING"}, Warmth.WARM),
        (
            {"x-amz-storage-class": "INTELLIGENT_TIERING", "x-amz-archive-status": "ARCHIVE_ACCESS"},
            Warmth.COLD,
        ),
    ],
)
def test_what_amazon_says_of_an_objects_tier(headers: dict[str, str], warmth: Warmth) -> None:
    with asking("s3", Answer(200, b"", headers)) as amazon:
        assert amazon.run(Cold(amazon.engine).warmth("objects/r/1")) is warmth


def test_what_intelligent_tiering_moved_is_asked_for_without_days() -> None:
    """It moves the object back and makes no copy; days would be refused."""
    head = Answer(200, b"", {"x-amz-archive-status": "DEEP_ARCHIVE_ACCESS"})
    with asking("s3", head, Answer(202)) as amazon:
        amazon.run(Cold(amazon.engine).rewarm("objects/r/1", days=3, speed="bulk"))
        body = amazon.server.requests[-1].body
    assert b"<Tier>Bulk</Tier>" in body
    assert b"Days" not in body


def test_asking_for_what_was_asked_for_is_no_failure() -> None:
    head = Answer(200, b"", {"x-amz-storage-class": "GLACIER"})
    with asking("s3", head, amazon_says("RestoreAlreadyInProgress", 409)) as amazon:
        amazon.run(Cold(amazon.engine).rewarm("objects/r/1", days=3, speed="standard"))
    assert b"<Days>3</Days>" in amazon.server.requests[-1].body


def test_no_room_for_an_expedited_restore_is_told() -> None:
    head = Answer(200, b"", {"x-amz-storage-class": "GLACIER"})
    none = amazon_says("GlacierExpeditedRetrievalNotAvailable", 503)
    with asking("s3", head, none) as amazon, pytest.raises(StorageError, match="standard") as caught:
        amazon.run(Cold(amazon.engine).rewarm("objects/r/1", days=3, speed="expedited"))
    assert caught.value.kind == "no-expedited"


def test_a_store_without_versions_is_told() -> None:
    with asking("s3", amazon_says("NotImplemented", 501)) as store, pytest.raises(UnsupportedStoreError):
        store.rows()


ROW = Version("objects/r/1", "v1", 4)


def deleted(code: str) -> Answer:
    error = f"<Error><Key>root/objects/r/1</Key><VersionId>v1</VersionId><Code>{code}</Code></Error>"
    return Answer(200, f"<DeleteResult>{error}</DeleteResult>".encode())


def test_a_version_that_is_gone_already_is_no_failure() -> None:
    with asking("s3", deleted("NoSuchVersion")) as amazon:
        assert amazon.erase([ROW]) == []


def test_a_store_that_is_busy_is_asked_again_and_locks_nothing() -> None:
    """`InternalError` of one row among many is no lock, and must not land in a receipt as one."""
    with asking("s3", deleted("InternalError")) as amazon, pytest.raises(AmbiguousError):
        amazon.erase([ROW])


def test_a_right_that_is_missing_is_named() -> None:
    with asking("s3", deleted("AccessDenied"), Answer(200)) as amazon:
        [left] = amazon.erase([ROW])
    assert (left.row, left.kind) == (ROW, "denied")
    assert "s3:DeleteObjectVersion" in left.why
