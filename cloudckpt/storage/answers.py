"""What engines tell themselves of a store's answers, and what they say alike."""

from __future__ import annotations

import re
from typing import TypeAlias

from cloudckpt.errors import AmbiguousError, CloudckptError, PermissionDeniedError, StorageError

Answer: TypeAlias = tuple[type[CloudckptError], str | None, str]
"""The error to raise, its kind, and its message."""

INTACT = "what was saved is intact"
UNSENT = "credentials-unavailable"
"""The kind of a failure that passes, and before which nothing was sent: any request may follow it."""

EXPIRED: Answer = (
    PermissionDeniedError,
    "credentials-expired",
    f"the credentials have expired; renew them, open the store again and load: {INTACT}",
)
NOT_RENEWED: Answer = (
    PermissionDeniedError,
    "credentials",
    f"the credentials could not be renewed; log in again or replace them, and open the store again: {INTACT}",
)
NOT_RENEWED_NOW: Answer = (
    PermissionDeniedError,
    UNSENT,
    f"the credentials could not be fetched now, so nothing was sent; check where they come from: {INTACT}",
)
UNANSWERED: Answer = (
    AmbiguousError,
    "timeout",
    "the store did not answer in time; a big state on a slow line needs a longer timeout",
)
UNREACHABLE: Answer = (
    AmbiguousError,
    "unreachable",
    "the store can't be reached; check the endpoint and the network",
)

STRANGE: Answer = (
    AmbiguousError,
    "not-the-store",
    "not the store answered but what is on the way to it, such as a proxy; check the endpoint, or try again",
)
"""A 404 that lacks what the store says with it: nothing is known to be missing."""

ELSEWHERE: Answer = (
    StorageError,
    "redirected",
    "the endpoint sends requests elsewhere, as from http to https; name as endpoint_url where it sends them",
)
REDIRECTS = (301, 302, 303, 307, 308)
"""Status codes of that. It is never followed: who is there is not the store, and would be given states."""

UNSENDABLE: Answer = (
    PermissionDeniedError,
    "credentials",
    "a credential has a line break, or what else no request can carry; correct it where it comes from",
)

_SECRET = re.compile(
    r"(?<=//)[^/@\s'\"]+(?=@)"
    r"|(?<=[?&;\s])((sig|\w*token|accountkey|x-amz-signature|x-amz-credential)=)[^&;\s'\")]+",
    re.IGNORECASE,
)


def shown(text: str) -> str:
    """Return a library's words without the secrets that URLs and connection strings have in them."""
    return _SECRET.sub(lambda found: f"{found[1] or ''}***", text)


def cause_of(error: BaseException) -> BaseException | None:
    """Return what to name as the cause: None when it, or a cause of its own, shows a secret."""
    one: BaseException | None = error
    while one is not None:
        if _SECRET.search(str(one)):
            return None
        one = one.__cause__ or one.__context__
    return error


# As Azure words it of a signature and of a token, and Google of a token.
_SAYS_EXPIRED = re.compile(
    r"not valid in the specified time frame|signed expiry time|(token|credentials?) (is|has|have) expired",
    re.IGNORECASE,
)


def or_expired(answer: Answer, text: str) -> Answer:
    """Return `EXPIRED` for credentials that are refused because they have expired, as `text` says."""
    return EXPIRED if answer[1] == "credentials" and _SAYS_EXPIRED.search(text) else answer


RANGE_TRIES = 5


def no_range(key: str) -> AmbiguousError:
    """Return the error for a range that is refused as lying behind the end, again and again, and does not."""
    return AmbiguousError(
        "the store refuses a part of the value, and says that the value has it; try again", key=key
    )


def part_of(data: bytes, offset: int, length: int | None) -> bytes:
    """Return the part that was asked for, from who did not look at the range and gave the whole."""
    return data[offset : None if length is None else offset + length]


class AbsentError(StorageError):
    """The key does not exist."""


class OutOfRangeError(StorageError):
    """The range begins behind the value's end, or the value is empty."""


class UnchangedError(StorageError):
    """The value is still the version that the request named."""
