"""Actions, and what becomes of them when others write to the run in the middle of one."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest

from cloudckpt import keys, ledger
from cloudckpt.acting import Happened, InFlight
from cloudckpt.errors import (
    FencedError,
    InFlightError,
    InvalidInputError,
    PermissionDeniedError,
)
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol import charging
from tests.protocol.charging import RUN, Shop
from tests.protocol.gated import Gated
from tests.protocol.scripted import ScriptedStorage, failing, meanwhile, unanswered

shop = charging.shop


def test_who_was_fenced_before_its_intent_was_acknowledged_does_nothing() -> None:
    """Its answer was lost; before it was read back, another one looked, and found that nothing happened."""
    storage = ScriptedStorage()
    shop = Shop()
    run = shop.open(storage).run(RUN)
    run.save({"n": 1})
    other = Store(storage.again).run(RUN)
    storage.writes.append(meanwhile(unanswered, other.acquire))
    with pytest.raises(FencedError):
        run.once("pay-7", shop.charge, 7)
    assert shop.charged == []
    other.once("pay-7", shop.charge, 7, verify=lambda _: None)
    assert len(shop.charged) == 1


@pytest.mark.parametrize("again", ["sync", "async"])
def test_a_result_is_kept_whatever_became_of_a_save_behind_it(again: str) -> None:
    """The next call told of another save's failure, in the place of noting what had happened."""
    storage = ScriptedStorage()
    shop = Shop()
    run = shop.open(storage).run(RUN, cadence="background")
    run.acquire()

    def tool(idempotency_key: str) -> dict[str, int]:
        storage.writes.append(failing(PermissionDeniedError("not now")))
        with pytest.raises(PermissionDeniedError):
            run.save({"n": 1}).wait()  # type: ignore[union-attr]
        storage.writes.append(failing(PermissionDeniedError("not now")))
        pending = run.save({"n": 2})
        while not pending.done:  # type: ignore[union-attr]
            run._saver.want(2)  # type: ignore[union-attr]
        return shop.charge(7, idempotency_key)

    if again == "sync":
        assert run.once("pay-7", tool) == {"paid": 7}
    else:
        assert asyncio.run(run.aonce("pay-7", tool)) == {"paid": 7}
    with pytest.raises(PermissionDeniedError, match="not now"):
        run.flush()
    with shop.open(storage).run(RUN) as resumed:
        assert resumed.in_flight() == []
        assert resumed.once("pay-7", tool) == {"paid": 7}
    assert len(shop.charged) == 1


@pytest.mark.parametrize("nonsense", [{"paid": 7}, True, Happened, "x"])
def test_nothing_is_done_on_the_strength_of_nonsense(shop: Shop, nonsense: Any) -> None:
    """A `verify` that returns the bare result had the payment made a second time."""
    half_done(shop)
    with shop.run() as run:
        with pytest.raises(InvalidInputError, match="Happened"):
            run.once("pay-7", shop.charge, 7, verify=lambda _: nonsense)

        async def look(_: InFlight) -> Any:
            return nonsense

        with pytest.raises(InvalidInputError, match="Happened"):
            asyncio.run(run.aonce("pay-7", shop.charge, 7, verify=look))
        with pytest.raises(InFlightError):
            run.once("pay-7", shop.charge, 7)
    assert len(shop.charged) == 1


def half_done(shop: Shop) -> None:
    def half(order: int, idempotency_key: str) -> None:
        shop.charge(order, idempotency_key)
        raise ConnectionError

    with shop.run() as run, pytest.raises(ConnectionError):
        run.once("pay-7", half, 7)


def test_no_page_of_a_long_ledger_is_read_twice_by_a_process(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branches were read again, all of them, with every page that was new: ever more for one action."""
    monkeypatch.setattr(ledger, "WINDOW_BYTES", 1200)
    monkeypatch.setattr(ledger, "WINDOW_LEFT", 300)
    storage = ScriptedStorage()
    with shop.open(storage).run(RUN) as run:
        for n in range(300):
            run.once(f"k{n}", lambda: None)
    read = Counter(key for op, key in storage.calls if op == "read" and key.startswith(keys.OBJECTS))
    assert max(page.level for page in by_hand(run.access.base()).manifest.ledger) == 1
    assert len(read) > 60
    assert set(read.values()) == {1}


def test_a_result_comes_back_as_what_the_call_gives_when_it_is_awaited(shop: Shop) -> None:
    """A plain function that returns an awaitable says so, and its result was refused after a resume."""

    async def later() -> tuple[int, str]:
        return 5, "five"

    def tool() -> Awaitable[tuple[int, str]]:
        return later()

    for _ in range(2):
        with shop.run() as run:
            assert asyncio.run(run.aonce("k", tool)) == (5, "five")


def test_a_result_is_kept_when_another_tasks_error_has_left_the_block(shop: Shop) -> None:
    """`gather` does not end the others: what they did was in flight, though it was known what came of it."""

    async def agent() -> None:
        left = asyncio.Event()

        async def slow(order: int, idempotency_key: str) -> dict[str, int]:
            await left.wait()
            return shop.charge(order, idempotency_key)

        async def wrong() -> None:
            raise ConnectionError

        async with shop.run() as run:
            payment = asyncio.ensure_future(run.aonce("pay-7", slow, 7))
            while not await run.ain_flight():
                pass
            with pytest.raises(ConnectionError):
                await asyncio.gather(payment, run.aonce("look", wrong))
        left.set()
        assert await payment == {"paid": 7}

    asyncio.run(agent())
    with shop.run() as run:
        assert run.once("pay-7", shop.charge, 7) == {"paid": 7}
    assert len(shop.charged) == 1


def test_a_result_of_a_run_that_another_one_took_over_meanwhile_is_refused(shop: Shop) -> None:
    run = shop.run()

    def tool() -> int:
        run.close()
        shop.run().acquire()
        return 5

    run.acquire()
    with pytest.raises(FencedError):
        run.once("k", tool)
    assert [one.key for one in shop.run().in_flight()] == ["k"]


@pytest.mark.parametrize("again", ["sync", "async"])
def test_a_result_is_never_ahead_of_a_save_that_its_action_made(again: str, shop: Shop) -> None:
    with shop.open().run(RUN, cadence="background") as run:

        def tool() -> int:
            run.save({"n": 1})
            return 5

        assert (run.once("k", tool) if again == "sync" else asyncio.run(run.aonce("k", tool))) == 5
        assert run.pending == 0
        assert shop.run().load() == {"n": 1}


@pytest.mark.parametrize("blocking", [True, False])
def test_a_result_is_kept_when_its_caller_is_cancelled_as_it_is_recorded(blocking: bool) -> None:
    """A time-out that struck there took back the note of what had happened, where engines can be stopped."""
    storage, done = Gated(blocking=blocking), threading.Event()

    async def agent() -> None:
        store = Store(lambda: storage, probed=True)
        async with store, store.run(RUN) as run:

            def tool() -> int:
                storage.shut()
                done.set()
                return 5

            call = asyncio.ensure_future(run.aonce("k", tool))
            await asyncio.to_thread(done.wait, 20)
            await asyncio.to_thread(storage.arrived.wait, 20)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            storage.open()

    asyncio.run(agent())
    again = Store(lambda: storage.inner).run(RUN)
    assert again.once("k", lambda: 6) == 5
