"""The storage contract: what the protocol needs of a store, and nothing more.

Owns: the six methods, what each promises, and which exception stands for which
failure. Invariant: `create` and `replace` are atomic against every other
client, and a value becomes visible whole or not at all. It does not retry,
throttle or delay: those are wrappers around it (`retry.py`, `latency.py`).

Keys are ``/``-separated ASCII relative to the store's root, without a leading
slash. Values are bytes-like and are taken as they are at call time.

Failures, in every method:
  `ThrottledError`         the store asks to slow down; nothing happened
  `AmbiguousError`         broken connection, time-out, 5xx: it may have happened
  `PermissionDeniedError`  credentials or rights, with a `kind`; by that of
                           "credentials-unavailable" nothing was sent, and it may pass
  `ArchivedError`          (read) the value is in a cold tier
  `UnsupportedStoreError`  the store does not implement a condition
  `StorageError`           anything else, with a `kind` where it can be told
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

Token: TypeAlias = str
"""What a conditional write compares. Opaque: never parsed, never ordered."""

Data: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that was read, with the token that names this version of it."""

    data: bytes
    token: Token


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of a listing: key, size in bytes, and the store's own time of the write."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Page:
    """Up to 1,000 rows, and the cursor of the next page.

    Rows ascend inside one folder. Across folders the order is the store's: SeaweedFS
    goes through them one by one, so that ``a/1`` comes before ``a-b/1``.

    Attributes:
        rows: May be empty even when there is a next page.
        cursor: Pass it to `list` for the next page; None at the end.
    """

    rows: tuple[Listed, ...]
    cursor: str | None


class Storage(Protocol):
    """One store. Safe for concurrent calls.

    Attributes:
        url: The root, as a user writes it, without credentials.
        blocking: True when no method ever suspends (the library blocks): the
            caller may then drive a coroutine by hand, without an event loop.
    """

    url: str
    blocking: bool

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        """Return the newest value, or None when the key does not exist.

        Strongly consistent: a write that was acknowledged before the call is seen.

        Args:
            key: The key.
            offset: First byte wanted, from 0.
            length: Bytes wanted at most; None for all. A range that goes past
                the end gives what there is, so a short answer is no error here.
        """
        ...

    async def create(self, key: str, data: Data) -> Token:
        """Write a key that does not exist, atomically; return its token.

        Raises:
            PreconditionFailedError: The key exists. This may be one's own
                earlier attempt: read the value before believing it.
        """
        ...

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        """Replace the version that `token` names, atomically; return the new token.

        Raises:
            PreconditionFailedError: The key has another version, or is missing.
                This may be one's own earlier attempt, as with `create`.
        """
        ...

    async def put(self, key: str, data: Data) -> None:
        """Write a key that is only ever written with these bytes.

        Safe to call twice: a key that exists counts as written. Durable when it
        returns.
        """
        ...

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        """Return one page of the keys that start with `prefix`; each key once over all pages."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete keys, destructively; a key that does not exist is no error.

        Never conditional: MinIO answers 204 to a stale If-Match and deletes.
        """
        ...

    async def close(self) -> None:
        """Let go of connections. Safe to call twice."""
        ...
