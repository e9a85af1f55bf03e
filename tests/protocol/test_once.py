"""Actions that are done once: a fault at every storage call, and who may do what after it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from cloudckpt.acting import Happened, InFlight, idempotency_key
from cloudckpt.errors import FencedError, InFlightError, InvalidInputError, SerializationError, WaitingError
from cloudckpt.run import Run
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol import charging
from tests.protocol.charging import RUN, Shop
from tests.protocol.windows import small_ledger

shop = charging.shop


@dataclass
class Order:
    number: int
    total: float


def test_an_action_is_done_once_in_the_life_of_a_run(shop: Shop) -> None:
    for _ in range(3):
        with shop.run() as run:
            assert run.once("pay-7", shop.charge, 7) == {"paid": 7}
    assert shop.charged == [(7, idempotency_key(RUN, "pay-7"))]


def test_a_result_comes_back_as_what_the_function_says_it_returns(shop: Shop) -> None:
    def order(number: int) -> Order:
        return Order(number, 9.5)

    with shop.run() as run:
        first = run.once("order", order, 3)
    with shop.run() as run:
        assert run.once("order", order, 3) == first == Order(3, 9.5)


def test_the_same_key_with_other_arguments_is_an_error(shop: Shop) -> None:
    with shop.run() as run:
        run.once("pay", shop.charge, 1)
        for attempt in (
            lambda: run.once("pay", shop.charge, 2),
            lambda: run.once("pay", shop.charge, order=1),
        ):
            with pytest.raises(InvalidInputError, match="other arguments") as caught:
                attempt()
            assert caught.value.kind == "other-arguments"
    assert len(shop.charged) == 1


def test_arguments_and_results_that_cant_be_kept_are_told_before_and_after(shop: Shop) -> None:
    with shop.run() as run:
        with pytest.raises(SerializationError, match="arguments"):
            run.once("a", shop.charge, threading.Lock())
        assert not shop.charged
        with pytest.raises(SerializationError, match="result of 'b', which was done"):
            run.once("b", threading.Lock)
        assert [one.key for one in run.in_flight()] == ["b"], (
            "it was done, and nobody can say with what result"
        )


@pytest.mark.parametrize("bad", ["", "x" * 600, 5, None])
def test_an_unusable_key_is_refused(shop: Shop, bad: Any) -> None:
    with shop.run() as run, pytest.raises(InvalidInputError, match="key"):
        run.once(bad, shop.charge, 1)


def died(shop: Shop) -> None:
    """Begin an action and die in it, having charged or not."""

    def half(order: int, idempotency_key: str) -> None:
        shop.charge(order, idempotency_key)
        raise SimulatedCrash

    with suppress(SimulatedCrash), shop.run() as run:
        run.once("pay-7", half, 7)


def test_one_in_flight_at_a_crash_is_not_done_again_by_default(shop: Shop) -> None:
    died(shop)
    with shop.run() as run:
        (found,) = run.in_flight()
        assert (found.key, found.tries) == ("pay-7", 1)
        with pytest.raises(InFlightError, match="may have happened"):
            run.once("pay-7", shop.charge, 7)
    assert len(shop.charged) == 1


def test_a_retry_has_the_same_idempotency_key(shop: Shop) -> None:
    died(shop)
    with shop.run() as run:
        assert run.once("pay-7", shop.charge, 7, policy="retry") == {"paid": 7}
        assert run.once("pay-7", shop.charge, 7) == {"paid": 7}
    assert len(shop.charged) == 2
    assert len(set(shop.charged)) == 1


@pytest.mark.parametrize("happened", [True, False])
def test_whoever_can_look_decides(shop: Shop, happened: bool) -> None:
    died(shop)
    looked: list[InFlight] = []

    def look(action: InFlight) -> Happened | None:
        looked.append(action)
        return Happened({"paid": 7, "seen": True}) if happened else None

    for _ in range(2):
        with shop.run() as run:
            result = run.once("pay-7", shop.charge, 7, verify=look)
    assert result == ({"paid": 7, "seen": True} if happened else {"paid": 7})
    assert len(shop.charged) == (1 if happened else 2)
    assert [one.idempotency_key for one in looked] == [idempotency_key(RUN, "pay-7")]


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked_whether_it_happened(shop: Shop, answer: bool) -> None:
    died(shop)
    with shop.run() as run, pytest.raises(WaitingError, match="waits") as caught:
        run.once("pay-7", shop.charge, 7, policy="ask")
    assert caught.value.token
    assert "Did it happen?" in shop.run().questions()[0].prompt
    shop.run().answer(caught.value.token, answer)
    for _ in range(2):
        with shop.run() as run:
            result = run.once("pay-7", shop.charge, 7, policy="ask")
    assert result == (None if answer else {"paid": 7}), "a person knows that it happened, not its result"
    assert len(shop.charged) == (1 if answer else 2)


def test_a_zombie_does_nothing(shop: Shop) -> None:
    """The intent is a commit, and a commit needs the run."""
    with shop.run() as zombie:
        zombie.save({"n": 1})
        with shop.run() as run:
            run.save({"n": 2})
            with pytest.raises(FencedError):
                zombie.once("pay-7", shop.charge, 7)
            assert not shop.charged


def test_a_key_is_done_by_one_thread_at_a_time(shop: Shop) -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        leave.wait(20)

    with shop.run() as run:
        thread = threading.Thread(target=run.once, args=("slow", slow))
        thread.start()
        assert inside.wait(20)
        with pytest.raises(InvalidInputError, match="another thread"):
            run.once("slow", slow)
        leave.set()
        thread.join(20)
        assert run.once("slow", slow) is None


def test_parallel_and_nested_actions_each_have_their_own_place(shop: Shop) -> None:
    async def tool(run: Run, n: int) -> int:
        await asyncio.sleep(0)
        inner: int = await run.aonce(f"inner-{n}", lambda: n * 10)
        return inner + 1

    async def agent() -> list[int]:
        async with shop.run() as run:
            return await asyncio.gather(*(run.aonce(f"tool-{n}", tool, run, n) for n in range(9)))

    with pytest.raises(SerializationError):  # a run is no argument that can be compared
        asyncio.run(agent())

    async def better() -> list[int]:
        async with shop.run() as run:
            calls = [run.aonce(f"tool-{n}", lambda n=n: tool(run, n)) for n in range(9)]
            return await asyncio.gather(*calls)

    assert asyncio.run(better()) == asyncio.run(better()) == [n * 10 + 1 for n in range(9)]
    manifest = by_hand(check_laws(shop.inner, RUN, Ledger()))
    assert len({action.number for action in manifest.actions}) == 18


def test_a_step_is_a_function_whose_calls_are_done_once(shop: Shop) -> None:
    for _ in range(2):
        with shop.run() as run:

            @run.step
            def add(a: int, b: int = 1) -> int:
                shop.charged.append((a, "add"))
                return a + b

            @run.step(key="pay-{order}", policy="retry")
            def pay(order: int, note: str = "") -> str:
                shop.charged.append((order, note))
                return f"paid {order}"

            @run.step(key=lambda n: f"later-{n}")
            async def later(n: int) -> int:
                shop.charged.append((n, "later"))
                return n

            assert (add(1), add(1), add(1, b=2), pay(5), asyncio.run(later(8))) == (2, 2, 3, "paid 5", 8)
    assert shop.charged == [(1, "add"), (1, "add"), (5, ""), (8, "later")]


def test_a_coroutine_function_is_for_the_async_call(shop: Shop) -> None:
    async def tool() -> None:
        raise AssertionError

    with shop.run() as run, pytest.raises(InvalidInputError, match="aonce"):
        run.once("a", tool)


def test_a_ledger_of_any_length(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old actions leave the manifest, large results never enter it, and both are found again."""
    small_ledger(monkeypatch)
    large = bytes(range(256)) * 100
    with shop.run() as run:
        assert run.once("large", lambda: large) == large
        for n in range(150):
            run.once(f"k{n}", lambda n=n: n)
        run.save({"n": 1})
    known = Ledger()
    known.ask({"n": 1})
    manifest = by_hand(check_laws(shop.inner, RUN, known))
    assert len(manifest.actions) < 20
    assert sum(page.count for page in manifest.ledger) > 120
    assert shop.store.collect(RUN).removed <= 2
    with shop.run() as run:
        assert run.once("large", lambda: None) == large
        assert [run.once(f"k{n}", lambda: None) for n in range(150)] == list(range(150))
        run.rollback(seq=1)
    with shop.run() as run:
        assert run.once("k3", lambda: None) == 3, "what has happened is not undone"


def test_one_in_flight_stays_in_the_manifest(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come after it: a look at the run shows it without reading its past."""
    small_ledger(monkeypatch)
    died(shop)
    with shop.run() as run:
        for n in range(40):
            run.once(f"k{n}", lambda: None)
        assert [one.key for one in run.in_flight()] == ["pay-7"]
        with pytest.raises(InFlightError):
            run.once("pay-7", shop.charge, 7)


def test_an_action_costs_two_small_commits_and_nothing_else(shop: Shop) -> None:
    storage = FaultyStorage(shop.inner)
    with shop.open(storage).run(RUN) as run:
        run.save({"n": 0})
        storage.calls.clear()
        run.once("pay", shop.charge, 1)
        assert [call.op for call in storage.calls] == ["replace", "replace"]


def agent(shop: Shop, store: Store, policy: Any = "fail") -> None:
    """Three payments, each before its step's save, and a question before the last."""
    with store.run(RUN) as run:
        state = run.load() or {"step": 0, "paid": []}
        while state["step"] < 3:
            order = state["step"]
            if order == 2 and not run.wait("Pay the last one?", schema=bool, poll=None):
                return
            state["paid"] = [*state["paid"], run.once(f"pay-{order}", shop.charge, order, policy=policy)]
            state["step"] += 1
            run.save(state)


def answered(shop: Shop) -> None:
    with suppress(WaitingError):
        agent(shop, shop.open(), policy="retry")
    for question in shop.run().questions():
        shop.run().answer(question.token, True)
    agent(shop, shop.open(), policy="retry")


def test_a_fault_at_each_call_of_an_agent_that_pays_and_asks() -> None:
    """After it, no payment is made twice but with its own idempotency key, and none is left out."""

    def attempt(shop: Shop, plan: Plan) -> FaultyStorage:
        storage = FaultyStorage(shop.inner, plan)
        store = shop.open(storage)
        try:
            with suppress(WaitingError, InFlightError):
                agent(shop, store)
        except SimulatedCrash:
            assert storage.crashed
        finally:
            store._core.closed = True
        return storage

    calls = len(attempt(Shop(), Plan()).calls)
    assert calls > 10
    for plan in every_fault(calls):
        shop = Shop()
        try:
            attempt(shop, plan)
            before = list(shop.charged)
            answered(shop)
            assert shop.run().load() == {"step": 3, "paid": [{"paid": n} for n in range(3)]}
            crash = plan.faults[0].effect in (Effect.CRASH_BEFORE, Effect.CRASH_AFTER)
            assert len(shop.charged) - len(set(shop.charged)) <= crash, "paid twice without a crash in it"
            assert {order for order, _ in shop.charged} == {0, 1, 2}
            assert len(set(shop.charged)) == 3
            assert shop.charged[: len(before)] == before
            by_hand(check_laws(shop.inner, RUN, _of_states(3)))
        except BaseException as error:
            error.add_note(f"{plan=}")
            raise


def _of_states(steps: int) -> Ledger:
    found = Ledger()
    for step in range(1, steps + 1):
        for _ in range(4):
            found.ask({"step": step, "paid": [{"paid": n} for n in range(step)]})
    return found
