"""What lifecycle rules would do to a store, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from cloudckpt.doctor.s3_lifecycle import ends_old_pointers, lifecycle_finding
from cloudckpt.storage.findings import Level

ROOT = "agents/"
DAYS = {"Expiration": {"Days": 30}}
DATE = {"Expiration": {"Date": "2030-01-01"}}
MARKERS = {"Expiration": {"ExpiredObjectDeleteMarker": True}}
OLD_VERSIONS = {"NoncurrentVersionExpiration": {"NoncurrentDays": 30}}
TO_GLACIER = {"Transitions": [{"Days": 1, "StorageClass": "STANDARD_IA"}, {"StorageClass": "GLACIER"}]}
TO_COOL = {"Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}, {"StorageClass": "GLACIER_IR"}]}


def rule(filter_: dict[str, Any] | str, *does: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a rule; a filter that is a str is the prefix in the old place of the rule itself."""
    where = {"Prefix": filter_} if isinstance(filter_, str) else {"Filter": filter_}
    merged: dict[str, Any] = {}
    for each in does:
        merged |= each
    return {"ID": "mine", "Status": "Enabled", **where, **merged, **more}


@pytest.mark.parametrize("does", [DAYS, DATE])
@pytest.mark.parametrize(
    ("where", "level"),
    [
        ({}, Level.FAULT),
        ({"Prefix": ""}, Level.FAULT),
        ("", Level.FAULT),
        ({"Prefix": "agents"}, Level.FAULT),
        ({"Prefix": "agents/manifests/"}, Level.FAULT),
        ({"Prefix": "agents/manifests/nightly"}, Level.FAULT),  # the runs whose id begins so
        ({"Prefix": "agents/objects/"}, Level.FAULT),
        ({"Prefix": "agents/cloudckpt.json"}, Level.FAULT),
        ({"And": {"Prefix": "agents/", "ObjectSizeGreaterThan": 1000}}, Level.FAULT),
        ("agents/objects/", Level.FAULT),
        ({"Prefix": "agents/probe/"}, Level.OK),
        ({"Prefix": "logs/"}, Level.OK),
        ({"Prefix": "agents-old/"}, Level.OK),
        ({"Tag": {"Key": "scratch", "Value": "yes"}}, Level.OK),
        ({"And": {"Prefix": "", "Tags": [{"Key": "team", "Value": "a"}]}}, Level.FAULT),
        ({"And": {"Prefix": "", "Tags": [{"Key": "team", "Value": "b"}]}}, Level.OK),
        (
            {"And": {"Tags": [{"Key": "team", "Value": "a"}, {"Key": "scratch", "Value": "yes"}]}},
            Level.OK,
        ),
    ],
)
def test_an_expiry_of_current_objects_is_a_fault_where_it_meets_the_store(
    where: Any, level: Level, does: dict[str, Any]
) -> None:
    """A rule for a prefix that is longer than the store's meets it too; one for a tag only with that tag."""
    assert lifecycle_finding([rule(where, does)], ROOT, [("team", "a")]).level is level


@pytest.mark.parametrize(
    ("where", "does", "level"),
    [
        ("", MARKERS, Level.OK),
        ("", OLD_VERSIONS, Level.OK),
        ("", {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}, Level.OK),
        ("", TO_COOL, Level.OK),
        ("", TO_GLACIER, Level.FAULT),
        ("agents/manifests/", TO_GLACIER, Level.FAULT),
        ("agents/objects/", TO_GLACIER, Level.WARNING),
        ("logs/", TO_GLACIER, Level.OK),
    ],
)
def test_other_rules_are_told_by_what_they_do(where: str, does: dict[str, Any], level: Level) -> None:
    """A pointer in an archive can't be read, while an old object may be there by choice."""
    assert lifecycle_finding([rule(where, does)], ROOT, []).level is level


def test_a_rule_that_is_off_does_nothing() -> None:
    off = rule("", DAYS, OLD_VERSIONS, Status="Disabled")
    assert lifecycle_finding([off], ROOT, []).level is Level.OK
    assert not ends_old_pointers([off], ROOT)


def test_the_worst_rule_is_told_by_its_name() -> None:
    rules = [
        rule("", OLD_VERSIONS),
        rule("agents/objects/", TO_GLACIER),
        rule("", DAYS, ID="spring cleaning"),
    ]
    finding = lifecycle_finding(rules, ROOT, [])
    assert finding.facts["rules"] == ["spring cleaning"]
    assert "'spring cleaning'" in finding.found
    unnamed = {"Status": "Enabled", "Prefix": "agents/", **DAYS}
    assert "prefix 'agents/'" in lifecycle_finding([unnamed], ROOT, []).found


@pytest.mark.parametrize(
    ("where", "ends"),
    [
        ({"Prefix": ""}, True),
        ({"Prefix": "agents/"}, True),
        ("agents/manifests/", True),
        ({"Prefix": "agents/manifests/nightly"}, False),
        ({"Prefix": "agents/objects/"}, False),
        ({"Tag": {"Key": "a", "Value": "b"}}, False),
    ],
)
def test_old_pointers_end_where_a_rule_covers_all_of_them(where: Any, ends: bool) -> None:
    assert ends_old_pointers([rule(where, OLD_VERSIONS)], ROOT) is ends
    assert not ends_old_pointers([rule(where, DAYS)], ROOT)


def test_a_store_at_the_root_of_its_bucket_has_areas_too() -> None:
    assert lifecycle_finding([rule("objects/", DAYS)], "", []).level is Level.FAULT
    assert lifecycle_finding([rule("logs/", DAYS)], "", []).level is Level.OK


@pytest.mark.parametrize(
    ("where", "more", "aborts"),
    [
        ("", {}, True),
        ("agents/", {}, True),
        ("agents/objects/", {}, True),
        ("agents/objects/x/", {}, False),
        ("logs/", {}, False),
        ("", {"Status": "Disabled"}, False),
    ],
)
def test_a_rule_that_aborts_uploads_is_told_where_it_reaches_objects(
    where: str, more: dict[str, Any], aborts: bool
) -> None:
    finding = lifecycle_finding(
        [rule(where, {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}, **more)], ROOT, []
    )
    assert (finding.level, finding.facts["aborts_uploads"]) == (Level.OK, aborts)
    assert finding.found.endswith("; incomplete uploads are aborted") is aborts
