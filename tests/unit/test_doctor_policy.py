"""What a bucket's policy and public access block refuse, statement by statement."""

from __future__ import annotations

from typing import Any

import pytest

from cloudckpt.doctor.s3_policy import BLOCKS, policy_finding, public_access_finding
from cloudckpt.storage.findings import Level
from tests.terraform.policies import BUCKET_POLICY, Setting

ALL = "arn:aws:s3:::b/*"
TLS = {"Bool": {"aws:SecureTransport": "false"}}
NEITHER = {"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}}
CREATES = {"Bool": {"s3:ObjectCreationOperation": "true"}}
MAINTAINER = {"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::123456789012:role/m"}}


def deny(action: Any, condition: Any, **more: Any) -> dict[str, Any]:
    named = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": ALL, "Condition": condition}
    return {**named, **more}


def facts(*statements: dict[str, Any], root: str = "agents/") -> list[str]:
    """Return what such a policy is found to refuse."""
    found = policy_finding({"Statement": list(statements)}, "b", root, amazon=False)
    return [name for name, value in found.facts.items() if value]


@pytest.mark.parametrize("root", ["", "agents/", "a/b/"])
@pytest.mark.parametrize("maintainers", [(), ("arn:aws:iam::123456789012:role/m",)])
def test_the_policy_of_the_terraform_module_is_known_for_all_it_refuses(
    root: str, maintainers: tuple[str, ...]
) -> None:
    document = Setting(bucket="b", prefix=root, maintainers=maintainers).document(BUCKET_POLICY)
    finding = policy_finding(document, "b", root, amazon=True)
    assert finding.level is Level.OK
    assert finding.facts == {"tls_only": True, "conditional_only": True, "deletes_guarded": True}
    assert "TLS" in finding.found
    for other in ("c", "bb"):
        assert policy_finding(document, other, root, amazon=True).level is Level.WARNING


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        (deny("s3:*", TLS), ["tls_only"]),
        (deny("*", TLS, Principal={"AWS": "*"}), ["tls_only"]),
        (deny(["s3:GetObject", "S3:put*"], TLS, Principal={"AWS": ["*"]}), ["tls_only"]),
        (deny("s3:*", {"bool": {"AWS:SecureTransport": [False]}}), ["tls_only"]),
        (deny("s3:PutObject", TLS), []),
        (deny("s3:*", TLS, Effect="Allow"), []),
        (deny("s3:*", TLS, Principal={"AWS": "arn:aws:iam::123456789012:root"}), []),
        (deny("s3:*", TLS, Resource="arn:aws:s3:::b"), []),
        (deny("s3:*", TLS, Resource="arn:aws:s3:::b/agents/objects/*"), []),
        (deny("s3:*", {"Bool": {"aws:SecureTransport": "true"}}), []),
        (deny("s3:*", {**TLS, **MAINTAINER}), []),
        (deny("s3:PutObject", NEITHER), ["conditional_only"]),
        (deny("s3:PutObject", {**NEITHER, **CREATES}), ["conditional_only"]),
        (deny("s3:PutObject", {"Null": {"s3:if-match": "true"}}), []),
        (deny("s3:PutObject", {"Null": {**NEITHER["Null"], "s3:if-match": "false"}}), []),
        (deny("s3:PutObject", {**NEITHER, **MAINTAINER}), []),
        (deny("s3:GetObject", NEITHER), []),
        (deny("s3:DeleteObject", MAINTAINER), ["deletes_guarded"]),
        (deny("s3:DeleteObject", {}), ["deletes_guarded"]),
        (deny("s3:DeleteObject", {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}), []),
        (deny("s3:DeleteObject", MAINTAINER, Resource="arn:aws:s3:::b/agents/manifests/*"), []),
        ({"Effect": "Deny", "Principal": "*", "NotAction": "s3:ListBucket", "Resource": ALL}, []),
    ],
)
def test_a_denial_counts_only_for_everybody_and_all_of_the_store(
    statement: dict[str, Any], refused: list[str]
) -> None:
    """One more condition, one less resource, and some request gets through."""
    assert facts(statement) == refused


def test_a_bracket_in_a_resource_is_no_wildcard() -> None:
    assert facts(deny("s3:DeleteObject", {}, Resource="arn:aws:s3:::[b]/*")) == []


def test_a_policy_of_one_statement_need_not_have_a_list() -> None:
    document = {"Statement": deny("s3:*", TLS)}
    assert policy_finding(document, "b", "", amazon=False).facts["tls_only"] is True


@pytest.mark.parametrize(("amazon", "level"), [(True, Level.WARNING), (False, Level.OK)])
def test_what_is_missing_is_a_warning_where_it_can_be_had(amazon: bool, level: Level) -> None:
    """MinIO knows no condition for conditional writes, and refuses a policy that names one."""
    none = policy_finding({}, "b", "", amazon=amazon)
    half = policy_finding({"Statement": [deny("s3:*", TLS)]}, "b", "", amazon=amazon)
    assert (none.level, half.level, none.found) == (level, level, "none")
    assert not amazon or ("TLS" in none.do and "TLS" not in half.do and "condition" in half.do)


@pytest.mark.parametrize("missing", [None, *BLOCKS])
def test_public_access_is_blocked_by_all_four_or_not_at_all(missing: str | None) -> None:
    finding = public_access_finding({name: name != missing for name in BLOCKS})
    assert finding.level is (Level.OK if missing is None else Level.WARNING)
    assert finding.facts["lacking"] == ([missing] if missing else [])
    assert public_access_finding({}).facts["lacking"] == list(BLOCKS)
