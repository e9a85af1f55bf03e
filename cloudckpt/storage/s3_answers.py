"""What an answer of S3 means, for every engine that speaks to it.

Owns: the table from S3's error codes and HTTP status to the contract's failures,
and what botocore raises beside answers. Invariant: an answer means the same by
every library. It imports no library before there is an error to look at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from cloudckpt.errors import (
    AmbiguousError,
    ArchivedError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedStoreError,
)
from cloudckpt.storage.answers import (
    ELSEWHERE,
    EXPIRED,
    INTACT,
    NOT_RENEWED,
    NOT_RENEWED_NOW,
    REDIRECTS,
    STRANGE,
    UNANSWERED,
    UNREACHABLE,
    UNSENDABLE,
    AbsentError,
    Answer,
    OutOfRangeError,
    UnchangedError,
    cause_of,
    shown,
)

FAILED: Answer = (PreconditionFailedError, None, "the condition of the write did not hold")
ABSENT: Answer = (AbsentError, None, "the key does not exist")
UNCHANGED: Answer = (UnchangedError, None, "the value is still this version")
BEHIND: Answer = (OutOfRangeError, None, "the range begins behind the end")
SLOWER: Answer = (ThrottledError, None, "the store asks to slow down")
# 409 ConditionalRequestConflict says "try again"; it is no lost race.
AGAIN: Answer = (AmbiguousError, None, "the store could not answer now")
NO_BUCKET: Answer = (
    StorageError,
    "no-such-bucket",
    "the bucket does not exist; create it or correct the URL",
)
REGION: Answer = (
    StorageError,
    "wrong-region",
    "the bucket is in another region; set AWS_DEFAULT_REGION or client_kwargs={'region_name': ...}",
)
_BAD_TOKEN: Answer = (
    PermissionDeniedError,
    "credentials",
    f"the session token is not valid, or no more; renew it and open the store again: {INTACT}",
)
_COLD: Answer = (ArchivedError, None, "the object is in a cold tier; restore it first")
_NO_CONDITIONS: Answer = (
    UnsupportedStoreError,
    "not-implemented",
    "the store does not implement what conditional writes need",
)

BROKEN_OFF = ("RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch")
"""Codes of a body that stopped on its way or was damaged there; their status is 400."""

_DENIED: Answer = (
    PermissionDeniedError,
    "denied",
    (
        "the store denies the request; grant the right, and s3:ListBucket too, "
        "since without it a missing key is answered as denied"
    ),
)

_ANSWERS: dict[str, Answer] = {
    # by S3's error code (its API reference, "Error responses"), then by HTTP status
    "PreconditionFailed": FAILED,
    "412": FAILED,
    "NoSuchBucket": NO_BUCKET,
    "NoSuchKey": ABSENT,
    "NotFound": ABSENT,
    "404": ABSENT,
    "304": UNCHANGED,
    "InvalidRange": BEHIND,
    "416": BEHIND,
    "SlowDown": SLOWER,
    "Throttling": SLOWER,
    "ThrottlingException": SLOWER,
    "RequestLimitExceeded": SLOWER,
    "TooManyRequests": SLOWER,
    "429": SLOWER,
    "408": AGAIN,
    "409": AGAIN,
    "499": AGAIN,
    **dict.fromkeys(BROKEN_OFF, AGAIN),
    "PermanentRedirect": REGION,
    "AuthorizationHeaderMalformed": REGION,
    "IllegalLocationConstraintException": REGION,
    **dict.fromkeys(map(str, REDIRECTS), ELSEWHERE),
    "301": REGION,
    "ExpiredToken": EXPIRED,
    "ExpiredTokenException": EXPIRED,
    "TokenRefreshRequired": EXPIRED,
    "InvalidToken": _BAD_TOKEN,
    "InvalidTokenId": _BAD_TOKEN,
    "InvalidAccessKeyId": (
        PermissionDeniedError,
        "credentials",
        (
            "the store does not know this access key; check the credentials: temporary ones may have "
            f"expired, then renew them and open the store again; {INTACT}"
        ),
    ),
    "SignatureDoesNotMatch": (
        PermissionDeniedError,
        "credentials",
        "the store refuses the signature; check the secret key and the endpoint",
    ),
    "RequestTimeTooSkewed": (
        PermissionDeniedError,
        "clock",
        "this machine's clock differs too much from the store's; set the clock",
    ),
    "AccessDenied": _DENIED,  # of one key among several that are deleted: there it has no status
    "403": _DENIED,
    "InvalidObjectState": _COLD,
    "NotImplemented": _NO_CONDITIONS,
    "501": _NO_CONDITIONS,
}

_NO_HEADER = re.compile(r"invalid header value|detected in headers", re.IGNORECASE)
"""How urllib3's and aiohttp's libraries word it of a header that can't be sent."""

_LOGINS = {
    "AssumeRole",
    "AssumeRoleWithSAML",
    "AssumeRoleWithWebIdentity",
    "CreateToken",
    "GetRoleCredentials",
}
"""Requests by which credentials are got, and not S3's: what is refused there is the login."""

NO_CREDENTIALS = (
    "no usable credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, "
    "or pass storage_options"
)


def raise_answer(
    code: str,
    status: int,
    key: str,
    cause: BaseException | None,
    *,
    bare: bool = False,
    storage_class: str | None = None,
) -> NoReturn:
    """Raise the contract's exception for an answer.

    Args:
        code: S3's error code, or "" where the answer has none.
        status: The HTTP status, or 0 where it is not known.
        key: What it was about, or "".
        cause: The library's exception.
        bare: Whether an answer like this has no body, and so no code, as one to a HEAD.
        storage_class: What the answer says of it, as it does of an object in an archive.
    """
    known = _ANSWERS.get(code) or _ANSWERS.get(str(status))
    if status == 404 and code in ("", "404") and not bare:
        known = STRANGE
    if known is None and (status >= 500 or status == 0):
        known = AGAIN
    error, kind, message = known or (StorageError, "refused", "the store refused the request")
    raise error(
        message,
        kind=kind,
        key=key or None,
        code=code or None,
        status=status or None,
        storage_class=storage_class,
    ) from cause


def raise_told(error: Exception, key: str, *, logged_in: bool = False) -> NoReturn:
    """Raise the contract's exception for what botocore, s3fs or aiohttp raised.

    Args:
        error: What was raised.
        key: What it was about, or "".
        logged_in: Whether the credentials have worked before. If so, not getting
            them is a passing fault.
    """
    from botocore import exceptions as aws

    cause: BaseException = error
    while cause.__cause__ is not None and not hasattr(cause, "response"):
        cause = cause.__cause__  # s3fs translates to OSError; the truth is its cause
    response = getattr(cause, "response", None)
    if isinstance(response, Mapping):
        code = str(response.get("Error", {}).get("Code", ""))
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        operation = str(getattr(cause, "operation_name", ""))
        if operation in _LOGINS and 400 <= status < 500 and status != 429:
            _raise(NOT_RENEWED, "", cause)
        raise_answer(
            code,
            status,
            key,
            cause,
            bare=operation.startswith("Head"),
            storage_class=response.get("Error", {}).get("StorageClass") or None,
        )
    if logged_in and isinstance(cause, aws.CredentialRetrievalError | aws.MetadataRetrievalError):
        _raise(NOT_RENEWED_NOW, key, cause)
    if isinstance(cause, aws.NoCredentialsError | aws.PartialCredentialsError | aws.CredentialRetrievalError):
        raise PermissionDeniedError(NO_CREDENTIALS, kind="no-credentials") from cause
    if isinstance(cause, aws.SSOError | aws.TokenRetrievalError):
        raise PermissionDeniedError(
            "the login of this profile has ended; log in again, as with `aws sso login`, and open the store "
            f"again: {INTACT}",
            kind="credentials",
        ) from cause
    if isinstance(cause, aws.HTTPClientError) and _NO_HEADER.search(str(cause)):
        told, kind, message = UNSENDABLE
        raise told(message, kind=kind) from None  # it shows the credential
    if isinstance(cause, RecursionError):  # botocore asks where the bucket is, and is sent on again
        _raise(ELSEWHERE, key, cause)
    bad = (
        aws.ProfileNotFound,
        aws.EndpointProviderError,
        aws.ConfigParseError,
        aws.NoRegionError,
        aws.InvalidRegionError,
        aws.ParamValidationError,
        ValueError,
        TypeError,
    )
    if isinstance(cause, bad):
        raise StorageError(
            "the store's options are not usable", kind="bad-options", why=shown(str(cause))
        ) from cause_of(cause)
    if isinstance(cause, aws.EndpointConnectionError | aws.ConnectTimeoutError):
        _raise(UNREACHABLE, key, cause)
    if isinstance(cause, aws.ReadTimeoutError):
        _raise(UNANSWERED, key, cause)
    raise AmbiguousError(
        "the request got no usable answer", key=key or None, why=type(cause).__name__
    ) from cause


def _raise(answer: Answer, key: str, cause: BaseException) -> NoReturn:
    error, kind, message = answer
    raise error(message, kind=kind, key=key or None) from cause
