"""How objects are placed: under a lock, and in a storage class. Never pointers.

Owns: what `lock=` and `storage_class=` of `cloudckpt.open` mean. Invariant: only `put` is
given them, by which objects are written; a pointer is replaced all the time. Each engine
says itself what it sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cloudckpt.clock import Clock, SystemClock
from cloudckpt.errors import InvalidInputError, StorageError, UnsupportedStoreError

MODES = ("governance", "compliance")
MOST_YEARS = 100

_LOCK = re.compile(r"(\w+):([0-9]+)([a-z]+)")
_FORM = (
    "a lock is a mode and a time, such as 'governance:30d' or 'compliance:7y': governance (those with a "
    "special right may end it) or compliance (nobody may), and a number of days (d) or years (y)"
)


@dataclass(frozen=True, slots=True)
class Lock:
    """For how long an object can't be deleted: one of `MODES`, and a time."""

    mode: str
    years: int = 0
    days: int = 0

    def until(self, now: datetime) -> datetime:
        """Return when the lock of an object that is written now ends; a year is one of the calendar."""
        year = now.year + self.years
        try:
            end = now.replace(year=year)
        except ValueError:  # the 29th of February
            end = now.replace(year=year, month=3, day=1)
        return end + timedelta(days=self.days)


def parse_lock(text: str) -> Lock:
    """Return the lock that a text such as ``compliance:7y`` names.

    Raises:
        InvalidInputError: It names none; the message says how one is written.
    """
    found = _LOCK.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None or found[1] not in MODES or found[3] not in ("d", "y"):
        raise InvalidInputError(_FORM, lock=text)
    amount = int(found[2])
    if not 1 <= amount <= MOST_YEARS * (1 if found[3] == "y" else 365):
        raise InvalidInputError(f"a lock lasts from a day to {MOST_YEARS} years", lock=text)
    return Lock(found[1], years=amount) if found[3] == "y" else Lock(found[1], days=amount)


@dataclass(frozen=True, slots=True)
class Placing:
    """What the objects of a store are written with.

    Attributes:
        lock: Of each object.
        storage_class: Of each object, in the store's own word.
        clock: The writer's: what a lock's end is counted from.
    """

    lock: Lock | None = None
    storage_class: str | None = None
    clock: Clock = field(default_factory=SystemClock)

    def __bool__(self) -> bool:
        return self.lock is not None or self.storage_class is not None

    def until(self) -> datetime | None:
        """Return when the lock of an object that is written now ends; None without a lock."""
        return None if self.lock is None else self.lock.until(self.clock.now())


NOWHERE = Placing()
"""As the store does by itself."""


def placing_of(lock: str | None, storage_class: str | None, clock: Clock | None = None) -> Placing:
    """Return the placing for two options of a user's.

    Raises:
        InvalidInputError: One of them is not usable.
    """
    if storage_class is not None and (not isinstance(storage_class, str) or not storage_class.strip()):
        raise InvalidInputError(
            "storage_class is a word of the store's, such as 'STANDARD_IA'", got=storage_class
        )
    return Placing(None if lock is None else parse_lock(lock), storage_class, clock or SystemClock())


def check_cant(placing: Placing, *, lock: str | None = None, storage_class: str | None = None) -> None:
    """Refuse what an engine can't do.

    Args:
        placing: What was asked for.
        lock: Why it knows no lock; None when it does.
        storage_class: Why it knows no storage class; None when it does.

    Raises:
        UnsupportedStoreError: That was asked for.
    """
    if lock is not None and placing.lock is not None:
        raise UnsupportedStoreError(
            f"{lock}, so lock= can't be kept; leave it out", lock=str(placing.lock.mode)
        )
    if storage_class is not None and placing.storage_class is not None:
        raise UnsupportedStoreError(
            f"{storage_class}; leave storage_class= out", storage_class=placing.storage_class
        )


@contextmanager
def lock_told(placing: Placing) -> Iterator[None]:
    """Say what a bucket lacks when it refuses a write with a lock.

    Raises:
        StorageError: With the kind ``"no-object-lock"``.
    """
    try:
        yield
    except StorageError as error:
        if placing.lock is None or error.kind != "refused":
            raise
        raise StorageError(
            "the store refuses to lock the object; the bucket needs object lock (S3), object retention "
            "(Google) or version-level immutability (Azure), or leave lock= out",
            kind="no-object-lock",
            **error.facts,
        ) from error
