"""The doctor on real buckets: what their settings mean, and what their users may not do."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

import cloudckpt.doctor.s3 as of_s3
from cloudckpt.clock import SystemClock
from cloudckpt.doctor import Report, examine
from cloudckpt.errors import StorageError, UnsupportedStoreError
from cloudckpt.runner import make_runner
from cloudckpt.storage.findings import Level
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.s3 import S3Storage
from cloudckpt.storage.s3_boto3 import Boto3Storage
from tests.servers.base import ROOT, Server
from tests.unit.visits import found

ENGINES: dict[str, Any] = {
    "s3fs": S3Storage,
    "boto3": Boto3Storage,
    "obstore": partial(ObstoreStorage, "s3"),
}
CLI_PAGE = (ROOT / "docs/cli.md").read_text()
ANONYMOUS = {"anon": True, "key": None, "secret": None}


def visit(
    server: Server, bucket: str, engine: str = "s3fs", *, prefix: str = "agents", **options: Any
) -> Report:
    storage = ENGINES[engine](bucket, prefix, storage_options={**server.storage_options(), **options})
    runner = make_runner(blocking=storage.blocking, clock=SystemClock())
    try:
        return runner.call(examine(storage, runner.effects))
    finally:
        runner.call(storage.close())


def levels(report: Report, *checks: str) -> list[Level]:
    return [found(report, check).level for check in checks]


def new_bucket(server: Server, **options: Any) -> str:
    name = f"doctor-{uuid.uuid4().hex[:12]}"
    server.client().create_bucket(Bucket=name, **options)
    return name


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plain_bucket_has_no_fault_and_is_left_empty(
    s3_server: Server, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks Amazon who the user of another store is."""

    def ask(*_: Any) -> Any:
        raise AssertionError("STS was asked")

    monkeypatch.setattr(of_s3, "whoami", ask)
    bucket = new_bucket(s3_server)
    report = visit(s3_server, bucket, engine)
    assert (report.count(Level.FAULT), report.left, report.engine) == (0, (), engine)
    for finding in report.findings:
        assert f"| `{finding.check}` |" in CLI_PAGE, "every check is in docs/cli.md"
    assert levels(report, "conditions", "clock", "endpoint") == [Level.OK] * 3
    identity = found(report, "identity")
    assert (identity.level, "clou..." in identity.found) == (Level.UNKNOWN, True)
    assert s3_server.secret_key not in str(report)
    assert "Contents" not in s3_server.client().list_objects_v2(Bucket=bucket)


# ---- settings


@pytest.mark.parametrize("engine", ENGINES)
def test_the_settings_of_a_bucket_are_told(moto_server: Server, engine: str) -> None:
    client, bucket = moto_server.client(), new_bucket(moto_server)
    report = visit(moto_server, bucket, engine)
    assert levels(report, "versioning", "lifecycle", "object-lock") == [Level.OK] * 3
    assert levels(report, "encryption", "storage-class") == [Level.WARNING, Level.OK]

    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    client.put_bucket_encryption(
        Bucket=bucket,
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]
        },
    )
    set_rules(client, bucket, {"Prefix": "agents/objects/", "Expiration": {"Days": 1}})
    report = visit(moto_server, bucket, engine)
    assert levels(report, "versioning", "lifecycle") == [Level.WARNING, Level.FAULT]
    assert "agents/manifests/" in found(report, "versioning").do
    assert found(report, "encryption").facts["algorithm"] == "aws:kms"

    set_rules(client, bucket, {"Prefix": "agents/", "NoncurrentVersionExpiration": {"NoncurrentDays": 30}})
    assert levels(visit(moto_server, bucket, engine), "versioning", "lifecycle") == [Level.OK, Level.OK]


def set_rules(client: Any, bucket: str, *rules: dict[str, Any]) -> None:
    client.put_bucket_lifecycle_configuration(
        Bucket=bucket,
        LifecycleConfiguration={
            "Rules": [
                {
                    "ID": f"rule {number}",
                    "Status": "Enabled",
                    "Filter": {"Prefix": rule["Prefix"]},
                    **{name: value for name, value in rule.items() if name != "Prefix"},
                }
                for number, rule in enumerate(rules)
            ]
        },
    )


def test_obstore_says_who_asks_for_it_and_what_it_sends_itself(moto_server: Server) -> None:
    """Its writes carry another digest than those of boto3, which asks."""
    bucket = new_bucket(moto_server)
    report = visit(moto_server, bucket, "obstore")
    assert "boto3" in found(report, "settings").found
    assert found(report, "checksums").facts == {"algorithm": "SHA256"}
    config = {"request_checksum_calculation": "when_required"}
    assert found(visit(moto_server, bucket, "obstore", config_kwargs=config), "checksums").facts == {
        "algorithm": None
    }


def test_obstore_alone_says_that_nobody_looked(moto_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence would pass for a bucket without a rule that deletes."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    report = visit(moto_server, new_bucket(moto_server), "obstore")
    settings = found(report, "settings")
    assert (settings.level, "not looked at" in settings.found) == (Level.UNKNOWN, True)
    assert "cloudckpt[boto3]" in settings.do
    assert settings == report.findings[-1]


def test_settings_that_boto3_can_not_ask_for_stop_no_visit(
    moto_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options that obstore works by may be none of botocore's: here a profile that only it looks for."""
    bucket = new_bucket(moto_server)
    monkeypatch.setenv("AWS_PROFILE", "of-another-machine")
    report = visit(moto_server, bucket, "obstore")
    assert (report.count(Level.FAULT), found(report, "settings").level) == (0, Level.UNKNOWN)


@pytest.mark.parametrize(
    ("retention", "level"), [(None, Level.OK), ({"Mode": "GOVERNANCE", "Days": 7}, Level.WARNING)]
)
def test_a_default_retention_is_told_with_what_it_keeps(
    racing_server: Server, retention: dict[str, Any] | None, level: Level
) -> None:
    """Overwrites and conditions go on working on a locked bucket; what piles up is the warning."""
    bucket = new_bucket(racing_server, ObjectLockEnabledForBucket=True)
    if retention is not None:
        racing_server.client().put_object_lock_configuration(
            Bucket=bucket,
            ObjectLockConfiguration={
                "ObjectLockEnabled": "Enabled",
                "Rule": {"DefaultRetention": retention},
            },
        )
    report = visit(racing_server, bucket)
    assert levels(report, "object-lock", "conditions") == [level, Level.OK]
    assert retention is None or "7 days (GOVERNANCE)" in found(report, "object-lock").found


def test_a_lock_that_demands_checksums_takes_our_writes(moto_server: Server) -> None:
    """Without a digest of the body in the request no write to such a bucket gets through."""
    bucket = new_bucket(moto_server, ObjectLockEnabledForBucket=True)
    moto_server.client().put_object_lock_configuration(
        Bucket=bucket,
        ObjectLockConfiguration={
            "ObjectLockEnabled": "Enabled",
            "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}},
        },
    )
    report = visit(moto_server, bucket)
    assert levels(report, "write", "checksums") == [Level.OK, Level.OK]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cold", ["GLACIER", "DEEP_ARCHIVE"])
def test_a_storage_class_that_can_not_be_read_back_is_a_fault(
    moto_server: Server, engine: str, cold: str
) -> None:
    report = visit(moto_server, new_bucket(moto_server), engine, s3_additional_kwargs={"StorageClass": cold})
    assert found(report, "storage-class").level is Level.FAULT
    assert "StorageClass" in found(report, "storage-class").do


@pytest.mark.parametrize(
    ("pointer", "payload", "level"),
    [
        (None, None, Level.OK),
        ("INTELLIGENT_TIERING", "INTELLIGENT_TIERING", Level.OK),
        ("STANDARD_IA", "STANDARD_IA", Level.WARNING),
        (None, "STANDARD_IA", Level.OK),
        (None, "GLACIER_IR", Level.OK),
        (None, "GLACIER", Level.FAULT),
        ("DEEP_ARCHIVE", None, Level.FAULT),
    ],
)
def test_pointers_and_objects_are_told_apart(pointer: str | None, payload: str | None, level: Level) -> None:
    """An object may be cool; a pointer in a class with a minimum time is billed for it at every save."""
    heads = [{"StorageClass": each} if each else {} for each in (pointer, payload)]
    assert of_s3._storage_class(*heads).level is level


def test_what_options_ask_for_is_seen_on_what_was_written(moto_server: Server) -> None:
    more = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "key-1", "Tagging": "team=a"}
    client, bucket = moto_server.client(), new_bucket(moto_server)
    client.put_bucket_lifecycle_configuration(
        Bucket=bucket,
        LifecycleConfiguration={
            "Rules": [
                {
                    "ID": "team a leaves",
                    "Status": "Enabled",
                    "Filter": {"Tag": {"Key": "team", "Value": "a"}},
                    "Expiration": {"Days": 1},
                }
            ]
        },
    )
    report = visit(moto_server, bucket, s3_additional_kwargs=more)
    assert found(report, "encryption").facts == {"algorithm": "aws:kms", "key": "key-1"}
    assert found(report, "lifecycle").facts["rules"] == ["team a leaves"]
    assert levels(visit(moto_server, bucket), "lifecycle") == [Level.OK]


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedStoreError("the store does not implement it", status=501),
        StorageError("the store refused the request", code="MethodNotAllowed", status=405),
    ],
)
def test_a_store_that_does_not_know_a_question_gives_unknown(
    moto_server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Compatible stores implement a part of the API, and each another one."""
    real = S3Storage._call

    async def call(self: S3Storage, method: str, key: str | None, **parameters: Any) -> Any:
        if method.startswith("get_") and method != "get_object":
            raise error
        return await real(self, method, key, **parameters)

    monkeypatch.setattr(S3Storage, "_call", call)
    report = visit(moto_server, new_bucket(moto_server))
    asked = ["versioning", "lifecycle", "object-lock", "encryption"]
    assert levels(report, *asked) == [Level.UNKNOWN] * 4
    assert report.count(Level.FAULT) == 0


# ---- rights


def public_bucket(server: Server, *actions: str) -> str:
    """Return a bucket where everybody may do just this; MinIO takes anonymous requests then."""
    bucket = new_bucket(server)
    statements = [
        {
            "Effect": "Allow",
            "Principal": "*",
            "Action": [action],
            "Resource": f"arn:aws:s3:::{bucket}" + ("" if action == "s3:ListBucket" else "/*"),
        }
        for action in actions
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    server.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    return bucket


ALL = ("s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("lacks", "wrong"),
    [
        (None, {}),
        ("s3:GetObject", {"read": Level.FAULT}),
        ("s3:PutObject", {"write": Level.FAULT}),
        ("s3:ListBucket", {"list": Level.FAULT}),  # MinIO answers 404 all the same
        ("s3:DeleteObject", {"delete": Level.WARNING}),
    ],
)
def test_a_right_that_the_bucket_does_not_grant_is_named(
    minio_server: Server, engine: str, lacks: str | None, wrong: dict[str, Level]
) -> None:
    bucket = public_bucket(minio_server, *(action for action in ALL if action != lacks))
    report = visit(minio_server, bucket, engine, **ANONYMOUS)
    rights = ("write", "read", "missing-key", "list", "delete")
    told = {check: found(report, check).level for check in rights}
    assert {check: level for check, level in told.items() if level in (Level.WARNING, Level.FAULT)} == wrong
    assert all(lacks is None or lacks in found(report, check).do for check in wrong)
    assert levels(report, "identity", "lifecycle") == [Level.WARNING, Level.UNKNOWN]
    names = [row["Key"] for row in minio_server.client().list_objects_v2(Bucket=bucket).get("Contents", [])]
    assert names == [f"agents/{key}" for key in report.left]
    assert bool(names) is (lacks == "s3:DeleteObject")


def test_a_bucket_that_is_not_there_is_one_fault(minio_server: Server) -> None:
    report = visit(minio_server, "no-such-bucket")
    assert [finding.check for finding in report.findings] == ["engine", "store"]
    assert found(report, "store").facts["kind"] == "no-such-bucket"


# ---- who


@pytest.fixture
def amazon() -> Iterator[None]:
    """Amazon's endpoints, answered in this process."""
    with mock_aws():
        yield


OPTIONS = {"key": "AKIAEXAMPLE123456789", "secret": "secret", "client_kwargs": {"region_name": "us-east-1"}}


def test_on_amazon_sts_tells_who_it_is(amazon: None) -> None:
    boto3.client("s3", region_name="us-east-1", **credentials()).create_bucket(Bucket="doctor")
    engine = Boto3Storage("doctor", "agents", storage_options=OPTIONS)
    runner = make_runner(blocking=True, clock=SystemClock())
    report = runner.call(examine(engine, runner.effects))
    runner.call(engine.close())
    identity = found(report, "identity")
    assert (identity.level, identity.facts["account"]) == (Level.OK, "123456789012")
    assert "AKIAEXAM..." in identity.found
    assert found(report, "endpoint").facts["amazon"] is True
    assert found(report, "checksums").facts["request_checksum_calculation"] == "when_supported"


def credentials() -> dict[str, str]:
    return {"aws_access_key_id": OPTIONS["key"], "aws_secret_access_key": OPTIONS["secret"]}  # type: ignore[dict-item]


def test_credentials_that_are_awaited_are_asked_for_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of aiobotocore are; and STS is asked by a library that blocks, which must not stop the loop."""

    async def frozen() -> SimpleNamespace:
        return SimpleNamespace(access_key="AKIAEXAMPLE", secret_key="s", token=None)

    client = SimpleNamespace(
        _get_credentials=lambda: SimpleNamespace(get_frozen_credentials=frozen),
        meta=SimpleNamespace(endpoint_url="https://s3.amazonaws.com", region_name="us-east-1"),
    )
    answers: list[Any] = [{"Arn": "arn:aws:iam::1:user/a", "Account": "1"}, "ConnectTimeoutError"]

    def whoami(credentials: Any, region: str) -> Any:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return answers.pop(0)

    monkeypatch.setattr(of_s3, "whoami", whoami)
    engine = S3Storage("b", "")
    assert asyncio.run(of_s3._identity(engine, client)).facts["arn"] == "arn:aws:iam::1:user/a"
    unanswered = asyncio.run(of_s3._identity(engine, client))
    assert (unanswered.level, "ConnectTimeoutError" in unanswered.found) == (Level.UNKNOWN, True)


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("http://127.0.0.1:9000", Level.OK),
        ("http://localhost:9000", Level.OK),
        ("http://[::1]:9000", Level.OK),
        ("http://minio.example.com", Level.WARNING),
        ("https://minio.example.com", Level.OK),
    ],
)
def test_a_network_that_others_listen_on_wants_https(url: str, level: Level) -> None:
    client = SimpleNamespace(meta=SimpleNamespace(endpoint_url=url, region_name=None))
    assert of_s3._endpoint(client).level is level
