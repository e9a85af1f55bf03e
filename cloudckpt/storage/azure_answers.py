"""What an answer of Azure's Blob service means, and what Azure's library and aiohttp raise beside answers.

Owns: the table from Azure's error codes and HTTP status to the contract's failures.
It imports no library before there is an error to look at.
"""

from __future__ import annotations

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
    INTACT,
    REDIRECTS,
    STRANGE,
    UNANSWERED,
    UNREACHABLE,
    AbsentError,
    Answer,
    OutOfRangeError,
    UnchangedError,
    or_expired,
)

_FAILED: Answer = (PreconditionFailedError, None, "the condition of the write did not hold")
_ABSENT: Answer = (AbsentError, None, "the blob does not exist")
_UNCHANGED: Answer = (UnchangedError, None, "the blob is still this version")
_BEHIND: Answer = (OutOfRangeError, None, "the range begins behind the end")
_SLOWER: Answer = (ThrottledError, None, "the store asks to slow down")
_AGAIN: Answer = (AmbiguousError, None, "the store could not answer now")
_COLD: Answer = (ArchivedError, None, "the blob is in the archive tier; rehydrate it first")
_NO_CONTAINER: Answer = (
    StorageError,
    "no-such-bucket",
    "the container does not exist; create it or correct the URL",
)
_UNKNOWN: Answer = (
    PermissionDeniedError,
    "credentials",
    f"the store does not accept the credentials; check the key or SAS token, its expiry, the clock: {INTACT}",
)
_DENIED: Answer = (
    PermissionDeniedError,
    "denied",
    "the store denies the request; grant the role Storage Blob Data Contributor, or allow this network",
)
_KEPT: Answer = (
    PermissionDeniedError,
    "retained",
    "an immutability policy or a legal hold forbids it; keep pointers out of it, or wait",
)
_ANONYMOUS = "the store takes no anonymous requests"

ANSWERS: dict[str, Answer] = {
    # by Azure's error code ("Blob Service error codes" in its REST reference), then by HTTP status
    "BlobAlreadyExists": _FAILED,
    "ConditionNotMet": _FAILED,
    "412": _FAILED,
    "LeaseIdMissing": (
        StorageError,
        "leased",
        "somebody holds an Azure lease on the blob; break it, cloudckpt needs none",
    ),
    "ContainerNotFound": _NO_CONTAINER,
    "ContainerBeingDeleted": _NO_CONTAINER,
    "ResourceNotFound": (  # a blob that is missing has another code
        PermissionDeniedError,
        "no-credentials",
        "the container takes no anonymous requests, or does not exist; pass credentials, or correct the URL",
    ),
    "SnapshotsPresent": (
        StorageError,
        "snapshots",
        "the blob has snapshots, and can't be deleted without them; somebody made them, and may delete them",
    ),
    "304": _UNCHANGED,
    "404": _ABSENT,
    "InvalidRange": _BEHIND,
    "416": _BEHIND,
    "BlobArchived": _COLD,
    "BlobBeingRehydrated": _COLD,
    "BlobImmutableDueToPolicy": _KEPT,
    "ServerBusy": _SLOWER,
    "429": _SLOWER,
    **dict.fromkeys(map(str, REDIRECTS), ELSEWHERE),
    "408": _AGAIN,
    "499": _AGAIN,
    "NoAuthenticationInformation": (PermissionDeniedError, "no-credentials", _ANONYMOUS),
    "PublicAccessNotPermitted": (PermissionDeniedError, "no-credentials", _ANONYMOUS),
    "AuthenticationFailed": _UNKNOWN,
    "401": _UNKNOWN,
    "403": _DENIED,
    "501": (UnsupportedStoreError, "not-implemented", "the store does not implement the request"),
}


def no_credentials(why: str) -> PermissionDeniedError:
    """Return the error for a login that there isn't."""
    return PermissionDeniedError(
        "no usable credentials; pass account_name and account_key, sas_token or connection_string in "
        "storage_options, set AZURE_STORAGE_CONNECTION_STRING, or log in with `az login`",
        kind="no-credentials",
        why=why,
    )


def raise_told(error: Exception, key: str) -> NoReturn:
    """Raise the contract's exception for what Azure's library or aiohttp raised."""
    from aiohttp import ClientConnectorError, ConnectionTimeoutError, ServerTimeoutError
    from azure.core import exceptions as azure

    status = getattr(error, "status_code", None)
    if isinstance(error, azure.HttpResponseError) and status is not None:
        code = getattr(error, "error_code", None) or ""
        code = "" if status == 304 else str(getattr(code, "value", code))  # its code is that of a lost race
        known = ANSWERS.get(code) or ANSWERS.get(str(status))
        if status == 404 and not code:  # Azure names its code in a header too, to a HEAD as well
            known = STRANGE
        if known is None and not 400 <= status < 500:
            known = _AGAIN
        known = known or (StorageError, "refused", "the store refused the request")
        kind, word, message = or_expired(known, str(error))
        raise kind(message, kind=word, key=key or None, code=code or None, status=status) from error
    if isinstance(error, azure.ClientAuthenticationError):  # before anything was sent
        raise no_credentials(type(error).__name__) from error
    if isinstance(error.__cause__, ClientConnectorError | ConnectionTimeoutError):
        kind, word, message = UNREACHABLE
        raise kind(message, kind=word, key=key or None) from error
    if isinstance(error.__cause__, ServerTimeoutError):
        kind, word, message = UNANSWERED
        raise kind(message, kind=word, key=key or None) from error
    # Also what Azure's library calls a failed request: it may have been sent, and be done.
    raise AmbiguousError("the request got no usable answer", key=key, why=type(error).__name__) from error
