"""How objects are placed: under a lock, and in a storage class. Never pointers.

Owns: what `lock=` and `storage_class=` mean, of `cloudckpt.open` and of a run's rules, and
which of them counts where both say something. Invariants: only `put` is given them, by which
objects are written, since a pointer is replaced all the time; the rules make a lock no
weaker. Each engine says itself what it sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

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

    def __str__(self) -> str:
        return f"{self.mode}:{self.years}y" if self.years else f"{self.mode}:{self.days}d"


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


_SOME_DAY = datetime(2000, 3, 1, tzinfo=UTC)


def stricter(one: Lock, other: Lock) -> Lock:
    """Return the lock that keeps what either keeps: it ends when the later one does, by the stricter mode."""
    # Where both end on one day, such as 365d and 1y, a leap year makes the year the longer one.
    longer = max(one, other, key=lambda lock: (lock.until(_SOME_DAY), lock.years))
    return replace(longer, mode=max(one.mode, other.mode, key=MODES.index))


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

    def under(self, rules: Placing) -> Placing:
        """Return this placing of a client's as the rules of a run make it.

        Their storage class counts before its own; of two locks, see `stricter`.
        """
        both = None if self.lock is None or rules.lock is None else stricter(self.lock, rules.lock)
        return Placing(
            both or self.lock or rules.lock, rules.storage_class or self.storage_class, rules.clock
        )


NOWHERE = Placing()
"""As the store does by itself."""

_rules: ContextVar[Placing | None] = ContextVar("what the rules say of the object being put", default=None)


@contextmanager
def placed_by(rules: Placing) -> Iterator[None]:
    """Let what engines put in the block be placed as the rules of a run say."""
    before = _rules.get()
    _rules.set(rules)
    try:
        yield
    finally:
        _rules.set(before)  # by a token it would fail where a coroutine that was dropped is closed elsewhere


def effective(own: Placing) -> Placing:
    """Return how an object is placed now: what an engine's `put` must ask, before it hops to a thread.

    Args:
        own: What the engine was opened with.
    """
    rules = _rules.get()
    return own if rules is None else own.under(rules)


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
            "(Google) or version-level immutability (Azure), or leave lock= out, of `open` and of the rules",
            kind="no-object-lock",
            **error.facts,
        ) from error
