"""What a bucket's settings mean for a store, as far as S3's own requests tell.

Owns: which setting is good, which costs, and which loses what is saved. It asks
through the engine's own client, so with its credentials, endpoint and options;
what the store denies or does not know is a finding of level unknown. Invariants:
Amazon is never asked when the endpoint is not Amazon's; no secret leaves this
module but in a signature.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from cloudckpt import keys
from cloudckpt.doctor.s3_lifecycle import ARCHIVES, ends_old_pointers, lifecycle_finding
from cloudckpt.doctor.s3_policy import policy_finding, public_access_finding
from cloudckpt.errors import CloudckptError, PermissionDeniedError, UnsupportedStoreError
from cloudckpt.storage.answers import AbsentError
from cloudckpt.storage.findings import Finding, Samples, fault, not_looked_at, ok, unknown, warning
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.s3_boto3 import INSTALL, Boto3Storage
from cloudckpt.storage.s3_requests import S3Requests, is_amazons

STS_SECONDS = 5
BILLED_FOR_LONG = frozenset({"STANDARD_IA", "ONEZONE_IA", "GLACIER_IR"})
"""Storage classes that bill each object for 30 days or more, however soon it is overwritten."""


@dataclass(frozen=True, slots=True)
class _Untold:
    """A setting that the store does not tell."""

    why: str
    do: str

    def finding(self, check: str) -> Finding:
        return unknown(check, self.why, self.do)


_Answer: TypeAlias = Mapping[str, Any] | _Untold
"""What the store says; empty where nothing is set."""


async def inspect_bucket(engine: S3Requests, samples: Samples) -> list[Finding]:
    """Return what there is to say about the bucket of an engine.

    Args:
        engine: By s3fs or by boto3.
        samples: What the doctor has just written.
    """
    client = await engine.client()
    bucket, _, root = engine.url.removeprefix("s3://").partition("/")
    root = f"{root}/" if root else ""
    versioning = await _ask(engine, "get_bucket_versioning", "s3:GetBucketVersioning")
    rules = await _ask(engine, "get_bucket_lifecycle_configuration", "s3:GetLifecycleConfiguration")
    locked = await _ask(engine, "get_object_lock_configuration", "s3:GetBucketObjectLockConfiguration")
    encryption = await _ask(engine, "get_bucket_encryption", "s3:GetEncryptionConfiguration")
    block = await _ask(engine, "get_public_access_block", "s3:GetBucketPublicAccessBlock")
    policy = await _ask(engine, "get_bucket_policy", "s3:GetBucketPolicy")
    pointer = await _ask(engine, "head_object", "s3:GetObject", samples.pointer)
    payload = await _ask(engine, "head_object", "s3:GetObject", samples.payload)
    return [
        _endpoint(client),
        await _identity(engine, client),
        _versioning(versioning, rules, root),
        _lifecycle(rules, root, engine.options),
        _object_lock(locked),
        _encryption(encryption, pointer),
        _public_access(block),
        _policy(policy, bucket, root, amazon=is_amazons(client.meta.endpoint_url)),
        _storage_class(pointer, payload),
        _checksums(client, written=samples.pointer is not None),
    ]


async def inspect_bucket_of_obstore(engine: ObstoreStorage, samples: Samples) -> list[Finding]:
    """Return the same for obstore, which knows no request for settings: boto3 asks, by the same options.

    Args:
        engine: Of a URL of S3.
        samples: What the doctor has just written by it.
    """
    bucket, _, prefix = engine.url.removeprefix("s3://").partition("/")
    try:
        asking = Boto3Storage(bucket, prefix, storage_options=engine.options)
    except UnsupportedStoreError:
        why = "obstore can't ask for a bucket's settings, and boto3, which can, is not installed"
        return [not_looked_at(why, INSTALL)]
    try:
        findings = await inspect_bucket(asking, samples)
    finally:
        await asking.close()
    checksums = _checksums_of_obstore(engine.checksum, written=samples.pointer is not None)
    own = [checksums if finding.check == "checksums" else finding for finding in findings]
    return [ok("settings", "asked for by boto3, with the same options: obstore can't ask"), *own]


async def _ask(engine: S3Requests, method: str, right: str, *key: str | None) -> _Answer:
    if key == (None,):
        return _Untold("not tried, since nothing could be written", "")
    try:
        answer = await engine.ask(method, *key)
    except AbsentError:
        return {}
    except PermissionDeniedError:
        return _Untold("the store denies the question", f"grant {right} to have it checked")
    except CloudckptError as error:
        code = error.facts.get("code") or error.facts.get("status") or error.message
        return _Untold(f"the store does not answer the question ({code})", "ask who runs the store")
    return answer


# ---- the client


def _endpoint(client: Any) -> Finding:
    url, region = client.meta.endpoint_url, client.meta.region_name
    facts = {"endpoint": url, "region": region, "amazon": is_amazons(url)}
    parts = urlsplit(url)
    if parts.scheme == "http" and not (parts.hostname or "").startswith(("127.", "localhost", "::1")):
        found = f"{url}: states travel unencrypted"
        return warning("endpoint", found, "use https, or a network that nobody else listens on", **facts)
    return ok("endpoint", url, **facts)


async def _identity(engine: S3Requests, client: Any) -> Finding:
    from botocore.exceptions import BotoCoreError, ClientError

    # botocore has no other way to the credentials that a client really uses.
    credentials = client._get_credentials()
    if credentials is None:
        return warning("identity", "nobody: requests are not signed", "give it credentials", anonymous=True)
    try:
        frozen = credentials.get_frozen_credentials()
        frozen = await frozen if inspect.isawaitable(frozen) else frozen
    except (BotoCoreError, ClientError) as error:
        return unknown("identity", f"the credentials can't be had now ({type(error).__name__})")
    shown = frozen.access_key[: min(8, len(frozen.access_key) // 2)]
    if not is_amazons(client.meta.endpoint_url):
        why = f"access key {shown}...; whose it is, this store has no request to tell"
        return unknown("identity", why, access_key_begins=shown)
    who = (frozen, client.meta.region_name)
    found = whoami(*who) if engine.blocking else await asyncio.to_thread(whoami, *who)
    if isinstance(found, str):
        return unknown("identity", f"access key {shown}...; STS does not tell whose it is ({found})")
    return ok(
        "identity", f"{found['Arn']}, access key {shown}...", arn=found["Arn"], account=found["Account"]
    )


def whoami(credentials: Any, region: str | None) -> Mapping[str, str] | str:
    """Ask Amazon's STS who these credentials are; return its answer, or the name of what went wrong."""
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    hasty = Config(connect_timeout=STS_SECONDS, read_timeout=STS_SECONDS, retries={"total_max_attempts": 1})
    try:
        sts = botocore.session.Session().create_client(
            "sts",
            region_name=region,
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            aws_session_token=credentials.token,
            config=hasty,
        )
        answer: Mapping[str, str] = sts.get_caller_identity()
    except (BotoCoreError, ClientError) as error:
        return type(error).__name__
    sts.close()
    return answer


def _checksums(client: Any, *, written: bool) -> Finding:
    sends = getattr(client.meta.config, "request_checksum_calculation", None) or "when_required"
    found = f"each write carries its MD5, and a checksum of S3's own {sends.replace('_', ' ')}"
    return _taken(found, written=written, request_checksum_calculation=sends)


def _checksums_of_obstore(algorithm: str | None, *, written: bool) -> Finding:
    found = f"each write carries its {algorithm}" if algorithm else "no write carries a checksum"
    return _taken(found, written=written, algorithm=algorithm)


def _taken(found: str, *, written: bool, **facts: Any) -> Finding:
    if written:
        return ok("checksums", found, **facts)
    return unknown("checksums", f"{found}; whether the store takes it, a failed write does not tell")


# ---- the bucket


def _versioning(versioning: _Answer, rules: _Answer, root: str) -> Finding:
    if isinstance(versioning, _Untold):
        return versioning.finding("versioning")
    status = versioning.get("Status", "never enabled")
    if status != "Enabled":
        return ok("versioning", f"{status.lower()}: what is overwritten or deleted is gone", status=status)
    if isinstance(rules, Mapping) and ends_old_pointers(rules.get("Rules", ()), root):
        return ok("versioning", "enabled, and a lifecycle rule ends old pointers", status=status)
    unsure = " that could be read" if isinstance(rules, _Untold) else ""
    found = (
        f"enabled, and no lifecycle rule{unsure} ends old pointers: each save leaves one more version "
        "(and so did the keys of this check)"
    )
    do = (
        f"add a rule for {root}{keys.MANIFESTS} with a NoncurrentVersionExpiration, and no Expiration by days"
    )
    return warning("versioning", found, do, status=status)


def _lifecycle(rules: _Answer, root: str, options: Mapping[str, Any]) -> Finding:
    if isinstance(rules, _Untold):
        return rules.finding("lifecycle")
    tagging = (options.get("s3_additional_kwargs") or {}).get("Tagging", "")
    return lifecycle_finding(rules.get("Rules", ()), root, parse_qsl(tagging, keep_blank_values=True))


def _retention(locked: Mapping[str, Any]) -> Mapping[str, Any]:
    rule = locked.get("ObjectLockConfiguration", {}).get("Rule", {})
    found: Mapping[str, Any] = rule.get("DefaultRetention", {})
    return found


def _object_lock(locked: _Answer) -> Finding:
    if isinstance(locked, _Untold):
        return locked.finding("object-lock")
    if locked.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") != "Enabled":
        return ok("object-lock", "off", enabled=False)
    retention = _retention(locked)
    if not retention:
        return ok("object-lock", "on, without a retention for every new object", enabled=True)
    time = f"{retention['Days']} days" if "Days" in retention else f"{retention.get('Years')} years"
    mode = retention.get("Mode", "")
    return warning(
        "object-lock",
        f"every version of every key is kept for {time} ({mode}): saves go on, since an overwrite adds a "
        "version, but each save's pointer takes space that long, and nothing can be erased before",
        "take the default retention off the bucket, and lock the objects that must be kept one by one",
        enabled=True,
        mode=mode,
        retention=time,
    )


def _encryption(encryption: _Answer, pointer: _Answer) -> Finding:
    if isinstance(pointer, Mapping) and "ServerSideEncryption" in pointer:
        how, key = pointer["ServerSideEncryption"], pointer.get("SSEKMSKeyId")
        found = f"what is written is encrypted: {how}{f', key {key}' if key else ''}"
        return ok("encryption", found, algorithm=how, key=key)
    if isinstance(encryption, _Untold):
        return encryption.finding("encryption")
    for rule in encryption.get("ServerSideEncryptionConfiguration", {}).get("Rules", ()):
        default = rule.get("ApplyServerSideEncryptionByDefault", {})
        if "SSEAlgorithm" in default:
            how, key = default["SSEAlgorithm"], default.get("KMSMasterKeyID")
            return ok("encryption", f"the bucket's default is {how}", algorithm=how, key=key)
    return warning(
        "encryption",
        "the store does not say that it encrypts what is written",
        "set a default encryption for the bucket, or pass s3_additional_kwargs={'ServerSideEncryption': ...}",
    )


def _public_access(block: _Answer) -> Finding:
    if isinstance(block, _Untold):
        return block.finding("public-access")
    return public_access_finding(block.get("PublicAccessBlockConfiguration", {}))


def _policy(policy: _Answer, bucket: str, root: str, *, amazon: bool) -> Finding:
    if isinstance(policy, _Untold):
        return policy.finding("bucket-policy")
    return policy_finding(json.loads(policy.get("Policy", "{}")), bucket, root, amazon=amazon)


def _storage_class(pointer: _Answer, payload: _Answer) -> Finding:
    if isinstance(pointer, _Untold):
        return pointer.finding("storage-class")
    if isinstance(payload, _Untold):
        return payload.finding("storage-class")
    of_pointer, of_payload = (head.get("StorageClass", "STANDARD") for head in (pointer, payload))
    facts = {"pointer": of_pointer, "payload": of_payload}
    leave_out = "take StorageClass out of s3_additional_kwargs, and move old objects by a lifecycle rule"
    if of_pointer in ARCHIVES or of_payload in ARCHIVES:
        found = (
            f"what is written goes into an archive ({of_payload}) and can't be read back without a restore"
        )
        return fault("storage-class", found, leave_out, **facts)
    if of_pointer in BILLED_FOR_LONG:
        found = f"pointers are written as {of_pointer}: each save is billed for 30 days or more"
        return warning("storage-class", found, leave_out, **facts)
    return ok("storage-class", f"pointers {of_pointer}, objects {of_payload}", **facts)
