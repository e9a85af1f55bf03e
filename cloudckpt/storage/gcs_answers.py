"""What an answer of Google's JSON API means, and what gcsfs, google.auth and aiohttp raise beside answers.

Owns: the table from Google's reasons and HTTP status to the contract's failures.
It imports no library before there is an error to look at.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from cloudckpt.errors import (
    AmbiguousError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedStoreError,
)
from cloudckpt.storage.answers import (
    ELSEWHERE,
    INTACT,
    NOT_RENEWED,
    NOT_RENEWED_NOW,
    REDIRECTS,
    STRANGE,
    UNANSWERED,
    UNREACHABLE,
    Answer,
    cause_of,
    or_expired,
    shown,
)


class UnusableError(Exception):
    """gcsfs can't make anything of the options."""


def no_bucket() -> StorageError:
    """Return the error for a bucket that does not exist."""
    return StorageError("the bucket does not exist; create it or correct the URL", kind="no-such-bucket")


def no_credentials() -> PermissionDeniedError:
    """Return the error for a login that there isn't."""
    return PermissionDeniedError(
        "no usable credentials; run `gcloud auth application-default login`, set "
        "GOOGLE_APPLICATION_CREDENTIALS, or pass storage_options={'token': ...}",
        kind="no-credentials",
    )


_SLOWER = (ThrottledError, None, "the store asks to slow down")
_AGAIN = (AmbiguousError, None, "the store could not answer now")

ANSWERS: dict[int | str, Answer] = {
    # by the reason that the JSON API names, then by HTTP status
    "rateLimitExceeded": _SLOWER,
    "userRateLimitExceeded": _SLOWER,
    "retentionPolicyNotMet": (
        PermissionDeniedError,
        "retained",
        "a retention policy of the bucket forbids it; keep pointers out of it, or wait",
    ),
    "objectUnderActiveHold": (
        PermissionDeniedError,
        "retained",
        "a hold on the object forbids it; release it first",
    ),
    401: (
        PermissionDeniedError,
        "credentials",
        (
            "the store does not accept the credentials; they may have expired, then renew them and open the "
            f"store again: {INTACT}"
        ),
    ),
    403: (
        PermissionDeniedError,
        "denied",
        "the store denies the request; grant the role Storage Object User on the bucket",
    ),
    412: (PreconditionFailedError, None, "the condition of the write did not hold"),
    429: _SLOWER,
    **dict.fromkeys(REDIRECTS, ELSEWHERE),
    408: _AGAIN,
    409: _AGAIN,
    499: _AGAIN,
    501: (UnsupportedStoreError, "not-implemented", "the store does not implement the request"),
}


_ABSENT = re.compile(rb"No such object|\s*(Not Found)?\s*$|.*<Code>NoSuchKey<", re.DOTALL)
"""What is answered to a request for the value of an object that does not exist; others get a document.

Google says the first; the others are emulators', and no proxy is between Google and its clients that
could say nothing, since all it sees is TLS.
"""


def is_absent(status: int, body: bytes, key: str) -> bool:
    """Whether an answer says that what was asked for does not exist.

    Raises:
        StorageError: The bucket does not exist either.
        AmbiguousError: It is not the store that says so.
    """
    if status != 404:
        return False
    if b"bucket does not exist" in body:
        raise no_bucket()
    if not _reason(body)[0] and not _ABSENT.match(body):
        error, kind, message = STRANGE
        raise error(message, kind=kind, key=key or None, status=status)
    return True


def check(status: int, body: bytes, key: str) -> None:
    """Raise the contract's exception unless the answer is a success."""
    if 200 <= status < 300:
        return
    reason, why = _reason(body)
    known = ANSWERS.get(reason) or ANSWERS.get(status)
    if known is None and not 400 <= status < 500:
        known = _AGAIN
    known = known or (StorageError, "refused", "the store refused the request")
    error, kind, message = or_expired(known, why)
    raise error(message, kind=kind, key=key or None, status=status, reason=reason or None, why=why or None)


def document(status: int, body: bytes, key: str) -> dict[str, Any]:
    """Return the document of an answer that is a success."""
    check(status, body, key)
    try:
        found = json.loads(body)
    except ValueError as error:
        raise AmbiguousError("the store's answer is damaged", key=key) from error
    if not isinstance(found, dict):
        raise AmbiguousError("the store's answer is damaged", key=key)
    return found


def _reason(body: bytes) -> tuple[str, str]:
    """Return Google's word for an error, and its sentence."""
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        return str(error["errors"][0]["reason"]), str(error.get("message", ""))[:200]
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", text.strip()[:200]


def raise_told(error: Exception, key: str) -> NoReturn:
    """Raise the contract's exception for a request that got no answer."""
    import aiohttp
    from google.auth import exceptions as auth
    from requests import RequestException

    def is_one(*kinds: type[BaseException]) -> bool:
        return any(isinstance(one, kinds) for one in chain)

    chain = [error]
    while isinstance(chain[-1].__cause__, Exception):
        chain.append(chain[-1].__cause__)  # gcsfs wraps a failed renewal into errors of its own
    passing = any(getattr(one, "retryable", False) for one in chain)

    def say(answer: Answer) -> NoReturn:
        kind, word, message = answer
        raise kind(message, kind=word, key=key or None) from cause_of(error)

    if passing or is_one(auth.TransportError, RequestException):  # only logins go by these
        say(NOT_RENEWED_NOW)
    if is_one(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        say(UNREACHABLE)
    if is_one(aiohttp.ServerTimeoutError):
        say(UNANSWERED)
    if is_one(auth.DefaultCredentialsError):
        raise no_credentials() from error
    if is_one(auth.GoogleAuthError):
        say(NOT_RENEWED)
    if is_one(aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnusableError):
        raise StorageError(
            "the store's options are not usable", kind="bad-options", why=shown(str(chain[-1]))
        ) from error
    raise AmbiguousError("the request got no usable answer", key=key, why=type(error).__name__) from error
