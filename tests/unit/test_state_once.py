"""The ready-made state's tools, called once: after a crash anywhere, side by side, and by whom not."""

from __future__ import annotations

import asyncio
import gc
import itertools
import pickle
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cloudckpt import Checkpoint, held
from cloudckpt.acting import Happened, idempotency_key
from cloudckpt.errors import FencedError, InFlightError, InvalidInputError
from cloudckpt.replies import Call
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, FaultyStorage, Plan, SimulatedCrash, every_fault

RUN = "nightly/42"
_names = itertools.count()


class World:
    """A store, a model that never says the same twice, and what its tools did."""

    def __init__(self) -> None:
        self.inner = MemoryStorage(f"state-once-{next(_names)}")
        self.ids = itertools.count()
        self.done: list[str] = []
        self.begun: list[str] = []

    def open(self, storage: Any = None) -> Store:
        return Store(lambda: storage or self.inner, timeout=1)

    def reply(self, *ids: Any) -> dict[str, Any]:
        return {"content": "", "tool_calls": [{"id": one, "name": "pay", "arguments": "{}"} for one in ids]}

    def answer(self, turn: int) -> dict[str, Any]:
        """What the model says: ids of calls are new every time it is asked, as a real one's are."""
        if turn == 2:
            return {"content": "all is paid"}
        number = next(self.ids)
        return self.reply(f"turn{turn}-a-{number}", f"turn{turn}-b-{number}")

    def pay(self, call: Call) -> str:
        self.done.append(str(call.id))
        return f"paid by {call.id}"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(world: World) -> Store:
    return world.open()


def begun(store: Store) -> Checkpoint:
    return Checkpoint.load_or_new(RUN, "pay them", store=store)


def agent(world: World, store: Store) -> Checkpoint:
    """The loop of docs/actions.md."""
    state = begun(store)
    while not state.done:
        if not state.pending:
            state.apply(world.answer(state.step))
        for call in state.pending:
            state.once(call.id, world.pay, call, verify=lambda found: _seen(world, found.key))
        state.step += 1
        state.save(RUN, store=store)
    return state


def _seen(world: World, key: str) -> Happened | None:
    call = key.removeprefix("call:")
    return Happened(f"paid by {call}") if call in world.done else None


def test_an_agent_pays_once_for_each_call(world: World, store: Store) -> None:
    state = agent(world, store)
    assert world.done == ["turn0-a-0", "turn0-b-0", "turn1-a-1", "turn1-b-1"]
    assert state.completed == {one: f"paid by {one}" for one in world.done}
    assert agent(world, world.open()) == state
    assert len(world.done) == 4


def test_an_agent_that_dies_at_any_request_pays_once_for_each_call() -> None:
    """A model that is asked again makes another call: so a reply must be saved before its calls are begun."""

    def attempt(world: World, plan: Plan) -> FaultyStorage:
        faulty = FaultyStorage(world.inner, plan)
        broken = world.open(faulty)
        try:
            agent(world, broken)
        except SimulatedCrash:
            assert faulty.crashed
        finally:
            broken._core.closed = True
        return faulty

    calls = len(attempt(World(), Plan()).calls)
    assert calls > 12
    for plan in every_fault(calls, [Effect.CRASH_BEFORE, Effect.CRASH_AFTER, Effect.LOST_ANSWER]):
        world = World()
        try:
            attempt(world, plan)
            state = agent(world, world.open())
            paid = [one.rpartition("-")[0] for one in world.done]
            assert paid == ["turn0-a", "turn0-b", "turn1-a", "turn1-b"]
            assert list(state.completed) == world.done
            assert state.is_consistent()
        except BaseException as error:
            error.add_note(f"{plan=} {world.done=}")
            raise


def test_the_reply_is_saved_before_a_tool_is_called_and_once_for_all_its_calls(
    world: World, store: Store
) -> None:
    state = begun(store)
    state.apply(world.reply("a", "b"))

    def look(call: Call) -> list[Any]:
        there = store.run(RUN).load(Checkpoint)
        assert there is not None
        return [one.id for one in there.pending]

    assert [state.once(call.id, look, call) for call in state.pending] == [["a", "b"], ["a", "b"]]
    assert [one.seq for one in store.run(RUN).history()] == [1]


def test_a_tool_that_was_in_flight_is_handled_by_the_policy(world: World, store: Store) -> None:
    state = begun(store)
    state.apply(world.reply("a"))
    keys: list[str] = []

    def dies(call: Call, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) < 2:
            raise ConnectionError
        return "paid"

    with pytest.raises(ConnectionError):
        state.once("a", dies, state.pending[0])
    resumed = begun(world.open())
    assert [call.id for call in resumed.pending] == ["a"]
    with pytest.raises(InFlightError):
        resumed.once("a", dies, resumed.pending[0])
    assert resumed.once("a", dies, resumed.pending[0], policy="retry") == "paid"
    assert keys == [idempotency_key(RUN, "call:a")] * 2
    assert resumed.completed == {"a": "paid"}
    assert resumed.messages[-1] == {"role": "tool", "tool_call_id": "a", "content": "paid"}


def test_a_result_that_was_not_saved_in_the_state_comes_from_the_ledger(world: World, store: Store) -> None:
    state = begun(store)
    state.apply(world.reply("a"))
    state.once("a", world.pay, state.pending[0])
    resumed = begun(world.open())
    assert resumed.completed == {}
    assert resumed.once("a", world.pay, resumed.pending[0]) == "paid by a"
    assert resumed.completed == {"a": "paid by a"}
    assert world.done == ["a"]
    assert resumed.once("a", world.pay, resumed.pending) == "paid by a", (
        "no other arguments are looked at any more"
    )


def test_a_number_and_its_digits_are_two_calls(world: World, store: Store) -> None:
    state = begun(store)
    state.apply(world.reply("7", 7))
    assert [state.once(call.id, world.pay, call) for call in state.pending] == ["paid by 7", "paid by 7"]
    assert world.done == ["7", "7"]


def test_a_state_must_know_its_run(world: World, store: Store) -> None:
    state = Checkpoint.new("task")
    state.apply(world.reply("a"))
    with pytest.raises(InvalidInputError, match=r"load_or_new.*or save it"):
        state.once("a", world.pay, state.pending[0])
    assert world.done == []
    state.save(RUN, store=store)
    assert state.once("a", world.pay, state.pending[0]) == "paid by a"


def test_a_call_that_nobody_made_is_not_run(world: World, store: Store) -> None:
    with pytest.raises(InvalidInputError, match="no reply made this call"):
        begun(store).once("a", world.pay, None)
    with pytest.raises(InvalidInputError, match="no reply made this call"):
        asyncio.run(begun(store).aonce("a", world.pay, None))
    assert world.done == []
    assert store.run(RUN).load() is None


def test_an_older_load_runs_no_tool(world: World, store: Store) -> None:
    state = begun(store)
    state.apply(world.reply("a"))
    state.save(RUN, store=store)
    begun(store)
    with pytest.raises(FencedError):
        state.once("a", world.pay, state.pending[0])
    here = begun(store)
    begun(world.open())  # as in another process
    with pytest.raises(FencedError):
        here.once("a", world.pay, here.pending[0])
    assert world.done == []


def test_a_state_of_another_process_is_saved_there_first(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store's credentials do not travel with it."""
    state = begun(store)
    state.apply(world.reply("a", "b"))
    state.once("a", world.pay, state.pending[0])
    sent = pickle.dumps(state)
    monkeypatch.setattr("cloudckpt.saved.process", held.Process())
    other = pickle.loads(sent)
    with pytest.raises(InvalidInputError, match="save it with store= first"):
        other.once("b", world.pay, other.pending[0])
    other.save(RUN, store=world.open())
    assert other.once("b", world.pay, other.pending[0]) == "paid by b"
    assert world.done == ["a", "b"]


def test_a_new_state_that_knows_its_run_begins_it_and_another_goes_on(world: World, store: Store) -> None:
    state = Checkpoint.load_or_new(RUN, "task", store=store, notes=["x"])
    assert (state.notes, state.save(RUN, store=store).seq) == (["x"], 1)
    again = Checkpoint.load_or_new(RUN, "another task", store=store, notes=["y"])
    assert (again, again.save(RUN, store=store).seq) == (state, 2)

    async def work() -> None:
        new = await Checkpoint.aload_or_new("other", "task", store=store)
        new.apply(world.reply("a"))
        assert await new.aonce("a", world.pay, new.pending[0]) == "paid by a"
        assert await Checkpoint.aload_or_new("other", "-", store=store) != new
        assert (await Checkpoint.aload_or_new("other", "-", store=store)).task == "task"

    asyncio.run(work())


# ---- side by side


def together(state: Checkpoint, work: Callable[[Call], Any], world: World) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(state.aonce(call.id, work, call) for call in state.pending))

    return asyncio.run(all_of_them())


def test_calls_side_by_side_share_the_save_of_their_reply(world: World, store: Store) -> None:
    state = begun(store)
    state.apply(world.reply(*(f"c{n}" for n in range(8))))
    meeting = [0, asyncio.Event()]

    async def pay(call: Call) -> str:
        meeting[0] += 1
        if meeting[0] == 8:
            meeting[1].set()
        await asyncio.wait_for(meeting[1].wait(), 30)
        return world.pay(call)

    assert together(state, pay, world) == [f"paid by c{n}" for n in range(8)]
    assert sorted(world.done) == [f"c{n}" for n in range(8)]
    assert [one.seq for one in store.run(RUN).history()] == [1]
    assert state.is_consistent()
    state.save(RUN, store=store)
    assert begun(world.open()) == state


def test_calls_in_threads_share_it_too(world: World, store: Store) -> None:
    state = begun(store)
    state.apply(world.reply(*(f"c{n}" for n in range(4))))
    meeting = threading.Barrier(4, timeout=30)

    def pay(call: Call) -> str:
        meeting.wait()
        return world.pay(call)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda call: state.once(call.id, pay, call), state.pending))
    assert sorted(world.done) == ["c0", "c1", "c2", "c3"]
    assert [one.seq for one in store.run(RUN).history()] == [1]


def test_who_waits_for_a_save_that_fails_saves_itself(world: World) -> None:
    """The first save is lost with its answer; all calls are made all the same, or none."""
    calls = itertools.count()

    class Failing(MemoryStorage):
        async def replace(self, key: str, data: bytes, token: Any) -> Any:
            if b'"seq":1' in data and next(calls) == 0:
                raise ConnectionError("a defect of the engine")
            return await super().replace(key, data, token)

    storage = Failing(f"state-once-{next(_names)}")
    state = begun(Store(lambda: storage, timeout=1))
    state.apply(world.reply("a", "b"))

    async def both() -> list[Any]:
        work = (state.aonce(call.id, world.pay, call) for call in state.pending)
        return await asyncio.gather(*work, return_exceptions=True)

    first, second = asyncio.run(both())
    assert isinstance(first, ConnectionError)
    assert second == "paid by b"
    assert state.once("a", world.pay, state.pending[0]) == "paid by a"


# ---- a save that is given up before it begins


def test_a_save_that_is_cancelled_before_it_begins_leaves_nothing(world: World, store: Store) -> None:
    """Else the interpreter complains of a coroutine that nobody awaited, far from here."""
    state = Checkpoint.new("task")

    async def work() -> None:
        saving = asyncio.ensure_future(state.asave(RUN, store=store))
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(work())
        gc.collect()
    assert caught == []
    assert not by_hand(world.inner.list("")).rows
    assert asyncio.run(_awaited(state.asave(RUN, store=store))).seq == 1


async def _awaited(work: Any) -> Any:
    return await work
