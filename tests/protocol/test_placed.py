"""A lock and a storage class in the rules: on every object that any client writes, on no pointer.

The engine here remembers how each key was written. What a server makes of it is in
`tests/e2e/test_locks_by_rules.py`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.core import Core
from cloudckpt.errors import UnsupportedFormatError, UnsupportedStoreError
from cloudckpt.retention import Retention
from cloudckpt.settings import Settings, write_settings
from cloudckpt.storage.contract import Data, Token
from cloudckpt.storage.file import FileStorage
from cloudckpt.storage.latency import LatencyStorage
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.placing import NOWHERE, Placing, check_cant, effective, placing_of
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import FaultyStorage
from tests.protocol import windows

RUN = "r"
LARGE = random.Random(0).randbytes(50_000)  # so large that it does not ride
WEEK = "compliance:7d"
LOCKED = Retention(keep_last=5, lock=WEEK, storage_class="COOL")
_names = itertools.count()


class Shelf(MemoryStorage):
    """A store that can place objects, and remembers how each was.

    Attributes:
        objects: Key to how it was put, as text.
        pointers: The same of what was created or replaced.
        asked: Placings that it was asked about.
    """

    def __init__(self, *, blocking: bool = True, own: Placing = NOWHERE) -> None:
        super().__init__(f"placed-{next(_names)}")
        self.blocking = blocking
        self.own = own
        self.objects: dict[str, tuple[str | None, str | None]] = {}
        self.pointers: dict[str, tuple[str | None, str | None]] = {}
        self.asked: list[Placing] = []

    def check_placing(self, placing: Placing) -> None:
        self.asked.append(placing)

    async def put(self, key: str, data: Data) -> None:
        self.objects[key] = _as_text(effective(self.own))
        await super().put(key, data)

    async def create(self, key: str, data: Data) -> Token:
        self.pointers[key] = _as_text(effective(NOWHERE))
        return await super().create(key, data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        self.pointers[key] = _as_text(effective(NOWHERE))
        return await super().replace(key, data, token)

    def of_run(self) -> dict[str, tuple[str | None, str | None]]:
        """Return how the run's objects were put; that of a probe is nobody's data."""
        return {key: how for key, how in self.objects.items() if key.startswith(keys.objects_prefix(RUN))}


def _as_text(placing: Placing) -> tuple[str | None, str | None]:
    return placing.lock and str(placing.lock), placing.storage_class


@pytest.fixture(params=[True, False], ids=["blocking", "loop"])
def shelf(request: pytest.FixtureRequest) -> Shelf:
    return Shelf(blocking=request.param)


def opened(shelf: Any, **options: Any) -> Store:
    return Store(lambda: shelf, timeout=1, **options)


def test_every_client_obeys_the_rules_of_the_store(shelf: Shelf) -> None:
    """Opened without a word of a lock: payloads in parts, small ones, results, none rides, no pointer."""
    with opened(shelf) as operator:
        operator.set_retention(LOCKED)
    with opened(shelf) as store, store.run(RUN) as run:
        run.save({"image": LARGE})
        run.save({"step": 2})
        assert len(shelf.of_run()) == 2, "what rides is not locked, so nothing rides"
        assert run.once("work", lambda: LARGE) == LARGE
        run.save({"step": 3})
    assert len(shelf.of_run()) == 4
    assert set(shelf.of_run().values()) == {(WEEK, "COOL")}
    assert keys.manifest_key(RUN) in shelf.pointers
    assert set(shelf.pointers.values()) == {(None, None)}


def test_parts_of_a_payload_are_placed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are put side by side, by threads or tasks of their own."""
    monkeypatch.setattr("cloudckpt.objects.PART_BYTES", 10_000)
    with opened(shelf, retention=LOCKED) as store:
        store.run(RUN).save({"image": LARGE})
    assert len(shelf.of_run()) >= 5
    assert set(shelf.of_run().values()) == {(WEEK, "COOL")}


def test_what_rides_gets_the_storage_class_when_it_becomes_an_object(shelf: Shelf) -> None:
    """That is behind the save, and long after it."""
    with opened(shelf, retention=Retention(keep_last=100, storage_class="COOL")) as store:
        with store.run(RUN) as run:
            for step in range(12):
                run.save({"step": step, "text": random.Random(step).randbytes(5000)})
        assert len(shelf.of_run()) < 12, "the newest ride on"
    assert len(shelf.of_run()) > 3
    assert set(shelf.of_run().values()) == {(None, "COOL")}


def long_past(store: Store, saves: int = 20) -> None:
    with store.run(RUN) as run:
        for step in range(saves):
            run.save({"step": step})


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    windows.small_window(monkeypatch)


def pages_of(shelf: Shelf) -> set[str]:
    return {key for key in shelf.of_run() if keys.is_page(key)}


@pytest.mark.usefixtures("small_window")
def test_pages_of_history_are_placed_by_the_writer_and_by_an_operator(shelf: Shelf) -> None:
    """Whoever could delete a page could hide what is locked."""
    with opened(shelf, retention=replace(LOCKED, keep_last=100)) as store:
        long_past(store)
        made = pages_of(shelf)
        assert len(made) >= 2
        store.run(RUN).tag("good", seq=2)
        tagged = pages_of(shelf) - made
        assert tagged, "the page that holds it was made anew"
        store.run(RUN).retain(Retention(keep_last=9))
        assert pages_of(shelf) - made - tagged, "and what rules left of it"
    assert set(shelf.of_run().values()) == {(WEEK, "COOL")}


def test_an_operators_lock_holds_from_the_next_save_on(shelf: Shelf) -> None:
    """The writer is at work; it learns of it by its own lost race, and puts the payload once more."""
    with opened(shelf) as store, store.run(RUN) as run:
        run.save({"image": LARGE, "step": 1})
        with opened(shelf) as operator:
            operator.run(RUN).retain(LOCKED)
        info = run.save({"image": LARGE, "step": 2})
        [extent] = by_hand(run.access.base()).manifest.head.extents
    assert info.seq == 2
    assert shelf.objects[extent.key] == (WEEK, "COOL")


def test_what_a_client_was_opened_with_is_made_no_weaker(shelf: Shelf) -> None:
    shelf.own = placing_of("governance:2y", "HOT")
    with opened(shelf, retention=Retention(lock=WEEK)) as store:
        store.run(RUN).save({"image": LARGE})
    assert set(shelf.of_run().values()) == {("compliance:2y", "HOT")}


def test_the_wrappers_around_an_engine_hide_nothing(shelf: Shelf) -> None:
    with opened(FaultyStorage(shelf), latency=0.001, retention=LOCKED) as store:
        assert isinstance(store._core.storage.inner, LatencyStorage)
        store.run(RUN).save({"image": LARGE})
    assert set(shelf.of_run().values()) == {(WEEK, "COOL")}


def test_a_copy_is_placed_as_the_destination_was_opened(shelf: Shelf) -> None:
    """And whoever goes on there obeys the rules that came along."""
    there = Shelf(own=placing_of(None, "HOT"))
    with opened(shelf, retention=LOCKED) as store, opened(there) as other:
        store.run(RUN).save({"image": LARGE})
        store.copy(RUN, other)
        assert set(there.of_run().values()) == {(None, "HOT")}
        copied = set(there.of_run())
        other.run(RUN).save({"image": LARGE, "step": 2}, expect=1)
    assert {how for key, how in there.of_run().items() if key not in copied} == {(WEEK, "COOL")}


# ---- engines that can't


class Plain(MemoryStorage):
    """A third party's engine: six methods, and nothing beside them."""

    def __init__(self) -> None:
        super().__init__(f"plain-{next(_names)}")


class OnlyClass(Shelf):
    """As obstore: it can send a storage class and no lock."""

    def check_placing(self, placing: Placing) -> None:
        check_cant(placing, lock="it can't send a lock")


def of_file(tmp_path: Path) -> FileStorage:
    return FileStorage(str(tmp_path))


@pytest.mark.parametrize("make", [lambda _: Plain(), lambda _: OnlyClass(), of_file])
@pytest.mark.parametrize("who", ["code", "store"])
def test_an_engine_that_can_not_is_refused_before_anything_is_written(
    make: Callable[[Path], Any], who: str, tmp_path: Path
) -> None:
    """A lock that is dropped in silence is found out when the auditor comes."""
    storage = make(tmp_path)
    if who == "store":  # by a client whose engine can
        by_hand(write_settings(storage, Settings(LOCKED)))
    with opened(storage, retention=LOCKED if who == "code" else None) as store:
        for state in ({"step": 1}, {"image": LARGE}):
            with pytest.raises(UnsupportedStoreError, match="--lock none") as caught:
                store.run(RUN).save(state)
    assert caught.value.facts["lock"] == WEEK
    rows = by_hand(storage.list("")).rows
    assert not [row.key for row in rows if row.key.startswith((keys.MANIFESTS, keys.objects_prefix(RUN)))]


def test_a_writer_at_work_is_refused_from_its_next_save_on() -> None:
    """Its engine can't do what an operator asks for; nothing of that save is left, and its lease ends."""
    storage = Plain()
    with opened(storage) as store, store.run(RUN, lease=30) as run:
        run.save({"step": 1})
        by_hand(_set_by_hand(store._core, LOCKED))
        for state in ({"step": 2}, {"image": LARGE}):
            with pytest.raises(UnsupportedStoreError, match="retain RUN"):
                run.save(state)
        with pytest.raises(UnsupportedStoreError, match="retain RUN"):
            run.once("work", lambda: 1)
    assert by_hand(storage.list(keys.OBJECTS)).rows == ()
    with opened(storage) as store:
        assert store.run(RUN).load() == {"step": 1}
        store.run(RUN).retain(Retention(lock="none", storage_class="none"))
        assert store.run(RUN).save({"step": 2}, expect=1).seq == 2


async def _set_by_hand(core: Core, rules: Retention) -> None:
    """Set rules as a client does whose engine can."""
    access = core.access(RUN)
    base = await access.base()
    new = replace(base.manifest, nonce="f" * 32, retention={"rules": rules.to_json(), "set_by": "operator"})
    _, landed = await access.pointer.swap(base, new, lambda manifest: manifest.nonce == new.nonce)
    assert landed


@pytest.mark.parametrize("rules", [Retention(lock=WEEK), Retention(storage_class="COOL")])
def test_rules_that_an_engine_can_not_keep_are_not_set_by_it(rules: Retention) -> None:
    with opened(Plain()) as store:
        store.run(RUN).save({"step": 1})
        with pytest.raises(UnsupportedStoreError, match="s3fs"):
            store.set_retention(rules)
        with pytest.raises(UnsupportedStoreError, match="s3fs"):
            store.run(RUN).retain(rules)
        assert store.get_retention() is None
        assert store.run(RUN).summary().set_by is None
        assert store.run(RUN).retain(rules, dry_run=True).rules == rules


def test_an_engine_is_asked_only_where_the_rules_ask_for_something(shelf: Shelf) -> None:
    with opened(shelf, keep_last=1) as store:
        store.run(RUN).save({"image": LARGE})
        store.run(RUN).save({"image": LARGE, "step": 2}, expect=1)
    assert shelf.asked == []
    assert set(shelf.of_run().values()) == {(None, None)}


# ---- who decides


def test_the_codes_own_rules_do_not_drop_the_lock_of_the_store(shelf: Shelf) -> None:
    """`keep_last=20` in some agent's code is no wish to go without a lock."""
    with opened(shelf) as store:
        store.set_retention(LOCKED)
        store.run(RUN, keep_last=20).save({"image": LARGE})
        store.run(RUN, keep_last=30).save({"image": LARGE, "step": 2}, expect=1)
        found = store.run(RUN).summary()
    assert (found.retention, found.set_by) == (replace(LOCKED, keep_last=30), "code")
    assert set(shelf.of_run().values()) == {(WEEK, "COOL")}


def test_rules_of_an_operator_that_say_nothing_of_a_lock_leave_it(shelf: Shelf) -> None:
    with opened(shelf) as store:
        store.set_retention(LOCKED)
        store.set_retention(Retention(daily=7))
        assert store.get_retention() == Retention(daily=7, lock=WEEK, storage_class="COOL")
        store.run(RUN).save({"image": LARGE})
        store.run(RUN).retain(Retention(keep_last=3))
        assert store.run(RUN).summary().retention == replace(LOCKED, keep_last=3)
        store.run(RUN).retain(Retention(keep_last=3, lock="none"))
        assert store.run(RUN).summary().retention == Retention(keep_last=3, storage_class="COOL")
        store.set_retention(Retention(lock="none", storage_class="none"))
        assert store.get_retention() == Retention()
        store.set_retention(None)
        assert store.get_retention() is None


def test_the_stores_lock_reaches_runs_with_rules_of_their_own(shelf: Shelf) -> None:
    """By applying it; an operator's own word for a run stays."""
    with opened(shelf) as store:
        store.run("code", keep_last=20).save({"step": 1})
        store.run("hers").save({"step": 1})
        store.run("hers").retain(Retention(keep_last=30))
        store.run("none").save({"step": 1})
        for name in ("code", "hers", "none"):
            store.run(name).retain(LOCKED, default=True)
        found = {name: store.run(name).summary() for name in ("code", "hers", "none")}
        assert found["code"].retention == replace(LOCKED, keep_last=20)
        assert found["hers"].retention == Retention(keep_last=30)
        assert found["none"].retention == LOCKED
        assert [one.set_by for one in found.values()] == ["code", "operator", "store"]
        taken = replace(LOCKED, lock=None, storage_class=None)
        store.run("none").retain(taken, default=True)
        assert store.run("none").summary().retention == taken, "the store's rules are taken as they are"


def test_what_expired_is_told_by_the_rules_of_keeping() -> None:
    shelf = Shelf()
    with opened(shelf, retention=replace(LOCKED, keep_last=1)) as store, store.run(RUN) as run:
        run.save({"step": 1})
        run.save({"step": 2})
        run.save({"step": 3})
        assert {one.rule for one in run.summary().expired} == {"keep_last=1"}


def test_rules_of_a_newer_release_stop_a_writer_before_it_writes() -> None:
    """It might be a lock of a new kind; what is not understood is not dropped."""
    shelf = Shelf()
    with opened(shelf) as store:
        store.run(RUN).save({"step": 1})
        by_hand(_with_unknown_rule(store._core))
        with pytest.raises(UnsupportedFormatError, match="upgrade"):
            store.run(RUN).save({"step": 2}, expect=1)
        store.run(RUN).tag("good")
    assert shelf.of_run() == {}


async def _with_unknown_rule(core: Core) -> None:
    access = core.access(RUN)
    base = await access.base()
    new = replace(
        base.manifest, nonce="e" * 32, retention={"rules": {"keep_last": 1, "moon": 1}, "set_by": "operator"}
    )
    await access.pointer.swap(base, new, lambda manifest: manifest.nonce == new.nonce)
