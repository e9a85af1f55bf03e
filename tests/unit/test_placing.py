"""What `lock=` and `storage_class=` mean, which of two counts, and which engines refuse them."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.storage import azure_beside, gcs_beside, s3_beside
from cloudckpt.storage.placing import (
    MODES,
    NOWHERE,
    Lock,
    Placing,
    effective,
    parse_lock,
    placed_by,
    placing_of,
    stricter,
)
from tests.protocol.scripted import OwnTime

_names = itertools.count()


@pytest.mark.parametrize(
    ("text", "lock"),
    [
        ("compliance:7y", Lock("compliance", years=7)),
        ("governance:30d", Lock("governance", days=30)),
        (" Compliance:1D ", Lock("compliance", days=1)),
        ("governance:100y", Lock("governance", years=100)),
    ],
)
def test_a_lock_is_a_mode_and_a_time(text: str, lock: Lock) -> None:
    assert parse_lock(text) == lock


@pytest.mark.parametrize(
    "text",
    [
        "", "7y", "compliance", "compliance:", "compliance:7", "compliance:y", "compliance:0d", "legal:7y",
        "compliance:-1y", "compliance:7m", "compliance:7 y", "compliance:101y", "compliance:36501d",
        "compliance:1.5y", "compliance:7y:", "compliance 7y", "compliance:٣d", 7, None, b"compliance:7y",
    ],
)  # fmt: skip
def test_what_is_no_lock_is_refused_with_the_form(text: Any) -> None:
    """`7m` may mean minutes or months, and a compliance lock of the wrong time can't be taken back."""
    with pytest.raises(InvalidInputError, match="lock"):
        parse_lock(text)


@pytest.mark.parametrize(
    ("lock", "now", "until"),
    [
        # By days of 365 the lock of seven years would end two days early.
        (Lock("compliance", years=7), datetime(2026, 11, 30, tzinfo=UTC), datetime(2033, 11, 30, tzinfo=UTC)),
        (Lock("compliance", years=1), datetime(2028, 2, 29, tzinfo=UTC), datetime(2029, 3, 1, tzinfo=UTC)),
        (Lock("governance", days=30), datetime(2026, 1, 15, tzinfo=UTC), datetime(2026, 2, 14, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_a_year_is_one_of_the_calendar(lock: Lock, now: datetime, until: datetime) -> None:
    assert lock.until(now) == until


def test_the_end_is_counted_from_the_writers_clock() -> None:
    placing = placing_of("governance:2d", None, OwnTime())
    assert placing.until() == OwnTime().now() + timedelta(days=2)
    assert Placing().until() is None


# ---- a client's own, and that of the rules

LOCKS = [Lock(mode, days=n) for mode in MODES for n in (1, 30, 365, 366, 1096)]
LOCKS += [Lock(mode, years=n) for mode in MODES for n in (1, 3, 7)]
DAYS = [
    datetime(2026, 1, 15, tzinfo=UTC),
    datetime(2028, 2, 29, tzinfo=UTC),
    datetime(2027, 3, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_written_as_it_is_read(lock: Lock) -> None:
    """The rules of a run carry it as text."""
    assert parse_lock(str(lock)) == lock


@pytest.mark.parametrize("pair", list(itertools.product(LOCKS, repeat=2)))
def test_the_stricter_of_two_locks_is_weaker_than_neither(pair: tuple[Lock, Lock]) -> None:
    """A lock that ends a day early is found out when it is needed. In leap years too: 1y against 365d."""
    found = stricter(*pair)
    assert found == stricter(*reversed(pair))
    assert found.mode == max((one.mode for one in pair), key=MODES.index)
    for now in DAYS:
        assert found.until(now) == max(one.until(now) for one in pair)


def test_the_rules_come_before_a_clients_own_and_weaken_no_lock() -> None:
    own = placing_of("governance:2y", "HOT", OwnTime())
    rules = placing_of("compliance:7d", "COOL", OwnTime())
    assert own.under(rules).lock == rules.under(own).lock == Lock("compliance", years=2)
    assert own.under(rules).storage_class == "COOL"
    assert own.under(rules).clock is rules.clock
    assert own.under(placing_of(None, "COOL")).lock == own.lock
    assert own.under(placing_of("compliance:7d", None)).storage_class == "HOT"
    assert Placing().under(rules) == rules


def test_a_placing_holds_in_its_block_and_in_what_is_started_there() -> None:
    """And nowhere else: the put of another run, at the same time in the same loop, has its own."""
    one, other = placing_of("compliance:7d", None), placing_of(None, "COOL")

    async def put() -> list[Placing]:
        found = []
        for _ in range(3):
            await asyncio.sleep(0)
            found.append(effective(NOWHERE))
        return found

    async def placed(rules: Placing) -> list[Placing]:
        with placed_by(rules):
            return await asyncio.create_task(put())

    async def both() -> Any:
        return await asyncio.gather(placed(one), placed(other), put())

    first, second, third = asyncio.run(both())
    assert [one] * 3 == [replace(x, clock=one.clock) for x in first]
    assert [other] * 3 == [replace(x, clock=other.clock) for x in second]
    assert third == [NOWHERE] * 3


def test_a_placing_ends_with_its_block_also_by_an_error() -> None:
    with placed_by(placing_of("compliance:7d", None)):
        with pytest.raises(ZeroDivisionError), placed_by(placing_of("governance:1d", None)):
            raise ZeroDivisionError
        assert effective(NOWHERE).lock == Lock("compliance", days=7)
    assert effective(NOWHERE) is NOWHERE


@pytest.mark.parametrize("word", ["", "  ", 3, b"STANDARD_IA"])
def test_a_storage_class_is_a_word(word: Any) -> None:
    with pytest.raises(InvalidInputError, match="storage_class"):
        placing_of(None, word)


def test_what_each_store_is_sent() -> None:
    placing = placing_of("compliance:2d", "cool", OwnTime())
    end = OwnTime().now() + timedelta(days=2)
    assert s3_beside.placed(placing) == {
        "StorageClass": "cool",
        "ObjectLockMode": "COMPLIANCE",
        "ObjectLockRetainUntilDate": end,
    }
    assert gcs_beside.placed(placing) == {
        "storageClass": "cool",
        "retention": {"mode": "Locked", "retainUntilTime": "2030-01-03T00:00:00+00:00"},
    }
    blob = azure_beside.placed(placing)
    assert blob["standard_blob_tier"].value == "Cool"
    assert (blob["immutability_policy"].expiry_time, blob["immutability_policy"].policy_mode) == (
        end,
        "Locked",
    )
    lax = placing_of("governance:2d", None, OwnTime())
    assert gcs_beside.placed(lax)["retention"]["mode"] == "Unlocked"
    assert azure_beside.placed(lax)["immutability_policy"].policy_mode == "Unlocked"
    assert s3_beside.placed(Placing()) == gcs_beside.placed(Placing()) == azure_beside.placed(Placing()) == {}


@pytest.mark.parametrize("options", [{"lock": "compliance:7y"}, {"storage_class": "STANDARD_IA"}])
@pytest.mark.parametrize("kind", ["memory", "file", "webdav"])
def test_a_store_without_them_refuses_them_at_once(
    kind: str, options: dict[str, str], tmp_path: Path
) -> None:
    """A lock that is dropped in silence is found out when the auditor comes."""
    url = str(tmp_path) if kind == "file" else f"{kind}://placing-{next(_names)}"
    with pytest.raises(UnsupportedStoreError, match="leave") as caught:
        cloudckpt.open(url, **options)  # type: ignore[arg-type]
    assert f"{kind}://" in str(caught.value)


def test_obstore_can_send_a_class_and_no_lock() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(UnsupportedStoreError, match="s3fs"):
        cloudckpt.open("s3://bucket", engine="obstore", lock="compliance:7y")
    cloudckpt.open("s3://bucket", engine="obstore", storage_class="STANDARD_IA").close()


def test_a_tier_of_azures_is_known() -> None:
    with pytest.raises(InvalidInputError, match="Hot, Cool, Cold, Archive"):
        cloudckpt.open("az://container", storage_class="STANDARD_IA")


def test_a_store_that_is_sent_to_another_process_keeps_its_lock() -> None:
    """Else the workers of a fleet would write objects that anybody can delete."""
    store = cloudckpt.open("s3://bucket", engine="boto3", lock="compliance:7y", storage_class="STANDARD_IA")
    other = pickle.loads(pickle.dumps(store))
    assert other._core._make()._placing.lock == Lock("compliance", years=7)
    assert other._core._make()._placing.storage_class == "STANDARD_IA"
    assert other._core._rides is False
    for one in (store, other):
        one.close()
