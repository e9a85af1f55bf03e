"""Pauses: a question is committed with the state, answered once and by anybody, and expires."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from cloudckpt.errors import ConflictError, InvalidInputError, NotFoundError, WaitingError
from cloudckpt.run import Run
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol import charging
from tests.protocol.charging import RUN, Shop
from tests.protocol.scripted import OwnTime
from tests.protocol.windows import small_ledger

shop = charging.shop


def test_a_question_is_committed_with_the_state_and_answered_anywhere(shop: Shop) -> None:
    with shop.run() as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?", state={"step": 4}, schema=["yes", "no"])
    assert shop.run().load() == {"step": 4}
    (question,) = shop.run().questions()
    assert (question.prompt, question.token, question.schema) == (
        "Ship it?",
        caught.value.token,
        {"enum": ["yes", "no"]},
    )
    assert by_hand(check_laws(shop.inner, RUN, _any())).status == "waiting"
    with pytest.raises(InvalidInputError, match="allowed"):
        shop.run().answer(question.token, "perhaps")
    shop.run().answer(question.token, "yes", by="ann")
    with shop.run() as run:
        assert run.wait("Ship it?", schema=["yes", "no"]) == "yes"
        run.save({"step": 5})
    assert by_hand(check_laws(shop.inner, RUN, _any())).status == "running"


def _any() -> Ledger:
    found = Ledger()
    for step in range(9):
        found.ask({"step": step})
    return found


def test_an_answer_counts_once_and_the_second_is_told_whose_was_first(shop: Shop) -> None:
    with shop.run() as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?")
    token = caught.value.token
    assert token
    shop.run().answer(token, 1, by="ann")
    with pytest.raises(ConflictError, match="already") as second:
        shop.run().answer(token, 2, by="ben")
    assert (second.value.kind, second.value.facts["by"]) == ("answered", "ann")
    with pytest.raises(NotFoundError):
        shop.run().answer("no-such-token", 2)
    with shop.run() as run:
        assert run.wait("Ship it?") == 1


def test_the_second_answer_is_told_whose_was_first_also_when_that_was_long_ago(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_ledger(monkeypatch)
    with shop.run() as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?")
    token = caught.value.token
    assert token
    shop.run().answer(token, 1, by="ann")
    with shop.run() as run:
        for n in range(40):
            run.once(f"k{n}", lambda: None)
        assert "Ship it?" not in [one.prompt for one in run.actions(limit=5)]
    with pytest.raises(ConflictError, match="already") as second:
        shop.run().answer(token, 2, by="ben")
    assert (second.value.kind, second.value.facts["by"]) == ("answered", "ann")
    with pytest.raises(NotFoundError):
        shop.run().answer("no-such-token", 2)


def test_two_who_answer_at_once_are_not_both_told_yes(shop: Shop) -> None:
    with shop.run() as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?")
    told: list[object] = []
    start = threading.Barrier(8, timeout=20)

    def answer(n: int) -> None:
        run = shop.run()
        start.wait()
        try:
            run.answer(str(caught.value.token), n)
            told.append(n)
        except ConflictError as error:
            told.append(error.kind)

    threads = [threading.Thread(target=answer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (won,) = [one for one in told if one != "answered"]
    with shop.run() as run:
        assert run.wait("Ship it?") == won


def test_approving_one_does_not_do_another_again(shop: Shop) -> None:
    """langgraph#7780: an approval re-ran the node with all its tools."""

    def step(run: Run) -> None:
        run.once("pay-1", shop.charge, 1)
        if run.wait("And the second?", schema=bool):
            run.once("pay-2", shop.charge, 2)

    with shop.run() as run, pytest.raises(WaitingError) as caught:
        step(run)
    shop.run().answer(str(caught.value.token), True)
    with shop.run() as run:
        step(run)
        step(run)
    assert [order for order, _ in shop.charged] == [1, 2]


def test_a_question_expires_by_the_stores_clock(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by that of the process, which may be years off."""
    odd = OwnTime()
    odd.seconds = 1e9
    store = Store(lambda: shop.inner, clock=odd)
    with store.run(RUN) as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?", expires=timedelta(hours=1))
    assert caught.value.kind is None
    with store.run(RUN) as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?", expires=timedelta(hours=1))
    assert caught.value.kind is None
    late = shop.run().questions()[0].expires
    assert late

    async def tomorrow(_: object) -> Any:
        return late + timedelta(days=1)

    monkeypatch.setattr("cloudckpt.questions.store_time", tomorrow)
    with shop.run() as run, pytest.raises(WaitingError, match="expired") as caught:
        run.wait("Ship it?", expires=timedelta(hours=1))
    assert caught.value.kind == "expired"
    with pytest.raises(InvalidInputError, match="expired"):
        shop.run().answer(str(caught.value.token), True)


def test_polling_sees_the_answer(shop: Shop) -> None:
    def answer() -> None:
        while not (found := questions()):
            pass
        shop.run().answer(found[0].token, 42)

    def questions() -> list[Any]:
        with suppress(NotFoundError):
            return shop.run().questions()
        return []

    thread = threading.Thread(target=answer)
    thread.start()
    with shop.run() as run:
        assert run.wait("How many?", schema=int, poll=0.01) == 42
    thread.join(20)


def test_a_run_waits_for_another(shop: Shop) -> None:
    with shop.run() as run, pytest.raises(WaitingError, match="waits"):
        run.wait_for("child")
    with shop.store.run("child") as child:
        child.save({"step": 1})
        with shop.run() as run, pytest.raises(WaitingError):
            run.wait_for("child")
        child.finish({"result": 5})
    with shop.run() as run:
        assert run.wait_for("child") == {"result": 5}
        run.save({"step": 1})
    assert by_hand(check_laws(shop.inner, RUN, _any())).status == "running"


def test_a_run_that_failed_is_told_to_who_waits_for_it(shop: Shop) -> None:
    with shop.store.run("child") as child:
        child.finish({"why": "no money"}, failed=True)
    with shop.run() as run, pytest.raises(WaitingError, match="failed") as caught:
        run.wait_for("child")
    assert caught.value.kind == "failed"


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (bool, True, 1),
        (int, 3, True),
        (float, 3, "3"),
        (str, "a", b"a"),
        ([1, "a"], "a", True),
        ({"type": "object", "required": ["n"]}, {"n": 1}, {}),
    ],
)
def test_an_answer_is_as_its_schema_says(shop: Shop, schema: Any, good: object, bad: object) -> None:
    with shop.run() as run, pytest.raises(WaitingError) as caught:
        run.wait("What?", schema=schema)
    token = str(caught.value.token)
    with pytest.raises(InvalidInputError):
        shop.run().answer(token, bad)
    shop.run().answer(token, good)


@pytest.mark.parametrize("schema", [5, "yes", [], {"type": "nonsense"}, complex])
def test_an_unusable_schema_is_refused_before_anything_is_asked(shop: Shop, schema: Any) -> None:
    with shop.run() as run, pytest.raises(InvalidInputError):
        run.wait("What?", schema=schema)
    assert shop.run().questions() == []


def test_each_call_has_an_async_twin(shop: Shop) -> None:
    async def agent() -> Any:
        async with shop.run() as run:
            try:
                return await run.await_answer("Ship it?", state={"step": 1})
            except WaitingError as waiting:
                await shop.run().aanswer(str(waiting.token), "yes")
            return await run.await_answer("Ship it?", poll=0.01)

    assert asyncio.run(agent()) == "yes"
