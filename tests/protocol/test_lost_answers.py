"""Answers that tell nothing: the read-back decides, and a save happens exactly once or says that it may.

Each request's fate is scripted, in memory. What a proxy can do to each engine's requests
to a real server is tried in tests/protocol/test_answers_on_the_wire.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest

from cloudckpt import runner
from cloudckpt.errors import (
    AmbiguousError,
    FencedError,
    OutcomeUnknownError,
    PermissionDeniedError,
    StorageError,
    ThrottledError,
)
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.keys import manifest_key
from cloudckpt.model import RECENT_COMMITS, CheckpointInfo, Manifest
from cloudckpt.run import Run
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol.scripted import (
    Act,
    OwnTime,
    ScriptedStorage,
    echoed,
    failing,
    fine,
    lost,
    meanwhile,
    unanswered,
)

RUN = "r"
TIMEOUT = 10.0
LARGE = {"blob": secrets.token_bytes(40_000)}
SMALL = {"n": 1}


class Process:
    """One process that saves to `RUN`, and notes what it is told."""

    def __init__(self, storage: Any, ledger: Ledger, time: OwnTime) -> None:
        self.ledger = ledger
        self.store = Store(lambda: storage, timeout=TIMEOUT, clock=time)
        self.run: Run = self.store.run(RUN)

    def save(self, state: object, **options: Any) -> CheckpointInfo:
        with self.ledger.asking(state, epoch=self.run.epoch) as told:
            info = self.run.save(state, **options)
            told(info)
        return info


class World:
    """A run with one checkpoint, its writer, and whoever else comes."""

    def __init__(self, time: OwnTime) -> None:
        self.time = time
        self.ledger = Ledger(keep_last=10)
        self.storage = ScriptedStorage()
        self.us = Process(self.storage, self.ledger, self.time)
        self.us.save({"n": 0})
        self.storage.bodies.clear()
        self.storage.calls.clear()

    def script(self, *writes: Act) -> None:
        self.storage.writes.extend(writes)

    def another(self) -> Process:
        return Process(self.storage.again(), self.ledger, self.time)

    def laws(self) -> Manifest:
        manifest = by_hand(check_laws(self.storage.inner, RUN, self.ledger))
        assert manifest is not None
        return manifest


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    time = OwnTime()
    monkeypatch.setattr(runner, "_sleep", time.sleep)
    return World(time)


@pytest.fixture(params=[SMALL, LARGE], ids=["riding", "object"])
def state(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(
    "fates", [[unanswered], [echoed], [lost, unanswered], [lost, echoed], [lost, lost, fine]]
)
def test_a_doubtful_save_succeeds_exactly_once(world: World, state: Any, fates: list[Act]) -> None:
    """Also when the network sent the write twice, so that one's own success is told as a conflict."""
    world.script(*fates)
    info = world.us.save(state)
    assert info.seq == 2
    assert world.laws().seq == 2
    assert len(set(world.storage.bodies)) == 1, "what is sent again must be the same bytes"
    assert world.us.save({"n": 2}).seq == 3
    assert world.laws().seq == 3
    assert world.storage.calls.count(("read", manifest_key(RUN))) == len([x for x in fates if x is not fine])


@pytest.mark.parametrize("fate", [unanswered, echoed])
def test_becoming_the_writer_counts_once(world: World, fate: Act) -> None:
    world.script(fate)
    second = world.us.store.run(RUN)
    second.acquire()
    assert second.epoch == 2
    assert world.laws().epoch == 2


@pytest.mark.parametrize("fate", [unanswered, echoed, lost])
def test_the_first_manifest_of_a_run_is_created_once(world: World, fate: Act) -> None:
    world.script(fate)
    assert world.us.store.run("new").save(SMALL).epoch == 1


def test_a_base_that_a_collector_fenced_is_no_lost_race(world: World, state: Any) -> None:
    """Nobody added a checkpoint, so the writer puts its payload under a new key and goes on by itself."""

    def fence() -> None:
        stored = by_hand(world.storage.inner.read(manifest_key(RUN)))
        assert stored is not None
        fenced = replace(decode_manifest(stored.data, RUN), nonce="fenced")
        by_hand(world.storage.inner.replace(manifest_key(RUN), encode_manifest(fenced), stored.token))

    world.script(meanwhile(lost, fence))
    assert world.us.save(state).seq == 2
    world.laws()
    first, second = (decode_manifest(body, RUN).checkpoints[0].extents for body in world.storage.bodies)
    assert first[0].key != second[0].key
    assert first[0].digest == second[0].digest


# Somebody else commits before the read-back.


def test_fenced_when_another_took_over_and_ours_had_not_landed(world: World, state: Any) -> None:
    other = world.another()
    world.script(meanwhile(lost, lambda: other.save({"n": "other's"})))
    with pytest.raises(FencedError):
        world.us.save(state)
    assert world.laws().seq == 2
    with pytest.raises(FencedError):
        world.us.save({"n": 3})
    assert world.laws().seq == 2


@pytest.mark.parametrize("fate", [unanswered, echoed])
def test_success_when_ours_had_landed_before_another_took_over(world: World, state: Any, fate: Act) -> None:
    """It is in the history that the other goes on from, so calling it lost would make the agent redo it."""
    other = world.another()
    world.script(meanwhile(fate, lambda: other.save({"n": "other's"})))
    assert world.us.save(state).seq == 2
    assert world.laws().seq == 3
    with pytest.raises(FencedError):
        world.us.save({"n": 3})
    assert world.laws().seq == 3


def test_unknown_when_so_much_was_committed_since_that_nobody_can_tell(world: World, state: Any) -> None:
    def much() -> None:
        other = world.another()
        for n in range(RECENT_COMMITS):
            other.save({"other's": n})

    world.script(meanwhile(unanswered, much))
    with pytest.raises(OutcomeUnknownError):
        world.us.save(state)
    world.laws()


# The read-back fails.


@pytest.mark.parametrize("fate", [unanswered, echoed, lost])
@pytest.mark.parametrize("unreadable", [PermissionDeniedError("no"), AmbiguousError("no answer")])
def test_an_unreadable_read_back_is_unknown_and_the_next_save_goes_on(
    world: World, state: Any, fate: Act, unreadable: Exception
) -> None:
    """The error has the commit id, which is in the history if and only if it happened."""
    world.script(fate)
    world.storage.reads.extend(repeat(failing(unreadable), 100))
    with pytest.raises(OutcomeUnknownError) as caught:
        world.us.save(state)
    world.storage.reads.clear()
    happened = caught.value.commit in [info.commit for info in world.us.run.history()]
    assert happened == (fate is not lost)
    assert world.laws().seq == 1 + happened
    assert caught.value.commit
    assert caught.value.facts["run"] == RUN
    assert world.us.save({"n": 3}).seq == 2 + happened
    assert world.laws().seq == 2 + happened


@pytest.mark.parametrize("fate", [unanswered, lost])
def test_after_an_unknown_outcome_the_same_state_may_be_tried_again(world: World, fate: Act) -> None:
    """`expect` refuses a stranger's checkpoint, not one's own that landed after all."""
    world.script(fate)
    world.storage.reads.extend(repeat(failing(PermissionDeniedError("no")), 100))
    with pytest.raises(OutcomeUnknownError):
        world.us.save(SMALL, expect=1)
    world.storage.reads.clear()
    assert world.us.save(SMALL, expect=1).seq == 2 + (fate is unanswered)
    world.laws()


def test_a_request_that_lands_after_its_save_gave_up_is_counted_once(world: World, state: Any) -> None:
    """It lands before the next save's read, or just before its write, which then has to go on top."""
    late: list[Callable[[], Any]] = []

    async def delayed(go: Any) -> Any:
        late.append(go)
        raise AmbiguousError("still under way")

    async def overtaken(go: Any) -> Any:
        await late.pop()()
        return await go()

    world.script(delayed)
    world.storage.reads.extend(repeat(failing(PermissionDeniedError("no")), 100))
    with pytest.raises(OutcomeUnknownError):
        world.us.save(state)
    world.storage.reads.clear()
    world.script(overtaken)
    assert world.us.save({"n": 3}).seq == 3
    assert world.laws().seq == 3


# It never works.


def test_what_never_gets_an_answer_is_given_up_at_the_deadline(world: World, state: Any) -> None:
    world.script(*repeat(lost, 1000))
    started = world.time.seconds
    with pytest.raises(OutcomeUnknownError):
        world.us.save(state)
    assert TIMEOUT / 2 < world.time.seconds - started <= TIMEOUT
    assert len(world.storage.bodies) > 3
    world.storage.writes.clear()
    assert world.us.save({"n": 3}).seq == 2
    assert world.laws().seq == 2


def test_a_store_that_is_busy_for_too_long_leaves_a_doubt(world: World, state: Any) -> None:
    """A 503 may come from a gateway whose store has done it; the next save looks, and goes on."""
    world.script(*repeat(failing(ThrottledError("slow down")), 1000))
    with pytest.raises(OutcomeUnknownError) as caught:
        world.us.save(state)
    assert isinstance(caught.value.__cause__, ThrottledError)
    world.storage.writes.clear()
    assert world.us.save({"n": 3}).seq == 2
    assert world.laws().seq == 2


@pytest.mark.parametrize("before", [[], [lost]])
def test_a_refusal_is_only_believed_of_a_request_that_was_not_in_doubt(
    world: World, state: Any, before: list[Act]
) -> None:
    """A right that is taken away in the midst says nothing of the request before it, which may still land."""
    world.script(*before, failing(PermissionDeniedError("no right")))
    with pytest.raises(OutcomeUnknownError if before else PermissionDeniedError):
        world.us.save(state)
    assert world.us.save({"n": 3}).seq == 2
    assert world.laws().seq == 2


@pytest.mark.parametrize(("tries", "error"), [(1, None), (1000, StorageError)])
def test_nothing_is_committed_before_its_object_exists(
    world: World, tries: int, error: type[Exception] | None
) -> None:
    world.storage.puts.extend(repeat(lost, tries))
    if error is None:
        assert world.us.save(LARGE).seq == 2
    else:
        with pytest.raises(error):
            world.us.save(LARGE)
        assert not world.storage.bodies
    world.storage.puts.clear()
    world.us.save({"n": 3})
    world.laws()
