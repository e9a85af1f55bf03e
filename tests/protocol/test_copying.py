"""Copies of runs: whole, only what is new, and never over what the destination has of its own."""

from __future__ import annotations

from typing import Any

import pytest

from cloudckpt.errors import (
    ConflictError,
    CorruptCheckpointError,
    HeldError,
    RunDeletedError,
    RunNotFoundError,
    WaitingError,
)
from cloudckpt.pointer import read_base
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol import pairs, past
from tests.protocol.pairs import Pair
from tests.protocol.past import RUN, SAVES, TAGGED, save, state_of
from tests.protocol.windows import small_ledger

pair = pairs.pair
one_at_a_time = pairs.one_at_a_time
small = past.small


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
    small_ledger(monkeypatch)
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


def test_what_was_done_here_since_the_copy_is_copied_over_what_an_operator_changed_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actions that have moved to pages since are known all the same."""
    small_ledger(monkeypatch)
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
