"""Claims: which runs are free for a worker, which are not, and what is in a worker's hands then."""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest

import cloudckpt
from cloudckpt import Run, Store
from cloudckpt.clock import SystemClock
from cloudckpt.errors import ConflictError, InvalidInputError, RunBusyError, RunNotFoundError, WaitingError
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import FaultyStorage
from tests.unit.machines import LONG, clock_of, manifest, stores
from tests.until import PATIENCE

_names = itertools.count()


def asked(run: Run, prompt: str = "go on?", **options: Any) -> str:
    """Let a run ask, and return the token of its question."""
    with pytest.raises(WaitingError) as told:
        run.wait(prompt, **options)
    assert told.value.token
    return told.value.token


def claimed(store: Store, **options: Any) -> Run:
    run = store.claim(lease=LONG, **options)
    assert run is not None
    return run


# ---- what is free


def test_a_submitted_run_is_claimed_with_its_state() -> None:
    ours, theirs = stores()
    info = ours.submit("r", {"task": "find it"})
    assert info is not None
    assert info.seq == 1
    with claimed(theirs) as run:
        assert (run.id, run.epoch, run.load()) == ("r", 2, {"task": "find it"})
        assert ours.claim() is None
        run.finish({"task": "done"})
    assert ours.claim() is None


def test_a_run_is_submitted_without_a_state_too() -> None:
    ours, theirs = stores()
    assert ours.submit("r") is None
    with claimed(theirs) as run:
        assert run.load() is None


def test_a_run_is_submitted_once() -> None:
    """A submitter who tries again after a doubt must not throw away what a worker has done since."""
    ours, theirs = stores()
    ours.submit("r", {"n": 1})
    for state in ({"n": 1}, None):
        with pytest.raises(ConflictError) as told:
            ours.submit("r", state)
        assert told.value.kind == "exists"
    with claimed(theirs) as run:
        run.save({"n": 2})
    with pytest.raises(ConflictError):
        ours.submit("r", {"n": 1})
    assert ours.run("r").load() == {"n": 2}


def test_a_run_without_a_checkpoint_that_is_at_work_is_not_submitted_again() -> None:
    ours, theirs = stores()
    ours.submit("r")
    with claimed(theirs):
        for state in ({"n": 1}, None):
            with pytest.raises(RunBusyError):
                ours.submit("r", state)
    assert manifest(ours).epoch == 2


def test_a_worker_never_sees_the_offer_without_the_state() -> None:
    """A submitter that dies between two commits would leave a run that begins from nothing."""
    seen = []

    class Spy(MemoryStorage):
        async def replace(self, key: str, data: Any, token: str) -> str:
            done = await super().replace(key, data, token)
            seen.append(manifest(store))
            return done

    name = f"claims-{next(_names)}"
    store = Store(lambda: Spy(name), probed=True)
    store.submit("r", {"n": 1})
    assert [(one.seq, one.lease is not None) for one in seen] == [(1, True)]


def test_a_run_that_never_had_a_lease_is_left_alone() -> None:
    """Nobody can tell whether its agent is in a long call or dead."""
    ours, theirs = stores()
    ours.run("r").save({"n": 1})
    assert theirs.claim() is None
    theirs.offer("r")
    with claimed(theirs) as run:
        assert run.load() == {"n": 1}


def test_what_a_worker_left_unfinished_is_free() -> None:
    ours, theirs = stores()
    ours.submit("r", {"n": 1})

    def fail() -> None:
        with claimed(ours) as run:
            run.save({"n": 2})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with claimed(theirs) as again:
        assert again.load() == {"n": 2}


def test_an_abandoned_run_is_free_when_its_lease_was_seen_to_expire() -> None:
    ours, theirs = stores()
    ours.submit("r", {})
    abandoned = claimed(ours)
    assert theirs.claim() is None
    clock_of(theirs).seconds += LONG - 1
    assert theirs.claim() is None
    clock_of(theirs).seconds += 1
    assert claimed(theirs).epoch == 3
    assert abandoned.epoch == 2


def test_a_run_that_waits_is_free_once_it_has_its_answer() -> None:
    ours, theirs = stores()
    ours.submit("r", {})
    with claimed(ours) as run:
        token = asked(run)
    assert theirs.claim() is None
    theirs.run("r").answer(token, "yes")
    with claimed(theirs) as again:
        assert again.wait("go on?") == "yes"


def test_a_run_that_waits_for_two_answers_is_free_with_the_second() -> None:
    ours, theirs = stores()
    ours.submit("r", {})
    with claimed(ours) as run:
        first, second = asked(run, "a?"), asked(run, "b?")
    theirs.run("r").answer(first, 1)
    assert theirs.claim() is None
    theirs.run("r").answer(second, 2)
    assert claimed(theirs).id == "r"


def test_a_run_that_waits_for_another_run_is_free_when_that_has_ended() -> None:
    """Nobody writes into a run that its child is done: who looks must look there."""
    ours, theirs = stores()
    ours.submit("parent", {})
    with claimed(ours) as run, pytest.raises(WaitingError):
        run.wait_for("child")
    assert theirs.claim() is None
    ours.run("child").finish({"result": 7})
    with claimed(theirs) as again:
        assert (again.id, again.wait_for("child")) == ("parent", {"result": 7})


def test_a_run_whose_question_has_expired_is_free() -> None:
    """By the store's clock; else it would wait for ever for an answer that can't come any more."""
    ours, theirs = stores(clocks=[SystemClock(), SystemClock()])
    ours.submit("r", {})
    with claimed(ours) as run:
        asked(run, expires=0.2)
    with claimed(theirs, wait=PATIENCE, poll=0.02) as again:
        with pytest.raises(WaitingError) as told:
            again.wait("go on?", expires=0.2)
        assert told.value.kind == "expired"


def test_an_ended_run_is_free_when_it_is_offered() -> None:
    ours, theirs = stores()
    with ours.run("r", lease=LONG) as run:
        run.finish({"n": 1})
    assert theirs.claim() is None
    theirs.offer("r")
    theirs.offer("r")
    assert claimed(theirs).id == "r"
    with pytest.raises(RunBusyError):
        ours.offer("r")
    with pytest.raises(RunNotFoundError):
        ours.offer("nothing")


def test_the_prefix_and_the_skipped_are_kept_to() -> None:
    ours, _ = stores()
    for run in ("a/1", "b/1", "b/2"):
        ours.submit(run, {})
    assert claimed(ours, prefix="b/", skip={"b/2"}).id == "b/1"
    assert ours.claim("b/", skip={"b/2"}) is None
    assert claimed(ours, prefix="b/").id == "b/2"


def test_damage_of_one_run_hides_no_other() -> None:
    ours, theirs = stores()
    for n in range(4):
        ours.submit(f"r{n}", {})
    storage = ours._core.storage
    key = cloudckpt.keys.manifest_key("r1")
    stored = by_hand(storage.read(key))
    assert stored is not None
    by_hand(storage.replace(key, stored.data[:50], stored.token))
    assert {claimed(theirs).id for _ in range(3)} == {"r0", "r2", "r3"}
    assert theirs.claim() is None


def test_damage_of_a_run_that_is_waited_for_hides_no_other() -> None:
    """Every worker of the store was told of it, by an error of its claim, and none got anything."""
    ours, theirs = stores()
    ours.submit("jobs/parent", {"n": 1})
    with claimed(ours) as parent, pytest.raises(WaitingError):
        parent.wait_for("child")
    storage = ours._core.storage
    by_hand(storage.put(cloudckpt.keys.manifest_key("child"), b"not a manifest"))
    ours.submit("jobs/sound", {"n": 1})
    assert claimed(theirs, prefix="jobs/").id == "jobs/sound"


# ---- looking


def test_what_rests_is_not_read_again_and_again() -> None:
    """A store of ten thousand ended runs would cost ten thousand reads a round."""
    clock = SystemClock()
    storage = FaultyStorage(MemoryStorage(f"claims-{next(_names)}"))
    store = Store(lambda: storage, probed=True, clock=clock)
    for n in range(5):
        store.run(f"done{n}").finish({})
    for _ in range(2):
        assert store.claim() is None
    rounds = store._rounds
    assert rounds is not None
    for run, known in rounds._known.items():  # as if they had been listed so for a while
        rounds._known[run] = replace(known, since=known.since - 10)
    assert store.claim() is None
    before = len(storage.calls)
    assert store.claim() is None
    assert [call.op for call in storage.calls[before:]] == ["list"]
    store.offer("done3")
    assert claimed(store).id == "done3"


def test_a_claim_waits_for_a_run_to_come() -> None:
    ours, theirs = stores(clocks=[SystemClock(), SystemClock()])
    got: list[Run | None] = []
    looking = threading.Thread(target=lambda: got.append(theirs.claim(wait=PATIENCE, poll=0.01)))
    looking.start()
    ours.submit("r", {})
    looking.join()
    assert [run and run.id for run in got] == ["r"]
    assert theirs.claim(wait=0.05, poll=0.01) is None


def test_claims_are_awaited_as_well() -> None:
    ours, _ = stores(clocks=[SystemClock(), SystemClock()])

    async def main() -> None:
        assert await ours.aclaim(wait=0.02, poll=0.01) is None
        assert await ours.asubmit("r", {"n": 1})
        run = await ours.aclaim()
        assert run is not None
        async with run:
            assert await run.aload() == {"n": 1}
        await ours.aoffer("r")

    asyncio.run(main())


def test_the_options_of_a_run_go_with_the_claim() -> None:
    ours, _ = stores()
    told: list[Any] = []
    ours.submit("r", {"step": 1, "max_steps": 9}, keep_last=3)
    with claimed(ours, keep_last=2, progress=told.append) as run:
        run.save({"step": 2, "max_steps": 9})
    assert [(one.step, one.max_steps) for one in told] == [(2, 9)]


@pytest.mark.parametrize("options", [{"lease": 0}, {"poll": 0}, {"wait": -1}, {"wait": True}, {"wait": None}])
def test_a_wrong_argument_is_told(options: dict[str, Any]) -> None:
    ours, _ = stores()
    with pytest.raises(InvalidInputError):
        ours.claim(**options)
