"""The wrapper that fails on purpose: a fault that does not happen makes a crash test pass for nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cloudckpt.errors import AmbiguousError
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.driver import Client, Driver, by_hand
from cloudckpt.testing.faults import Call, Effect, Fault, FaultyStorage, Plan, SimulatedCrash, every_fault

STEPS: dict[str, Callable[[Client], object]] = {
    "create": lambda client: client.create("new", b"1"),
    "replace": lambda client: client.replace("old", b"1", client.token),  # type: ignore[attr-defined]
    "put": lambda client: client.put("other", b"1"),
    "delete": lambda client: client.delete("old"),
    "read": lambda client: client.read("old"),
    "list": lambda client: client.keys(""),
}


def build(request: pytest.FixtureRequest, plan: Plan) -> tuple[Client, Client]:
    """Return a client with these faults, and one of the same store without."""
    memory = MemoryStorage(request.node.nodeid)
    clean = Client(Driver(), memory)
    token = clean.create("old", b"0")
    faulty = Client(Driver(), FaultyStorage(memory, plan))
    faulty.token = token  # type: ignore[attr-defined]
    return faulty, clean


def state(clean: Client) -> dict[str, bytes]:
    return {key: clean.value(key) for key in clean.keys("")}


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("effect", Effect)
def test_an_effect_happens_or_not_as_it_says(request: pytest.FixtureRequest, op: str, effect: Effect) -> None:
    faulty, clean = build(request, Plan((Fault(0, effect),)))
    expected, before = build_expected(request, op), state(clean)
    error = SimulatedCrash if effect in (Effect.CRASH_BEFORE, Effect.CRASH_AFTER) else AmbiguousError
    with pytest.raises(error):
        STEPS[op](faulty)
    happened = effect in (Effect.CRASH_AFTER, Effect.LOST_ANSWER)
    assert state(clean) == (expected if happened else before)


def build_expected(request: pytest.FixtureRequest, op: str) -> dict[str, bytes]:
    memory = MemoryStorage(f"{request.node.nodeid} expected")
    client = Client(Driver(), memory)
    client.token = client.create("old", b"0")  # type: ignore[attr-defined]
    STEPS[op](client)
    return state(client)


def test_only_the_chosen_call_fails(request: pytest.FixtureRequest) -> None:
    faulty, _ = build(request, Plan((Fault(1, Effect.LOST_REQUEST), Fault(3, Effect.LOST_ANSWER))))
    assert faulty.value("old") == b"0"
    with pytest.raises(AmbiguousError):
        faulty.create("a", b"1")
    faulty.create("a", b"1")
    with pytest.raises(AmbiguousError):
        faulty.put("b", b"1")
    assert faulty.keys("") == ["a", "b", "old"]


def test_a_crashed_process_does_nothing_more(request: pytest.FixtureRequest) -> None:
    """A `finally` block that cleans up would otherwise hide what a real crash leaves behind."""
    faulty, clean = build(request, Plan((Fault(0, Effect.CRASH_AFTER),)))
    with pytest.raises(SimulatedCrash):
        faulty.create("a", b"1")
    with pytest.raises(SimulatedCrash):
        faulty.delete("a")
    assert clean.keys("") == ["a", "old"]
    assert isinstance(faulty.storage, FaultyStorage)
    assert faulty.storage.crashed


def test_a_call_under_way_at_the_crash_is_never_answered() -> None:
    class Slow(MemoryStorage):
        async def put(self, key: str, data: Any) -> None:
            await super().put(key, data)
            with pytest.raises(SimulatedCrash):
                await faulty.read("other")

    faulty = FaultyStorage(Slow("under way"), Plan((Fault(1, Effect.CRASH_BEFORE),)))
    with pytest.raises(SimulatedCrash):
        by_hand(faulty.put("k", b"1"))


def test_a_crash_passes_every_handler_of_errors() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_calls_are_counted_in_order_with_their_keys(request: pytest.FixtureRequest) -> None:
    faulty, _ = build(request, Plan())
    for step in STEPS.values():
        step(faulty)
    faulty.close()
    assert isinstance(faulty.storage, FaultyStorage)
    assert faulty.storage.calls == [
        Call("create", "new"),
        Call("replace", "old"),
        Call("put", "other"),
        Call("delete", "old"),
        Call("read", "old"),
        Call("list", ""),
    ]


def test_every_fault_of_a_run_is_tried_once() -> None:
    plans = list(every_fault(3))
    assert len(plans) == len(set(plans)) == 3 * len(Effect)
    assert {(call, effect) for call in range(3) for effect in Effect} == {
        (fault.call, fault.effect) for plan in plans for fault in plan.faults
    }
    assert list(every_fault(1, [Effect.LOST_ANSWER])) == [Plan((Fault(0, Effect.LOST_ANSWER),))]
    assert pickle.loads(pickle.dumps(plans)) == plans


def test_driving_by_hand_refuses_what_suspends() -> None:
    """A blocking engine that awaits would hang the sync calls of its users."""

    class Suspends:
        def __await__(self) -> Any:
            yield

    async def work() -> None:
        await Suspends()

    coroutine: Coroutine[Any, Any, None] = work()
    with pytest.raises(AssertionError, match="suspended"):
        by_hand(coroutine)


@pytest.mark.parametrize(
    ("effect", "expected"), [(Effect.CRASH_AFTER, SimulatedCrash), (Effect.LOST_ANSWER, AmbiguousError)]
)
def test_a_refusal_is_an_answer_that_can_be_lost(effect: Effect, expected: type[BaseException]) -> None:
    """Else a crash after a refused write would come out as the refusal, and nothing would be tried."""
    inner = MemoryStorage("faults-of-a-refusal")
    by_hand(inner.put("k", b"there"))
    with pytest.raises(expected):
        by_hand(FaultyStorage(inner, Plan((Fault(0, effect),))).create("k", b"again"))
