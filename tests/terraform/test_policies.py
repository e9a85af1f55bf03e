"""What the policies of `terraform/aws` allow and refuse: by the product at work, and by the laws of a store.

The product works under each role on a server that knows no policies, held to them by `Watch`. So
a right that it needs and has not fails its life, and one that no request needs is seen too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.storage.findings import Level
from tests.servers.base import Server
from tests.terraform import lives
from tests.terraform.calls import Watch
from tests.terraform.evaluator import Call, Statement, is_allowed, listed, matches
from tests.terraform.policies import BUCKET_POLICY, KEY, ROLES, Setting, path, render, role_arn
from tests.terraform.tools import without_providers

LIVES = {"writer": lives.agent, "reader": lives.reader, "maintainer": lives.maintainer}
PLACES = {
    "a store of all runs": {"prefix": "agents/"},
    "a bucket's runs of one team, with a key": {"prefix": "", "run": "team-a-*", "kms": KEY},
}

SETTING = Setting()
TEAM = Setting(prefix="", run="team-a-*")
ADMIN: list[Statement] = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
"""A role that may do anything."""

RUN_KEY = "manifests/team-a-1.json"
OBJECT_KEY = f"objects/team-a-1/1-{'0' * 64}-{'1' * 16}"


@pytest.fixture(scope="module", params=[(role, place) for role in LIVES for place in PLACES], ids=" of ".join)
def lived(request: pytest.FixtureRequest, moto_server: Server) -> tuple[str, lives.Place, Watch]:
    """Return a role after its life: its name, where it lived, and what it asked for."""
    role, name = request.param
    place = lives.Place(moto_server, **PLACES[name])
    watch = place.watch(role)
    LIVES[role](place, watch)
    return role, place, watch


def grants(statements: list[Statement]) -> Iterator[Statement]:
    """Yield each single thing that statements allow, as a statement of its own."""
    for one in statements:
        for action in listed(one["Action"]):
            for resource in listed(one["Resource"]):
                condition: Mapping[str, Any] = one.get("Condition", {})
                for prefix in condition.get("StringLike", {}).get("s3:prefix", [None]):
                    like = {} if prefix is None else {"StringLike": {"s3:prefix": prefix}}
                    yield {"Effect": "Allow", "Action": action, "Resource": resource, "Condition": like}


# ---- the product under its roles


def test_a_role_is_enough_for_its_life(lived: tuple[str, lives.Place, Watch]) -> None:
    """All of it has run, with each denial answered as AWS would. Only a writer is denied one thing."""
    role, _, watch = lived
    assert len(watch.made) > 10
    assert {call.action for call in watch.denied} == ({"s3:DeleteObject"} if role == "writer" else set())


def test_a_role_may_do_nothing_that_its_life_does_not_need(lived: tuple[str, lives.Place, Watch]) -> None:
    role, place, watch = lived
    unused = [
        one for one in grants(place.setting.statements(role)) if not any(matches(one, c) for c in watch.made)
    ]
    assert not unused


def test_a_role_needs_each_of_its_statements(lived: tuple[str, lives.Place, Watch]) -> None:
    role, place, watch = lived
    every, bucket = place.setting.statements(role), place.setting.statements(BUCKET_POLICY)
    for one in every:
        without = [other for other in every if other is not one]
        assert not all(is_allowed(call, without, bucket) for call in watch.made), one["Sid"]


def test_all_that_is_written_carries_a_condition(lived: tuple[str, lives.Place, Watch]) -> None:
    """Or the bucket's policy could not ask for one."""
    _, _, watch = lived
    for call in watch.made:
        if call.action == "s3:PutObject":
            assert len({"s3:if-match", "s3:if-none-match"} & call.context.keys()) == 1, call


def test_a_missing_key_is_told_as_missing_only_to_one_who_may_list(moto_server: Server) -> None:
    """So the rights to list are needed, although a save lists nothing; and `Watch` does as S3 does."""
    place = lives.Place(moto_server)
    watch = place.watch("writer")
    client = watch.options["session"].client("s3", endpoint_url=moto_server.endpoint)
    for key, code in ((f"agents/{RUN_KEY}", "NoSuchKey"), ("agents/elsewhere", "AccessDenied")):
        with pytest.raises(client.exceptions.ClientError) as caught:
            client.get_object(Bucket=place.setting.bucket, Key=key)
        assert caught.value.response["Error"]["Code"] == code


def test_the_doctor_finds_a_writer_fit(moto_server: Server) -> None:
    """That it may not see the bucket's settings is unknown and no fault; nor delete, a warning."""
    place = lives.Place(moto_server)
    report = lives.doctor(place, place.watch("writer"))
    levels = {finding.check: finding.level for finding in report.findings}
    assert not report.count(Level.FAULT)
    assert [
        check
        for check in ("write", "read", "missing-key", "list", "conditions")
        if levels[check] is not Level.OK
    ] == []
    assert levels["delete"] is Level.WARNING
    assert levels["versioning"] is Level.UNKNOWN


# ---- the laws


def may(call: Call, role: str, setting: Setting = SETTING, bucket: list[Statement] | None = None) -> bool:
    """Whether a role may make a call.

    Args:
        call: The call.
        role: One of the three; "admin", whom nothing but the bucket's policy holds back; or
            "chief", who is that and one of the maintainers.
        setting: What the policies are rendered with.
        bucket: The bucket's policy, if not that.
    """
    has = ADMIN if role in ("admin", "chief") else setting.statements(role)
    policy = setting.statements(BUCKET_POLICY) if bucket is None else bucket
    return is_allowed(call.by(role_arn("maintainer" if role == "chief" else role)), has, policy)


def put(key: str, setting: Setting = SETTING, **headers: str) -> Call:
    context = {f"s3:{name.replace('_', '-')}": value for name, value in headers.items()}
    return on("PutObject", key, setting, {"s3:ObjectCreationOperation": "true", **context})


def on(action: str, key: str, setting: Setting = SETTING, context: Mapping[str, str] | None = None) -> Call:
    return Call(f"s3:{action}", f"{setting.bucket_arn}/{setting.prefix}{key}", context or {})


def listing(prefix: str, setting: Setting = SETTING, action: str = "ListBucket") -> Call:
    return Call(f"s3:{action}", setting.bucket_arn, {"s3:prefix": setting.prefix + prefix})


CREATE, REPLACE = {"if_none_match": "*"}, {"if_match": '"etag"'}
PART = {"s3:ObjectCreationOperation": "false"}
PLAIN = {"aws:SecureTransport": "false"}

LAWS: dict[str, tuple[Call, dict[str, bool]]] = {
    "a pointer is created on condition": (put(RUN_KEY, **CREATE), {"writer": True, "maintainer": True}),
    "a pointer is replaced on condition": (put(RUN_KEY, **REPLACE), {"writer": True, "maintainer": True}),
    "a pointer is not written without one": (
        put(RUN_KEY),
        {"writer": False, "maintainer": False, "admin": False},
    ),
    "nor is the store's setting": (put("settings.json"), {"maintainer": False, "admin": False}),
    "an object is written once": (put(OBJECT_KEY, **CREATE), {"writer": True, "maintainer": True}),
    "an object is not replaced": (
        put(OBJECT_KEY, **REPLACE),
        {"writer": False, "maintainer": False, "admin": False},
    ),
    "nor is the store's document": (put(keys.STORE_KEY, **REPLACE), {"writer": False, "admin": False}),
    "an object is not written without a condition": (put(OBJECT_KEY), {"writer": False, "admin": False}),
    "parts of an upload have no condition": (on("PutObject", OBJECT_KEY, context=PART), {"admin": True}),
    "a reader writes nothing": (put(RUN_KEY, **CREATE), {"reader": False}),
    "not even a probe": (put("probe/1", **CREATE), {"reader": False, "writer": True}),
    "a writer sets no rules": (put("settings.json", **REPLACE), {"writer": False, "maintainer": True}),
    "a maintainer deletes objects": (
        on("DeleteObject", OBJECT_KEY),
        {"maintainer": True, "writer": False, "reader": False, "admin": False},
    ),
    "and their versions": (
        on("DeleteObjectVersion", OBJECT_KEY),
        {"maintainer": True, "writer": False, "reader": False, "admin": False},
    ),
    "and old versions of pointers": (
        on("DeleteObjectVersion", RUN_KEY),
        {"maintainer": True, "writer": False, "admin": False},
    ),
    "but a pointer nobody": (
        on("DeleteObject", RUN_KEY),
        {"maintainer": False, "writer": False, "admin": False, "chief": False},
    ),
    "a probe is a maintainer's to delete": (
        on("DeleteObject", "probe/1"),
        {"maintainer": True, "writer": False},
    ),
    "nobody comes without TLS": (
        on("GetObject", RUN_KEY, context=PLAIN),
        {"reader": False, "writer": False, "maintainer": False, "admin": False},
    ),
    "nor to the bucket": (Call("s3:ListBucket", SETTING.bucket_arn, PLAIN), {"admin": False}),
    "with TLS they do": (on("GetObject", RUN_KEY), {"reader": True, "writer": True, "maintainer": True}),
    "a lock is the writer's": (on("PutObjectRetention", OBJECT_KEY), {"writer": True, "reader": False}),
    "on objects only": (on("PutObjectRetention", RUN_KEY), {"writer": False, "maintainer": False}),
    "nobody has the right to break one": (
        on("BypassGovernanceRetention", OBJECT_KEY),
        {"writer": False, "maintainer": False},
    ),
    "nobody changes the bucket": (Call("s3:PutBucketPolicy", SETTING.bucket_arn), {"maintainer": False}),
    "nor lists all of it": (listing("", replace(SETTING, prefix="")), dict.fromkeys(ROLES, False)),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_law_of_the_store_holds(law: str) -> None:
    call, answers = LAWS[law]
    assert {role: may(call, role) for role in answers} == answers


def test_each_statement_of_the_buckets_policy_is_one_that_a_law_needs() -> None:
    """What a law forbids comes through, also by those whom no role holds back, when one is taken away."""
    every = SETTING.statements(BUCKET_POLICY)
    for one in every:
        without = [other for other in every if other is not one]
        broken = [
            law
            for law, (call, answers) in LAWS.items()
            if any(may(call, role, bucket=without) != answer for role, answer in answers.items())
        ]
        assert broken, one["Sid"]


def test_the_buckets_policy_leaves_the_rest_of_the_bucket_alone() -> None:
    outside = replace(SETTING, prefix="reports/")
    assert may(put("x", outside), "admin")
    assert may(on("DeleteObject", "x", outside), "admin")
    assert not may(on("GetObject", "x", outside, PLAIN), "admin")


@pytest.mark.parametrize("role", ROLES)
def test_a_role_ends_at_the_stores_prefix(role: str) -> None:
    for prefix in ("", "other/", "agents2/", "agents/nested/"):
        other = replace(SETTING, prefix=prefix)
        assert not may(on("GetObject", RUN_KEY, other), role), prefix
        assert not may(put(OBJECT_KEY, other, **CREATE), role), prefix
        assert not may(listing("manifests/", other), role), prefix


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("run", ["team-a-*", "team-a-1"])
def test_a_role_for_some_runs_does_not_touch_another(role: str, run: str) -> None:
    setting = replace(TEAM, run=run)
    mine, others = (
        "team-a-1",
        ("team-b-1", "team-", "xteam-a-1", *(("team-a-10",) if run == "team-a-1" else ())),
    )
    for other in others:
        manifest, obj = keys.manifest_key(other), keys.object_key(other, 1, "0" * 64, "1")
        denied = [
            *(on("GetObject", key, setting) for key in (manifest, obj)),
            *(put(key, setting, **CREATE) for key in (manifest, obj)),
            put(manifest, setting, **REPLACE),
            *(
                on(action, obj, setting)
                for action in ("DeleteObject", "DeleteObjectVersion", "RestoreObject")
            ),
            on("DeleteObjectVersion", manifest, setting),
            listing(keys.objects_prefix(other), setting),
            listing(keys.objects_prefix(other), setting, "ListBucketVersions"),
            listing(manifest, setting),
        ]
        assert [call for call in denied if may(call, role, setting)] == [], other
    assert may(on("GetObject", keys.manifest_key(mine), setting), role, setting)
    assert may(on("GetObject", keys.object_key(mine, 1, "0" * 64, "1"), setting), role, setting)
    for key in (keys.manifest_key(mine), keys.object_key(mine, 1, "0" * 64, "1"), "settings.json"):
        assert may(listing(key, setting), role, setting), "else a missing key is answered as denied"
    assert may(listing(f"manifests/{run.removesuffix('*')}", setting), role, setting)
    assert not may(listing("manifests/", setting), role, setting)
    assert not may(listing("objects/", setting), role, setting)
    assert not may(put("settings.json", setting, **REPLACE), role, setting), "it holds for every run"


def test_a_role_for_runs_with_capitals_is_made_of_their_keys() -> None:
    setting = replace(TEAM, run=f"{keys.encode_run('Team/')}*")
    for run, mine in (("Team/1", True), ("team/1", False), ("TEAM/1", False)):
        assert may(on("GetObject", keys.manifest_key(run), setting), "writer", setting) is mine


def test_without_maintainers_nobody_deletes() -> None:
    alone = replace(SETTING, maintainers=())
    for action in ("DeleteObject", "DeleteObjectVersion"):
        for role in ("maintainer", "admin"):
            assert not may(on(action, OBJECT_KEY), role, bucket=alone.statements(BUCKET_POLICY))


@pytest.mark.parametrize("role", ROLES)
def test_the_key_is_used_only_where_there_is_one(role: str) -> None:
    use = Call("kms:Decrypt", KEY)
    assert may(use, role, replace(SETTING, kms=KEY))
    assert not may(use, role)
    assert not may(Call("kms:Decrypt", KEY.replace("checkpoints", "other")), role, replace(SETTING, kms=KEY))
    assert may(Call("kms:GenerateDataKey", KEY), role, replace(SETTING, kms=KEY)) is (role != "reader")


@pytest.mark.parametrize("name", [BUCKET_POLICY, *ROLES])
def test_a_policy_is_small_enough(name: str) -> None:
    """A managed policy holds 6,144 characters without whitespace, a bucket's policy 20,480 bytes."""
    long = replace(SETTING, bucket="b" * 63, prefix="p" * 60 + "/", run="r" * 60 + "*", kms=KEY)
    document = json.dumps(long.document(name), separators=(",", ":"))
    assert len(document) < (20_480 if name == BUCKET_POLICY else 6_144)


# ---- the templates


def test_terraform_renders_the_templates_as_these_tests_do(tmp_path: Path) -> None:
    settings = [SETTING, TEAM, Setting(kms=KEY, maintainers=()), Setting(prefix="", kms=KEY, run="one")]
    wanted = [(name, setting) for name in (BUCKET_POLICY, *ROLES) for setting in settings]
    made = ", ".join(
        f"jsondecode(templatefile({json.dumps(str(path(name)))}, {json.dumps(setting.variables)}))"
        for name, setting in wanted
    )
    done = without_providers(tmp_path, "console", stdin=f"jsonencode([{made}])\n")
    assert done.returncode == 0, done.stderr
    found = json.loads(json.loads(done.stdout))
    assert found == [setting.document(name) for name, setting in wanted]


def test_a_template_that_says_more_than_is_known_here_is_refused() -> None:
    with pytest.raises(ValueError, match="expression"):
        render("${upper(run)}", SETTING.variables)
    with pytest.raises(ValueError, match="directive"):
        render("%{ for x in y }%{ endfor }", SETTING.variables)
    with pytest.raises(KeyError):
        render("${other}", SETTING.variables)
    assert "${" not in render(path("writer").read_text(), SETTING.variables)
