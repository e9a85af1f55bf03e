"""What engines tell themselves of a store's answers, before the contract's words for it."""

from __future__ import annotations

from typing import TypeAlias

from cloudckpt.errors import CloudckptError, StorageError

Answer: TypeAlias = tuple[type[CloudckptError], str | None, str]
"""The error to raise, its kind, and its message."""


class AbsentError(StorageError):
    """The key does not exist."""


class OutOfRangeError(StorageError):
    """The range begins behind the value's end, or the value is empty."""
