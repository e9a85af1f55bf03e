"""What requests of S3 ask for: each one's actions, resources and condition keys, from a client at work.

Owns: `Watch`, a session of boto3 whose clients are held to a role's policy and a bucket's, as
AWS would: what is denied is answered with 403 and not sent; a missing key is answered as missing
only to one who may list. So a test runs the product under a role on a server that knows no
policies. Invariant: an operation that is not known here raises, so nothing is left unjudged.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import boto3

from tests.servers.base import Server
from tests.terraform.evaluator import Call, is_allowed
from tests.terraform.policies import BUCKET_POLICY, Setting, role_arn

ARN = "arn:aws:s3:::"

_OF_BUCKET = {
    "GetBucketVersioning": "s3:GetBucketVersioning",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "GetObjectLockConfiguration": "s3:GetBucketObjectLockConfiguration",
    "GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "GetBucketPolicy": "s3:GetBucketPolicy",
    "GetBucketPolicyStatus": "s3:GetBucketPolicyStatus",
    "GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "GetBucketOwnershipControls": "s3:GetBucketOwnershipControls",
    "GetBucketLogging": "s3:GetBucketLogging",
}
"""Operations that ask for a bucket's settings, which look the same but for their names."""

_LISTS = {"ListObjectsV2": "s3:ListBucket", "ListObjectVersions": "s3:ListBucketVersions"}
_READS = ("GetObject", "HeadObject")
_HIDDEN = {
    "ObjectLockMode": "s3:GetObjectRetention",
    "ObjectLockRetainUntilDate": "s3:GetObjectRetention",
    "ObjectLockLegalHoldStatus": "s3:GetObjectLegalHold",
}
"""Fields of an answer that are shown only to one who has a right of its own."""


def calls_of(
    operation: str, parameters: Mapping[str, Any], headers: Mapping[str, str], *, kms: str = ""
) -> list[Call]:
    """Return what a request needs, all of it.

    Args:
        operation: S3's name of it.
        parameters: What the client was called with.
        headers: What it sends.
        kms: ARN of the key that the bucket encrypts with, or "".

    Raises:
        KeyError: The operation is not known here: say what it needs.
    """
    bucket = ARN + parameters["Bucket"]
    if operation in _OF_BUCKET:
        return [Call(_OF_BUCKET[operation], bucket)]
    if operation in _LISTS:
        return [Call(_LISTS[operation], bucket, {"s3:prefix": parameters["Prefix"]})]
    if operation == "DeleteObjects":
        return [_delete(bucket, row) for row in parameters["Delete"]["Objects"]]
    if operation == "DeleteObject":
        return [_delete(bucket, parameters)]
    resource = f"{bucket}/{parameters['Key']}"
    if operation in _READS:
        read = Call("s3:GetObjectVersion" if "VersionId" in parameters else "s3:GetObject", resource)
        return [read, Call("kms:Decrypt", kms)] if kms and operation == "GetObject" else [read]
    if operation == "PutObject":
        return _put(resource, {name.lower(): value for name, value in headers.items()}, kms)
    return [Call({"RestoreObject": "s3:RestoreObject"}[operation], resource)]


def _delete(bucket: str, row: Mapping[str, Any]) -> Call:
    return Call(
        "s3:DeleteObjectVersion" if "VersionId" in row else "s3:DeleteObject", f"{bucket}/{row['Key']}"
    )


def conditions_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the condition keys of a write; the headers' names are in lower case."""
    return {f"s3:{name}": headers[name] for name in ("if-match", "if-none-match") if name in headers}


def _put(resource: str, headers: Mapping[str, str], kms: str) -> list[Call]:
    conditions = conditions_of(headers)
    found = [Call("s3:PutObject", resource, {"s3:ObjectCreationOperation": "true", **conditions})]
    if "if-match" in headers:
        found.append(Call("s3:GetObject", resource))  # S3 wants it, since the answer tells of the object
    if "x-amz-object-lock-mode" in headers:
        found.append(Call("s3:PutObjectRetention", resource))
    if kms:
        found.append(Call("kms:GenerateDataKey", kms))
    return found


class Watch:
    """Somebody who has a role, at work on a bucket.

    Args:
        server: Which holds the bucket.
        setting: What the policies are rendered with.
        role: The name of one of the three.

    Attributes:
        made: Every call that was allowed, once each.
        denied: Every call that was not.
    """

    def __init__(self, server: Server, setting: Setting, role: str) -> None:
        self.made: list[Call] = []
        self.denied: list[Call] = []
        self._kms = setting.kms
        self._who = role_arn(role)
        self._policies = setting.statements(role), setting.statements(BUCKET_POLICY)
        session = boto3.Session(
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            region_name=server.region,
        )
        session.events.register("before-parameter-build.s3", self._called)
        session.events.register("before-call.s3", self._sent)
        session.events.register("after-call.s3", self._answered)
        self.options = {"session": session, "endpoint_url": server.endpoint}

    def may(self, call: Call) -> bool:
        """Whether a call is allowed; it is noted either way."""
        call = call.by(self._who)
        allowed = is_allowed(call, *self._policies)
        noted = self.made if allowed else self.denied
        if call not in noted:
            noted.append(call)
        return allowed

    def _called(self, params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["called"] = dict(params)

    def _sent(self, model: Any, params: Mapping[str, Any], context: Mapping[str, Any], **_: Any) -> Any:
        called = context["called"]
        calls = calls_of(model.name, called, params["headers"], kms=self._kms)
        refused = [call for call in calls if not self.may(call)]
        if not refused:
            return None
        if model.name == "DeleteObjects":  # each key has an answer of its own, and none is in the head
            assert len(refused) == len(calls), "keys that may be deleted are sent beside some that may not"
            rows = [{**row, "Code": "AccessDenied"} for row in called["Delete"]["Objects"]]
            return SimpleNamespace(status_code=200, headers={}), {"Errors": rows, **_meta(200)}
        return SimpleNamespace(status_code=403, headers={}), {**_error(model.name), **_meta(403)}

    def _answered(
        self, http_response: Any, parsed: dict[str, Any], model: Any, context: Mapping[str, Any], **_: Any
    ) -> None:
        called = context["called"]
        if http_response.status_code == 404 and "Key" in called:
            listing = Call("s3:ListBucket", ARN + called["Bucket"], {"s3:prefix": called["Key"]})
            if not self.may(listing):
                parsed.update(_error(model.name), **_meta(403))
        for field, action in _HIDDEN.items():
            if field in parsed and not self.may(Call(action, f"{ARN}{called['Bucket']}/{called['Key']}")):
                del parsed[field]


def _error(operation: str) -> dict[str, Any]:
    # The answer to a HEAD has no body that could hold a code.
    return {"Error": {"Code": "403" if operation == "HeadObject" else "AccessDenied", "Message": "denied"}}


def _meta(status: int) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}
