"""Which checkpoints are kept, and how their objects are placed. Pure.

Owns: the rules, which of several count, and the plan that they make of a history, with a reason for each
checkpoint. Invariants: the newest checkpoint, tagged and held ones, and the one
that the running writer started from are always kept, whatever the rules say;
whether one is kept depends on newer ones alone, so a history is planned from its
newest end without knowing the rest; a clock, right or wrong, drops nothing that
`keep_last` or `min_keep` keeps; what an operator said of a lock only an operator weakens.

It does not delete or place, and does not know where a checkpoint is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Self

from cloudckpt.clock import Clock
from cloudckpt.errors import InvalidInputError, UnsupportedFormatError
from cloudckpt.model import Entry, Hold
from cloudckpt.storage.placing import Placing, parse_lock, placing_of, stricter

KEEP_LAST = 10
NONE = "none"
"""Takes a lock or a storage class off; saying nothing leaves it as it is."""

PLACES = ("lock", "storage_class")

_PERIODS = {
    "hourly": "%Y-%m-%dT%H",
    "daily": "%Y-%m-%d",
    "weekly": "%G-W%V",
    "monthly": "%Y-%m",
    "yearly": "%Y",
}
_MOST = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Rules; a checkpoint is kept while any of them keeps it.

    `lock` and `storage_class` keep nothing: they say how objects are placed, for every client. Where
    rules say nothing of one of them, what the run or its store had stays; "none" takes it off. A
    pointer is never locked or moved. See docs/erasure.md.

    Attributes:
        keep_last: The newest N, from 1. With no rule of keeping given, 10.
        keep_within: Those that are no older than this: a `timedelta`, or seconds.
        hourly, daily, weekly, monthly, yearly: Of each of the last N hours (days, ...)
            that have checkpoints, the newest one; in UTC.
        min_keep: Never fewer than this many of the newest, from 1, whatever the clocks say.
        lock: Lock each object that is written, such as ``"compliance:7y"`` or ``"governance:30d"``.
            Code and clients can't make it weaker; an operator can.
        storage_class: Of each object that is written, such as ``"STANDARD_IA"``.

    Raises:
        InvalidInputError: A rule is not usable.
    """

    keep_last: int | None = None
    keep_within: timedelta | float | None = None
    hourly: int | None = None
    daily: int | None = None
    weekly: int | None = None
    monthly: int | None = None
    yearly: int | None = None
    min_keep: int = 1
    lock: str | None = None
    storage_class: str | None = None

    def __post_init__(self) -> None:
        for name in ("keep_last", *_PERIODS, "min_keep"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value < _MOST):
                raise InvalidInputError(f"{name} must be a whole number from 1", got=value)
        if self.keep_within is not None:
            object.__setattr__(self, "keep_within", _span(self.keep_within))
        if all(getattr(self, name) is None for name in ("keep_last", "keep_within", *_PERIODS)):
            object.__setattr__(self, "keep_last", KEEP_LAST)
        if self.lock not in (None, NONE):
            object.__setattr__(self, "lock", str(parse_lock(self.lock)))
        placing_of(None, self.storage_class)

    def __str__(self) -> str:
        return _told(self.to_json())

    @property
    def keeping(self) -> str:
        """The rules of keeping alone, as text."""
        return _told({name: value for name, value in self.to_json().items() if name not in PLACES})

    @property
    def locks(self) -> bool:
        """Whether objects are locked."""
        return self.lock not in (None, NONE)

    def placing(self, clock: Clock) -> Placing:
        """Return how objects are placed, by a writer with this clock."""
        kind = None if self.storage_class == NONE else self.storage_class
        return placing_of(self.lock if self.locks else None, kind, clock)

    def to_json(self) -> dict[str, Any]:
        """Return the rules that are set, as JSON; a span in seconds."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        if isinstance(self.keep_within, timedelta):
            found["keep_within"] = self.keep_within.total_seconds()
        if self.min_keep == 1:
            del found["min_keep"]
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, rules: Mapping[str, Any]) -> Self:
        """Return the rules of `to_json`.

        Raises:
            UnsupportedFormatError: A newer release wrote a rule that this one does not know.
        """
        unknown = rules.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise UnsupportedFormatError(
                "the retention has rules that this release does not know; upgrade cloudckpt",
                unknown=sorted(unknown),
            )
        return cls(**rules)


DEFAULT = Retention()


def _told(rules: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in rules.items()) or "no rule"


def _span(value: timedelta | float) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11:
        return timedelta(seconds=value)
    if isinstance(value, timedelta) and value > timedelta(0):
        return value
    raise InvalidInputError("keep_within must be a timedelta or a number of seconds, over 0", got=value)


def chosen(keep_last: int | None, retention: Retention | None) -> Retention | None:
    """Return the rules that a caller asks for by one of two arguments; None for neither.

    Raises:
        InvalidInputError: It asks by both, or for what is no rule.
    """
    if retention is None:
        return None if keep_last is None else Retention(keep_last=keep_last)
    if not isinstance(retention, Retention):
        raise InvalidInputError("retention must be a cloudckpt.Retention", got=type(retention).__name__)
    if keep_last is not None:
        raise InvalidInputError("give keep_last or retention, not both; Retention has a keep_last")
    return retention


def rules_of(retention: Mapping[str, Any] | None) -> Retention:
    """Return the rules in a manifest's `retention`; the default when it has none.

    Raises:
        UnsupportedFormatError: A newer release wrote a rule that this one does not know.
    """
    return DEFAULT if retention is None else Retention.from_json(retention["rules"])


def placing_in(retention: Mapping[str, Any] | None, clock: Clock) -> Placing:
    """Return how objects are placed by a manifest's `retention`; raises as `rules_of`."""
    return rules_of(retention).placing(clock)


def inherits(rules: Retention, old: Retention) -> Retention:
    """Return an operator's rules, with the placing of the old ones where they say nothing of it."""
    lock, kind = rules.lock or old.lock, rules.storage_class or old.storage_class
    return replace(rules, lock=None if lock == NONE else lock, storage_class=None if kind == NONE else kind)


def no_weaker(code: Retention, old: Retention) -> Retention:
    """Return the rules that code asks for over old ones; it may add a lock and make one stricter."""
    if old.locks and code.lock is not None:
        locks = [parse_lock(one.lock) for one in (code, old) if one.lock is not None and one.locks]
        code = replace(code, lock=str(reduce(stricter, locks)))
    return inherits(code, old)


def settled(
    retention: Mapping[str, Any] | None, code: Retention | None, store: Retention | None
) -> Mapping[str, Any] | None:
    """Return what a manifest's `retention` becomes when a writer takes over.

    An operator's rules stay; else those that the code asks for count, else what is there,
    else (at the run's beginning) the store's. The code's are `no_weaker` than what they replace.
    """
    if retention is not None and retention["set_by"] == "operator":
        return retention
    if code is not None:
        old = rules_of(retention) if retention is not None else store or DEFAULT
        return set_by("code", no_weaker(code, old))
    return retention if retention is not None or store is None else set_by("store", store)


def set_by(who: str, rules: Retention) -> Mapping[str, Any]:
    """Return rules as a manifest has them."""
    return {"rules": rules.to_json(), "set_by": who}


class Planner:
    """Says of one checkpoint after the other, from the newest on, why it is kept.

    Args:
        rules: The run's.
        epoch: The writer's; the newest checkpoint of an earlier one is what it started from.
        now: The time that ages are told from.
        hold: What keeps the whole run, if something does.
    """

    def __init__(self, rules: Retention, *, epoch: int, now: datetime, hold: Hold | None = None) -> None:
        self._rules = rules
        self._hold = hold
        self._epoch = epoch
        self._time = self._now = now.astimezone(UTC)
        self._seen = 0
        self._started = False
        self._buckets: dict[str, str] = {}
        self._left = {name: left for name in _PERIODS if (left := getattr(rules, name))}
        self._asks_ages = bool(self._left) or rules.keep_within is not None

    def why(self, entry: Entry) -> str | None:
        """Return why the next older checkpoint is kept, or None when it expires."""
        self._seen += 1
        if self._asks_ages:
            # A clock that went backwards must not make an older checkpoint look the younger one.
            self._time = min(self._time, entry.time.astimezone(UTC))
        started = not self._started and entry.epoch < self._epoch
        self._started |= started
        periods = [name for name in self._left if self._is_first_of(name)]
        if self._seen == 1:
            return "the newest"
        hold = entry.hold or self._hold
        if hold is not None:
            return f"held by {hold.by}"
        if entry.tags:
            return f"tagged {entry.tags[0]}"
        return "the writer started from it" if started else self._rule(periods)

    def _rule(self, periods: list[str]) -> str | None:
        rules = self._rules
        if self._seen <= (rules.keep_last or 0):
            return f"keep_last={rules.keep_last}"
        if self._seen <= rules.min_keep:
            return f"min_keep={rules.min_keep}"
        if isinstance(rules.keep_within, timedelta) and self._now - self._time <= rules.keep_within:
            return f"keep_within={rules.keep_within}"
        return f"{periods[0]}={getattr(rules, periods[0])}" if periods else None

    def _is_first_of(self, name: str) -> bool:
        if not self._left[name]:
            return False
        bucket = self._time.strftime(_PERIODS[name])
        if self._buckets.get(name) == bucket:
            return False
        self._buckets[name] = bucket
        self._left[name] -= 1
        return True


@dataclass(frozen=True, slots=True)
class Plan:
    """What rules keep and drop, each newest first.

    Attributes:
        kept, dropped: The checkpoints.
        why: seq of each kept one to the reason.
    """

    kept: tuple[Entry, ...]
    dropped: tuple[Entry, ...]
    why: Mapping[int, str]


def plan_expiry(
    checkpoints: Iterable[Entry], *, rules: Retention, epoch: int, now: datetime, hold: Hold | None = None
) -> Plan:
    """Say which checkpoints stay, see `Planner`.

    Args:
        checkpoints: Newest first.
        rules: The run's.
        epoch: The writer's.
        now: The time that ages are told from.
        hold: What keeps the whole run, if something does.
    """
    planner = Planner(rules, epoch=epoch, now=now, hold=hold)
    kept: list[Entry] = []
    dropped: list[Entry] = []
    why: dict[int, str] = {}
    for entry in checkpoints:
        reason = planner.why(entry)
        if reason is None:
            dropped.append(entry)
        else:
            kept.append(entry)
            why[entry.seq] = reason
    return Plan(tuple(kept), tuple(dropped), why)
