"""Copies of runs: one consistent point, resumable, and never over a run of the destination's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import collect, copying, ledger, sweep
from cloudckpt.errors import (
    ConflictError,
    CorruptCheckpointError,
    HeldError,
    PermissionDeniedError,
    RunDeletedError,
    RunNotFoundError,
    WaitingError,
)
from cloudckpt.pages import every_key
from cloudckpt.pointer import Pointer, read_base
from cloudckpt.retention import Retention
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from tests.protocol import past
from tests.protocol.past import RUN, SAVES, TAGGED, World, save, state_of

small = past.small

_names = itertools.count()


class Pair:
    """A run with a long past in one store, and another store."""

    def __init__(self) -> None:
        self.world = World()
        self.world.store.run(RUN).hold("case 7", by="me", seq=2)
        self.world.store.run(RUN).annotate({"odd": True}, seq=3)
        self.there = MemoryStorage(f"copy-{next(_names)}")
        self.to = Store(lambda: self.there)

    def same(self) -> bool:
        here = self.world.store.run(RUN)
        copy = self.to.run(RUN)
        return [replace(one, inline=False) for one in copy.history()] == [
            replace(one, inline=False) for one in here.history()
        ] and copy.load() == here.load()


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that calls have numbers."""
    monkeypatch.setattr(copying, "AT_ONCE", 1)


def test_a_copy_has_everything(pair: Pair) -> None:
    copied = pair.world.store.copy(RUN, pair.to)
    assert copied.sent == copied.objects - len(pair.world.check().inline) > 20
    assert pair.same()
    copy = pair.to.run(RUN)
    assert copy.find(seq=2).hold.by == "me"  # type: ignore[union-attr]
    assert copy.find(tag="good").seq == TAGGED
    assert [copy.load(seq=seq) for seq in (1, 9, SAVES)] == [state_of(step) for step in (1, 9, SAVES)]
    assert pair.to.collect(RUN).removed == 0


def test_a_second_copy_sends_only_what_is_new(pair: Pair) -> None:
    store = pair.world.store
    first = store.copy(RUN, pair.to)
    assert store.copy(RUN, pair.to).sent == 0
    with store.run(RUN) as run:
        pair.world.ledger.took_over(run.epoch)
        for step in range(SAVES + 1, SAVES + 6):
            save(pair.world, run, step)
    second = store.copy(RUN, pair.to)
    assert 0 < second.sent < first.sent / 2
    assert pair.same()


def test_a_copy_can_be_gone_on_with(pair: Pair) -> None:
    """As after a migration: the destination's agent is another writer of another run."""
    pair.world.store.copy(RUN, pair.to)
    with pair.to.run(RUN) as run:
        assert run.load() == state_of(SAVES)
        for step in range(SAVES + 1, SAVES + 20):
            run.save(state_of(step))
    assert pair.world.store.run(RUN).load() == state_of(SAVES)
    with pytest.raises(ConflictError, match="another history"):
        pair.world.store.copy(RUN, pair.to)
    assert pair.to.copy(RUN, pair.world.store).seq == SAVES + 19, "the way back, as it holds all that is here"


def test_a_run_of_the_destinations_own_is_never_overwritten(pair: Pair) -> None:
    pair.to.run(RUN).save({"own": True})
    with pytest.raises(ConflictError, match="another history"):
        pair.world.store.copy(RUN, pair.to)
    assert pair.to.run(RUN).load() == {"own": True}
    pair.to.delete(RUN)
    with pytest.raises(RunDeletedError, match="tombstone") as caught:
        pair.world.store.copy(RUN, pair.to)
    assert caught.value.kind == "there", "not the source's, of which there is nothing to copy"


@pytest.mark.parametrize("marks", [{"whole": True}, {"seq": 3}, {"seq": SAVES}], ids=str)
def test_a_hold_that_was_set_at_the_destination_is_not_dropped(pair: Pair, marks: dict[str, Any]) -> None:
    """As a lawyer's on the backup: a nightly copy would release it, and nobody would know."""
    store, copy = pair.world.store, pair.to.run(RUN)
    store.copy(RUN, pair.to)
    copy.hold("case 9", by="legal", **marks)
    for dry_run in (True, False):
        with pytest.raises(HeldError, match="case 9"):
            store.copy(RUN, pair.to, dry_run=dry_run)
    store.run(RUN).hold("case 9", by="legal", **marks)
    store.copy(RUN, pair.to)
    assert pair.same()
    store.run(RUN).release(**marks)
    store.copy(RUN, pair.to)
    assert pair.same(), (
        "what the source itself released since the copy goes, since nobody said anything there"
    )


def test_an_answer_that_was_given_at_the_destination_is_not_dropped(pair: Pair) -> None:
    store = pair.world.store
    with store.run(RUN) as run:
        pair.world.ledger.took_over(run.epoch)
        with pytest.raises(WaitingError) as waiting:
            run.wait("Go on?")
    store.copy(RUN, pair.to)
    pair.to.run(RUN).answer(waiting.value.token, "yes", by="ann")
    with pytest.raises(ConflictError, match=r"does not know.*ann"):
        store.copy(RUN, pair.to)
    assert pair.to.copy(RUN, store).changed, "the way back brings the answer"
    assert store.run(RUN).questions() == []


@pytest.mark.parametrize("times", [1, 60], ids=["in the manifest", "in pages"])
def test_what_was_done_at_the_destination_alone_is_not_forgotten(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """As a payment by an agent that went on there, and did not come to its first save."""
    monkeypatch.setattr(ledger, "WINDOW_BYTES", 3000)
    monkeypatch.setattr(ledger, "WINDOW_LEFT", 1000)
    store = pair.world.store
    with store.run(RUN) as run:
        for n in range(60):
            run.once(f"here-{n}", str, n)
    store.copy(RUN, pair.to)
    with pair.to.run(RUN) as run:
        for n in range(times):
            run.once(f"there-{n}", str, n)
    for _ in range(3):
        store.run(RUN).acquire()  # of a later epoch than the one that paid
    with pytest.raises(ConflictError, match="does not know") as caught:
        store.copy(RUN, pair.to)
    assert caught.value.facts["action"].startswith("there-")
    assert "there-0" in [one.key for one in pair.to.run(RUN).actions()]


def test_a_page_that_the_source_replaces_while_it_is_looked_at_is_no_damage(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pair.world.store
    store.copy(RUN, pair.to)
    pair.to.run(RUN).tag("odd", seq=5)
    right, calls = copying._holds, itertools.count()

    async def holds(access: Any, manifest: Any) -> Any:
        if next(calls) == 1:  # the source's, whose page of the held checkpoint is another one then
            with ThreadPoolExecutor(1) as another:
                another.submit(store.run(RUN).tag, "mine", seq=3).result()
        return await right(access, manifest)

    monkeypatch.setattr(copying, "_holds", holds)
    assert store.copy(RUN, pair.to).changed
    assert next(calls) == 4
    assert pair.same()


def test_what_was_done_here_since_the_copy_is_copied_over_what_an_operator_changed_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actions that have moved to pages since are known all the same."""
    monkeypatch.setattr(ledger, "WINDOW_BYTES", 3000)
    monkeypatch.setattr(ledger, "WINDOW_LEFT", 1000)
    store = pair.world.store
    with store.run(RUN) as run:
        run.once("first", str, 0)
        store.copy(RUN, pair.to)
        for n in range(60):
            run.once(f"here-{n}", str, n)
    pair.to.run(RUN).tag("odd", seq=3)
    assert store.copy(RUN, pair.to).changed
    assert len(pair.to.run(RUN).actions()) == 61


def test_what_is_not_there_or_deleted_is_not_copied(pair: Pair) -> None:
    with pytest.raises(RunNotFoundError):
        pair.world.store.copy("no-such-run", pair.to)
    pair.world.store.run("gone").save(1)
    pair.world.store.delete("gone")
    with pytest.raises(RunDeletedError):
        pair.world.store.copy("gone", pair.to)


def test_a_dry_run_says_what_would_be_sent_and_writes_nothing(pair: Pair) -> None:
    """After a rollback two checkpoints refer to one object, which is sent once."""
    store = pair.world.store
    with store.run(RUN) as run:
        for step in range(SAVES + 1, SAVES + 12):
            run.save({"step": step, "text": "x" * 100 * step})
        run.rollback(seq=1)
    plan = store.copy(RUN, pair.to, dry_run=True)
    assert not by_hand(pair.there.list("")).rows
    told: list[int] = []
    done = store.copy(RUN, pair.to, progress=told.append)
    assert (plan.objects, plan.sent, plan.bytes) == (done.objects, done.sent, done.bytes)
    assert (len(told), sum(told)) == (done.sent, done.bytes)
    again = store.copy(RUN, pair.to, dry_run=True)
    assert (again.sent, again.bytes, again.changed) == (0, 0, False)
    assert plan.changed


def test_a_dry_run_finds_what_would_be_refused(pair: Pair) -> None:
    pair.to.run(RUN).save({"own": True})
    with pytest.raises(ConflictError, match="another history"):
        pair.world.store.copy(RUN, pair.to, dry_run=True)


def test_a_copy_onto_itself_changes_nothing(pair: Pair) -> None:
    """One store may have two URLs."""
    same = Store(lambda: pair.world.inner)
    before = by_hand(read_base(pair.world.inner, RUN))
    assert not pair.world.store.copy(RUN, same).changed
    assert by_hand(read_base(pair.world.inner, RUN)) == before


def test_what_hears_of_the_progress_can_end_the_copy(pair: Pair) -> None:
    class Enough(Exception): ...

    def heard(_: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        pair.world.store.copy(RUN, pair.to, progress=heard)
    assert by_hand(read_base(pair.there, RUN)) is None
    first = pair.world.store.copy(RUN, pair.to)
    assert first.sent < first.objects
    assert pair.same()


def test_a_damaged_object_is_not_passed_on(pair: Pair) -> None:
    key = next(iter(by_hand(pair.world.inner.list("objects/")).rows)).key
    by_hand(pair.world.inner.delete([key]))
    by_hand(pair.world.inner.put(key, b"damaged"))
    with pytest.raises(CorruptCheckpointError, match="digest") as caught:
        pair.world.store.copy(RUN, pair.to)
    assert caught.value.key == key
    assert by_hand(read_base(pair.there, RUN)) is None


def test_a_run_at_work_is_copied_at_one_point(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent saves, and its rules drop what is being copied, between the look and the sending."""
    right = copying._send
    store = pair.world.store
    pair.world.ledger.keep_last = 3
    saved = itertools.count(SAVES + 1)

    with store.run(RUN, retention=Retention(keep_last=3)) as run:
        pair.world.ledger.took_over(run.epoch)
        run.retain(Retention(keep_last=100))

        def busy(*arguments: Any) -> int:
            if next(turns) < 2:
                for _ in range(3):
                    save(pair.world, run, next(saved))
                store.run(RUN).retain(Retention(keep_last=4))
                store.collect(RUN)
            return right(*arguments)

        turns = itertools.count()
        monkeypatch.setattr(copying, "_send", busy)
        copied = store.copy(RUN, pair.to)
    assert copied.seq > SAVES, "what was looked at first was gone when it was to be sent"
    copy = pair.to.run(RUN)
    assert copy.load() == state_of(copied.seq)
    assert all(copy.load(seq=one.seq) == state_of(one.seq) for one in copy.history())
    store.copy(RUN, pair.to)
    assert pair.same()


def all_loads(pair: Pair) -> bool:
    copy = Store(lambda: pair.there).run(RUN)
    return all(copy.load(seq=one.seq) == state_of(one.seq) for one in copy.history())


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.run(RUN).retain(Retention(keep_last=2)),
        lambda store: store.run(RUN).tag("odd", seq=3),
        lambda store: store.run(RUN).annotate({"odd": 1}, seq=TAGGED),
    ],
    ids=["retain", "tag", "annotate"],
)
def test_a_copy_refers_to_nothing_that_somebody_is_about_to_delete(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, change: Callable[[Store], Any]
) -> None:
    """An operator of the destination drops objects, which the next copy finds there and refers to again."""
    pair.world.store.copy(RUN, pair.to)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1000)
    with Store(lambda: pair.there) as operator:
        change(operator)
        assert pair.world.store.copy(RUN, Store(lambda: pair.there)).changed
    assert all_loads(pair)


def break_off(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy, and once more what was saved since, up to the manifest: nothing refers to its objects."""
    store = pair.world.store
    store.copy(RUN, pair.to)
    with store.run(RUN) as run:
        for step in range(SAVES + 1, SAVES + 9):
            save(pair.world, run, step)
    with monkeypatch.context() as patch:
        patch.setattr(Pointer, "swap", refused)
        with pytest.raises(PermissionDeniedError):
            store.copy(RUN, pair.to)


def test_what_a_collector_takes_from_a_copy_is_sent_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy broke off; a collector of the destination listed what it had sent, and deletes it late."""
    store = pair.world.store
    break_off(pair, monkeypatch)
    right = copying._act
    listed = by_hand(every_object(pair.there))

    def act(*arguments: Any) -> Any:
        sent = right(*arguments)
        used = by_hand(every_key(access.pages, by_hand(access.base()).manifest))
        doomed.extend(key for key in listed if key in used and key not in before)
        by_hand(pair.there.delete(doomed))
        return sent

    doomed: list[str] = []
    access = pair.to._core.access(RUN)
    before = by_hand(every_key(access.pages, by_hand(access.base()).manifest))
    monkeypatch.setattr(copying, "_act", act)
    copied = store.copy(RUN, pair.to)
    assert len(doomed) > 4
    assert copied.sent >= len(doomed)
    assert all_loads(pair)


def test_a_collector_leaves_what_a_copy_refers_to_meanwhile(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fenced when nothing did, and needs many requests to delete it all."""
    store = pair.world.store
    break_off(pair, monkeypatch)
    right, deleted = MemoryStorage.delete, []

    async def delete(self: MemoryStorage, batch: Any) -> None:
        if not deleted:
            with ThreadPoolExecutor(1) as another:
                another.submit(store.copy, RUN, pair.to).result()
        deleted.extend(batch)
        await right(self, batch)

    monkeypatch.setattr(MemoryStorage, "delete", delete)
    monkeypatch.setattr(collect, "DELETES_AT_ONCE", 1)
    assert pair.to.collect(RUN).removed == len(deleted) == 1, "only what it was about to delete"
    monkeypatch.undo()
    assert store.copy(RUN, pair.to, check=True).sent == 1
    assert all_loads(pair)


async def refused(*_: Any) -> Any:
    raise PermissionDeniedError("the test's")


async def every_object(storage: MemoryStorage) -> list[str]:
    return [row.key for row in (await storage.list("objects/")).rows]


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_copy_that_was_interrupted_goes_on(side: str) -> None:
    def attempt(pair: Pair, plan: Plan) -> FaultyStorage:
        inner = pair.world.inner if side == "source" else pair.there
        faulty = FaultyStorage(inner, plan)
        broken = Store(lambda: faulty, timeout=1)
        here, there = (broken, pair.to) if side == "source" else (pair.world.store, broken)
        try:
            here.copy(RUN, there)
        except SimulatedCrash:
            assert faulty.crashed
        finally:
            broken._core.closed = True
        return faulty

    calls = len(attempt(Pair(), Plan()).calls)
    assert calls > 20
    for plan in every_fault(calls, [Effect.CRASH_BEFORE, Effect.LOST_ANSWER]):
        pair = Pair()
        try:
            attempt(pair, plan)
            before = {row.key for row in by_hand(pair.there.list("objects/")).rows}
            again = pair.world.store.copy(RUN, pair.to)
            assert again.sent <= again.objects - len(before)
            assert pair.same()
        except BaseException as error:
            error.add_note(f"{side=} {plan=}")
            raise
