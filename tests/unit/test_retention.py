"""Which checkpoints are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudckpt.clock import SystemClock
from cloudckpt.errors import InvalidInputError, UnsupportedFormatError
from cloudckpt.model import Entry, Hold
from cloudckpt.retention import Retention, chosen, inherits, plan_expiry, rules_of, set_by, settled
from cloudckpt.storage.placing import Lock
from tests.unit.test_model import entry

NOW = datetime(2030, 6, 15, 12, 30, tzinfo=UTC)
HOLD = Hold("an auditor", "case 7", NOW)
COUNTS = st.none() | st.integers(1, 30)
RULES = st.builds(
    Retention,
    keep_last=COUNTS,
    keep_within=st.none() | st.timedeltas(timedelta(seconds=1), timedelta(days=90)),
    **dict.fromkeys(("hourly", "daily", "weekly", "monthly", "yearly"), COUNTS),
    min_keep=st.integers(1, 5),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[Entry, ...], int]:
    """Draw checkpoints, newest first, with all that the rules look at, and the writer's epoch."""
    seqs = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=25)), reverse=True)
    epochs = sorted(draw(st.lists(st.integers(1, 5), min_size=len(seqs), max_size=len(seqs))), reverse=True)
    found = tuple(
        replace(
            entry(seq),
            epoch=epoch,
            tags=draw(st.sampled_from([(), (), (), ("t",)])),
            hold=draw(st.sampled_from([None, None, None, HOLD])),
            time=NOW - timedelta(hours=draw(st.integers(-50, 5000))),
        )
        for seq, epoch in zip(seqs, epochs, strict=True)
    )
    return found, draw(st.integers(epochs[0], 6))


@given(histories(), RULES)
def test_what_is_kept_and_what_is_dropped(history: tuple[tuple[Entry, ...], int], rules: Retention) -> None:
    """No clock, whatever it says, drops what the rules on order keep."""
    entries, epoch = history
    plan = plan_expiry(entries, rules=rules, epoch=epoch, now=NOW)
    assert sorted((*plan.kept, *plan.dropped), key=lambda e: -e.seq) == list(entries), (
        "each is in one of the two"
    )
    assert plan.why.keys() == {e.seq for e in plan.kept}
    assert list(plan.kept) == sorted(plan.kept, key=lambda e: -e.seq)
    least = max(rules.keep_last or 1, rules.min_keep)
    assert entries[:least] == plan.kept[: len(entries[:least])]
    assert not [e for e in plan.dropped if e.tags or e.hold]
    before = [e for e in entries if e.epoch < epoch]
    assert not before or before[0] in plan.kept, "the checkpoint that this writer started from stays"


@given(histories(), RULES)
def test_expiring_twice_drops_nothing_more(history: tuple[tuple[Entry, ...], int], rules: Retention) -> None:
    entries, epoch = history
    kept = plan_expiry(entries, rules=rules, epoch=epoch, now=NOW).kept
    assert plan_expiry(kept, rules=rules, epoch=epoch, now=NOW).dropped == ()


@given(histories(), RULES, st.integers(0, 25))
def test_a_history_is_planned_from_its_newest_end(
    history: tuple[tuple[Entry, ...], int], rules: Retention, cut: int
) -> None:
    """A commit knows the newest ones only, and must decide of them as one that knows all."""
    entries, epoch = history
    options: dict[str, Any] = {"rules": rules, "epoch": epoch, "now": NOW}
    whole = plan_expiry(entries, **options).why
    part = plan_expiry(entries[:cut], **options).why
    assert part == {seq: why for seq, why in whole.items() if seq in {e.seq for e in entries[:cut]}}


def test_keep_last_alone_keeps_just_these() -> None:
    entries = tuple(entry(seq) for seq in range(20, 0, -1))
    plan = plan_expiry(entries, rules=Retention(keep_last=3), epoch=1, now=NOW)
    assert [e.seq for e in plan.kept] == [20, 19, 18]
    assert plan.why == {20: "the newest", 19: "keep_last=3", 18: "keep_last=3"}


def test_a_period_keeps_its_newest_checkpoint() -> None:
    """Four checkpoints a day for ten days: of the last three days the last one each."""
    entries = tuple(replace(entry(40 - n), time=NOW - timedelta(hours=6 * n)) for n in range(40))
    plan = plan_expiry(entries, rules=Retention(daily=3), epoch=1, now=NOW)
    assert [e.time.day for e in plan.kept] == [15, 14, 13]
    assert [e.time.hour for e in plan.kept] == [12, 18, 18]
    assert plan.why[entries[3].seq] == "daily=3"


def test_keep_within_counts_from_now_and_the_clock_may_be_wrong() -> None:
    """One was saved by a clock in 1970: it ages those before it, and never below min_keep."""
    times = [NOW - timedelta(hours=1), NOW - timedelta(hours=2), datetime(1970, 1, 1, tzinfo=UTC), NOW]
    entries = tuple(replace(entry(4 - n), time=time) for n, time in enumerate(times))
    rules = Retention(keep_within=timedelta(hours=1, minutes=30))
    assert [e.seq for e in plan_expiry(entries, rules=rules, epoch=1, now=NOW).kept] == [4]
    assert len(plan_expiry(entries, rules=replace(rules, min_keep=4), epoch=1, now=NOW).kept) == 4


def test_rules_come_back_from_json() -> None:
    rules = Retention(keep_last=3, keep_within=timedelta(days=7), daily=5, min_keep=2)
    assert rules.to_json() == {"keep_last": 3, "keep_within": 604800.0, "daily": 5, "min_keep": 2}
    assert Retention.from_json(rules.to_json()) == rules
    assert str(Retention()) == "keep_last=10"
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        Retention.from_json({"keep_last": 3, "by_moon": 1})


def test_who_decides() -> None:
    """An operator's rules stay; the code's come before the store's, which count from the beginning."""
    code, store, operator = (
        Retention(keep_last=1),
        Retention(keep_last=2),
        set_by("operator", Retention(keep_last=3)),
    )
    assert settled(operator, code, store) == operator
    assert settled(set_by("store", store), code, None) == set_by("code", code)
    assert settled(None, None, store) == set_by("store", store)
    assert settled(set_by("code", code), None, store) == set_by("code", code)
    assert settled(None, None, None) is None
    assert rules_of(None) == Retention(keep_last=10)


def test_a_placing_is_no_rule_of_keeping() -> None:
    """The plan is the same with it and without it, and so is the default."""
    placed = Retention(lock=" Compliance:7Y ", storage_class="GLACIER_IR")
    assert placed.to_json() == {"keep_last": 10, "lock": "compliance:7y", "storage_class": "GLACIER_IR"}
    assert Retention.from_json(placed.to_json()) == placed
    assert str(placed) == "keep_last=10, lock=compliance:7y, storage_class=GLACIER_IR"
    assert placed.keeping == str(Retention())
    entries = tuple(entry(seq) for seq in range(30, 0, -1))
    plain = plan_expiry(entries, rules=Retention(), epoch=1, now=NOW)
    assert plan_expiry(entries, rules=placed, epoch=1, now=NOW) == plain
    assert placed.placing(SystemClock()).lock == Lock("compliance", years=7)
    assert not Retention(lock="none", storage_class="none").placing(SystemClock())
    assert (placed.locks, Retention().locks, Retention(lock="none").locks) == (True, False, False)


@pytest.mark.parametrize("bad", [{"lock": "7y"}, {"lock": 7}, {"storage_class": " "}, {"storage_class": 3}])
def test_an_unusable_placing_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        Retention(**bad)


YEAR, DAY = "governance:1y", "compliance:1d"


@pytest.mark.parametrize(
    ("code", "old", "lock"),
    [
        (None, None, None),
        (YEAR, None, YEAR),
        (None, YEAR, YEAR),
        ("none", YEAR, YEAR),
        ("none", None, None),
        (DAY, YEAR, "compliance:1y"),
        (YEAR, DAY, "compliance:1y"),
        ("governance:2y", YEAR, "governance:2y"),
        (DAY, DAY, DAY),
    ],
)
def test_code_makes_a_lock_no_weaker(code: str | None, old: str | None, lock: str | None) -> None:
    """At the run's beginning as when it takes over; the rules of keeping are its own."""
    asks, had = Retention(keep_last=3, lock=code), Retention(daily=7, lock=old)
    wanted = set_by("code", Retention(keep_last=3, lock=lock))
    assert settled(None, asks, had) == wanted
    assert settled(set_by("store", had), asks, None) == settled(set_by("code", had), asks, None) == wanted
    operator = set_by("operator", had)
    assert settled(operator, asks, None) == operator


def test_an_operator_takes_a_placing_off_by_its_word_alone() -> None:
    had = Retention(daily=7, lock=YEAR, storage_class="COOL")
    assert inherits(Retention(keep_last=3), had) == Retention(keep_last=3, lock=YEAR, storage_class="COOL")
    assert inherits(Retention(keep_last=3, lock=DAY), had).lock == DAY
    assert inherits(Retention(keep_last=3, lock="none", storage_class="none"), had) == Retention(keep_last=3)
    assert inherits(Retention(lock="none"), Retention()) == Retention()


@pytest.mark.parametrize("name", ["keep_last", "hourly", "daily", "weekly", "monthly", "yearly", "min_keep"])
@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "3", 2**40])
def test_an_unusable_number_is_refused(name: str, bad: Any) -> None:
    with pytest.raises(InvalidInputError, match=name):
        Retention(**{name: bad})


@pytest.mark.parametrize("bad", [0, -1, True, "7d", timedelta(0), float("nan"), float("inf")])
def test_an_unusable_span_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidInputError, match="keep_within"):
        Retention(keep_within=bad)


def test_two_ways_to_ask_are_one_too_many() -> None:
    assert chosen(3, None) == Retention(keep_last=3)
    assert chosen(None, None) is None
    with pytest.raises(InvalidInputError, match="not both"):
        chosen(3, Retention())
    with pytest.raises(InvalidInputError, match="must be a"):
        chosen(None, 3)  # type: ignore[arg-type]
