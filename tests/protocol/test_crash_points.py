"""A crash, or a request that fails, at every single storage call of an agent's life.

The life has every public operation in it: becoming the writer, the first save
with its probe, saves that ride and saves that don't, tags, expiry, loading and
closing. After each crash the laws hold, and an agent that starts again takes
exactly the steps that are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from cloudckpt import objects, sweep
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol import scripted
from tests.protocol.agent import KEEP_LAST, RUN, STEPS, run_agent, state_of

aside = scripted.aside

_names = itertools.count()


@pytest.fixture(params=["long", "shortly"])
def riding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "shortly":
        monkeypatch.setattr(objects, "RIDE_BYTES", 0)
        monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)


class World:
    """One store in memory, and what its clients were told."""

    def __init__(self) -> None:
        self.inner = MemoryStorage(f"crash-{next(_names)}")
        self.ledger = Ledger(keep_last=KEEP_LAST)

    def live(self, plan: Plan) -> FaultyStorage:
        """Let an agent run with faults, as far as it comes."""
        storage = FaultyStorage(self.inner, plan)
        store = Store(lambda: storage, keep_last=KEEP_LAST)
        try:
            run_agent(store, self.ledger)
        except SimulatedCrash:
            assert storage.crashed
        finally:
            store._core.closed = True  # or it would be closed, with storage calls, at exit
        return storage

    def check(self) -> int:
        manifest = by_hand(check_laws(self.inner, RUN, self.ledger))
        return manifest.seq if manifest else 0


def each_fault(*effects: Effect) -> Iterator[tuple[World, Plan]]:
    """Yield a new world for each call of a life and each effect; its order of calls is the clean life's."""
    calls = World().live(Plan()).calls
    assert {call.op for call in calls} >= {"read", "create", "replace", "put", "delete"}
    for plan in every_fault(len(calls), effects):
        try:
            yield World(), plan
        except GeneratorExit:
            print(f"{plan.faults[0]} = {calls[plan.faults[0].call]}")  # pytest shows it when the test fails
            raise


@pytest.mark.usefixtures("aside", "riding")
def test_after_a_crash_at_any_call_the_next_process_goes_on() -> None:
    crashes = 0
    for world, plan in each_fault(Effect.CRASH_BEFORE, Effect.CRASH_AFTER):
        crashes += world.live(plan).crashed  # not after a call that is refused: the probe makes some
        landed = world.check()
        acknowledged = len(world.ledger.saved)
        assert acknowledged <= landed <= acknowledged + 1, (
            "more than a step was lost, or one came from nowhere"
        )
        world.live(Plan())
        assert world.check() == STEPS, "a step was taken twice, or left out"
        assert Store(lambda world=world: world.inner).run(RUN).load() == state_of(STEPS)
    assert crashes > 40


@pytest.mark.usefixtures("aside", "riding")
def test_a_request_or_an_answer_that_is_lost_at_any_call_changes_nothing() -> None:
    """The agent does not even notice, and no step is taken twice."""
    for world, plan in each_fault(Effect.LOST_REQUEST, Effect.LOST_ANSWER):
        world.live(plan)
        assert world.check() == len(world.ledger.saved) == STEPS
