"""The evaluator of policies, by what AWS documents of each operator that it knows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.terraform.evaluator import Call, is_allowed, is_like, matches, statements

ROLE = "arn:aws:iam::123456789012:role/writer"
GET = Call("s3:GetObject", "arn:aws:s3:::b/a/k").by(ROLE)


def allow(**more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "s3:*", "Resource": "*", **more}


def on(**condition: Any) -> dict[str, Any]:
    return allow(Condition=condition)


def with_(**context: str) -> Call:
    return Call("s3:GetObject", "arn:aws:s3:::b/a/k", {k.replace("_", ":"): v for k, v in context.items()})


def test_what_nobody_allows_is_denied() -> None:
    assert not is_allowed(GET, [], [])
    assert not is_allowed(GET, [allow(Action="s3:PutObject")], [])
    assert is_allowed(GET, [allow()], [])
    assert is_allowed(GET, [], [allow(Principal="*")])


@pytest.mark.parametrize("side", ["role", "bucket"])
def test_a_denial_wins_wherever_it_stands(side: str) -> None:
    both = {"role": [allow()], "bucket": [allow()]}
    both[side] = [*both[side], allow(Effect="Deny")]
    assert not is_allowed(GET, both["role"], both["bucket"])


def test_a_wildcard_goes_over_slashes_and_letters_of_regular_expressions_are_letters() -> None:
    assert is_like("b/a/k", "b/*")
    assert is_like("b/", "b/*")
    assert is_like("b/ak", "b/a?")
    assert not is_like("b/a", "b/a?")
    assert not is_like("b/axjson", "b/a.json")
    assert not is_like("xb/a", "b/*")
    assert is_like("a!4eb", "a!4e*")


def test_actions_have_no_case_and_resources_have() -> None:
    assert matches(allow(Action="S3:getobject"), GET)
    assert not matches(allow(Resource="arn:aws:s3:::B/*"), GET)
    assert matches(allow(Resource=["arn:aws:s3:::c/*", "arn:aws:s3:::b/*"]), GET)
    assert not matches(allow(Action="s3:GetObject"), Call("s3:GetObjectVersion", GET.resource))


def test_string_like_wants_the_key_and_one_of_its_values() -> None:
    condition = on(StringLike={"s3:prefix": ["a/*", "b"]})
    assert matches(condition, with_(s3_prefix="a/x/y"))
    assert matches(condition, with_(s3_prefix="b"))
    assert not matches(condition, with_(s3_prefix="bx"))
    assert not matches(condition, with_())


def test_bool_does_not_hold_without_its_key() -> None:
    condition = on(Bool={"aws:SecureTransport": "false"})
    assert matches(condition, with_(aws_SecureTransport="false"))
    assert matches(condition, with_(aws_SecureTransport="False"))
    assert not matches(condition, with_(aws_SecureTransport="true"))
    assert not matches(condition, with_())


def test_null_is_about_the_key_and_not_its_value() -> None:
    absent, present = on(Null={"s3:if-match": "true"}), on(Null={"s3:if-match": "false"})
    assert matches(absent, with_())
    assert not matches(absent, Call("s3:GetObject", GET.resource, {"s3:if-match": ""}))
    assert not matches(present, with_())
    assert matches(present, Call("s3:GetObject", GET.resource, {"s3:if-match": '"x"'}))


def test_the_keys_of_a_condition_hold_together() -> None:
    both = on(Null={"s3:if-match": "true", "s3:if-none-match": "true"}, Bool={"x": "true"})
    assert matches(both, with_(x="true"))
    assert not matches(both, with_())
    assert not matches(both, Call("s3:GetObject", GET.resource, {"x": "true", "s3:if-match": "e"}))
    assert not matches(both, Call("s3:GetObject", GET.resource, {"x": "true", "s3:if-none-match": "*"}))


def test_a_negated_operator_holds_when_no_value_does_or_the_key_is_missing() -> None:
    others = on(ArnNotLike={"aws:PrincipalArn": [ROLE, "arn:aws:iam::123456789012:role/ops-*"]})
    assert not matches(others, with_().by(ROLE))
    assert not matches(others, with_().by("arn:aws:iam::123456789012:role/ops-1"))
    assert matches(others, with_().by("arn:aws:iam::999999999999:role/ops-1"))
    assert matches(others, with_().by("arn:aws:iam::123456789012:role/writer2"))
    assert matches(others, with_())


def test_a_wildcard_in_an_arn_stays_in_its_part() -> None:
    anybodys = on(ArnNotLike={"aws:PrincipalArn": "arn:aws:iam::*:role/ops"})
    assert not matches(anybodys, with_().by("arn:aws:iam::1:role/ops"))
    assert matches(anybodys, with_().by("arn:aws:iam::1:user/x:role/ops"))


@pytest.mark.parametrize(
    "statement",
    [
        on(StringNotLike={"s3:prefix": "a"}),
        allow(NotAction="s3:GetObject"),
        allow(Principal={"AWS": ROLE}),
        allow(Effect="allow"),
    ],
)
def test_a_word_that_it_does_not_know_is_refused_and_not_passed_over(statement: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not know"):
        statements({"Version": "2012-10-17", "Statement": [statement]})


def test_a_document_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="2012-10-17"):
        statements({"Version": "2008-10-17", "Statement": []})
    with pytest.raises(ValueError, match="2012-10-17"):
        statements({"Version": "2012-10-17", "Statement": [], "Id": "x"})
