"""What obstore raises, and what it means.

Owns: how an error's text becomes an answer that can be looked up. obstore's
classes alone don't tell: `AlreadyExistsError` is a 409 as well as a refused
condition, and a bucket that does not exist refuses a condition too. The status
and the store's own code are in the text alone, so that is what is read.
Invariant: what the text does not tell is doubtful, never a lost race.
"""

from __future__ import annotations

import re
from typing import NoReturn

from cloudckpt.errors import (
    AmbiguousError,
    PermissionDeniedError,
    StorageError,
    UnsupportedStoreError,
)
from cloudckpt.storage.answers import (
    NOT_RENEWED_NOW,
    STRANGE,
    UNANSWERED,
    UNREACHABLE,
    UNSENDABLE,
    AbsentError,
    Answer,
    OutOfRangeError,
    UnchangedError,
    or_expired,
    shown,
)
from cloudckpt.storage.s3_answers import (
    AGAIN,
    BEHIND,
    BROKEN_OFF,
    NO_CREDENTIALS,
    REGION,
    raise_answer,
)

INSTALL = 'pip install "cloudckpt[obstore]"'

_DEBUG = "\n\nDebug source:\n"
_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.]+)</Code>|\(code: ([\w.]+)\)")  # the second, of one among several
_HEAD = "Error performing HEAD "
_BARE_REDIRECT = "Received redirect without LOCATION"
_BEHIND = "Wanted range starting at"  # found out by obstore, from the whole that it was given instead
# Where obstore asks for credentials: the instance's and the task's metadata, STS, a token's issuer.
_LOGIN = re.compile(
    r"Error performing \w+ https?://(?:169\.254\.|metadata\.|sts\.)|token request|credential provider",
    re.IGNORECASE,
)

_NO_LOGIN = {
    "s3": NO_CREDENTIALS,
    "gs": "no usable credentials; run `gcloud auth application-default login`, set "
    "GOOGLE_APPLICATION_CREDENTIALS, or pass storage_options={'token': ...}",
    "az": "no usable credentials; pass account_name with account_key or sas_token, or a connection_string, "
    "in storage_options, or set AZURE_STORAGE_ACCOUNT_KEY",
}


def raise_told(error: BaseException, scheme: str, key: str, *, logged_in: bool) -> NoReturn:
    """Raise the contract's exception for what obstore raised.

    Args:
        error: What it raised.
        scheme: ``s3``, ``gs`` or ``az``.
        key: What it was about, or "".
        logged_in: Whether the credentials have worked before. If so, not getting
            them is a passing fault.
    """
    text, _, debug = str(error).partition(_DEBUG)
    if isinstance(error, NotImplementedError) or type(error).__name__ == "NotSupportedError":
        raise UnsupportedStoreError(
            "the store does not implement what conditional writes need", kind="not-implemented"
        ) from error
    if type(error).__name__ == "NotModifiedError":
        raise UnchangedError("the value is still this version", key=key or None) from error
    if isinstance(error, ValueError | TypeError):
        raise StorageError(
            "the store's options are not usable", kind="bad-options", why=shown(text)
        ) from error
    if "InvalidHeaderValue" in text:
        denied, why, message = UNSENDABLE
        raise denied(message, kind=why) from error
    if _LOGIN.search(text):
        _raise_login(error, scheme, key, logged_in=logged_in)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status or code:
        said, number = code[1] or code[2] if code else "", int(status[1]) if status else 0
        if number == 404 and not said and _HEAD not in text:
            kind, word, message = STRANGE
            raise kind(message, kind=word, key=key or None, status=number) from error
        if said.isdigit():  # as Azure answers to several deletions at once
            said, number = ("LeaseIdMissing" if said == "412" else ""), int(said)  # there is no condition
        _raise_answer(scheme, said, number, key, error)
    for words, where, (kind, word, message) in (
        (_BARE_REDIRECT, text, REGION),
        (_BEHIND, text, BEHIND),
        ("kind: Connect,", debug, UNREACHABLE),
        ("ConnectError(", debug, UNREACHABLE),
        ("kind: Timeout,", debug, UNANSWERED),
    ):
        if words in where:
            raise kind(message, kind=word, key=key or None) from error
    raise AmbiguousError(
        "the request got no usable answer", key=key or None, why=type(error).__name__
    ) from error


def raise_made(error: Exception) -> NoReturn:
    """Raise the contract's exception for a store that obstore could not make."""
    why = str(error).partition(_DEBUG)[0]
    if type(error).__name__ == "UnknownConfigurationKeyError" or why.startswith("Invalid key"):
        raise UnsupportedStoreError(
            f"this obstore is older than what is needed here; {INSTALL} -U", why=why
        ) from error
    raise StorageError("the store's options are not usable", kind="bad-options", why=shown(why)) from error


def _raise_login(error: BaseException, scheme: str, key: str, *, logged_in: bool) -> NoReturn:
    if logged_in:
        kind, word, message = NOT_RENEWED_NOW
        raise kind(message, kind=word, key=key or None) from error
    raise PermissionDeniedError(_NO_LOGIN[scheme], kind="no-credentials") from error


def _raise_answer(scheme: str, code: str, status: int, key: str, error: BaseException) -> NoReturn:
    if scheme == "s3":
        raise_answer(code, status, key, error, bare=True)
    known = _azures(code, status) if scheme == "az" else _googles(code, status)
    if known is None and (status >= 500 or status == 0):
        known = (AmbiguousError, None, "the store could not answer now")
    known = known or (StorageError, "refused", "the store refused the request")
    kind, word, message = or_expired(known, str(error))
    raise kind(message, kind=word, key=key or None, code=code or None, status=status or None) from error


def _azures(code: str, status: int) -> Answer | None:
    from cloudckpt.storage import azure_answers

    return azure_answers.ANSWERS.get(code) or azure_answers.ANSWERS.get(str(status))


def _googles(code: str, status: int) -> Answer | None:
    """Look up an answer of Google's XML interface, whose codes are like S3's."""
    from cloudckpt.storage import gcs_answers

    if code == "NoSuchBucket":
        return StorageError, "no-such-bucket", "the bucket does not exist; create it or correct the URL"
    if status == 404:
        return AbsentError, None, "the object does not exist"
    if status == 416:
        return OutOfRangeError, None, "the range begins behind the end"
    if status == 503:
        return gcs_answers.ANSWERS[429]
    if code in BROKEN_OFF:
        return AGAIN
    reason = code[:1].lower() + code[1:]  # what the other interface of Google's calls it
    return gcs_answers.ANSWERS.get(reason) or gcs_answers.ANSWERS.get(status)
