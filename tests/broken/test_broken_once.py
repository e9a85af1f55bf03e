"""Wrong variants of actions that are done once and of pauses; each is caught by the test named in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import asking, doing, making, questions
from cloudckpt.commit import RunWriter
from cloudckpt.errors import WaitingError
from cloudckpt.ledger import Begin
from cloudckpt.run import Run
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.broken.caught import is_caught_by as fails
from tests.protocol import test_once as right
from tests.protocol import test_pauses as pauses
from tests.protocol.charging import RUN, Shop
from tests.protocol.scripted import OwnTime

Patch = pytest.MonkeyPatch
NOTES = 8


def is_caught_by(test: Callable[..., None], *arguments: Any) -> bool:
    return fails(test, Shop(), *arguments, also=(ValueError,))


def test_acting_before_the_intent_is_committed(monkeypatch: Patch) -> None:
    async def begun(self: Run, call: Any) -> None:
        call.attempt = self._core.effects.new_id()

    async def ended(self: Run, call: Any, value: Any) -> None:
        await self._claimed().record(Begin(call.key, call.digest, call.attempt))
        await plain(self, call, value)

    plain = Run._ended
    monkeypatch.setattr(Run, "_begun", begun)
    monkeypatch.setattr(Run, "_ended", ended)
    assert is_caught_by(right.test_one_in_flight_at_a_crash_is_not_done_again_by_default)
    assert is_caught_by(right.test_a_zombie_does_nothing)


def test_forgetting_a_result(monkeypatch: Patch) -> None:
    async def ended(self: Run, call: Any, value: Any) -> None:
        call.known = True

    monkeypatch.setattr(Run, "_ended", ended)
    assert is_caught_by(right.test_an_action_is_done_once_in_the_life_of_a_run)


def test_taking_one_in_flight_for_one_that_did_not_happen(monkeypatch: Patch) -> None:
    async def decided(*_: Any) -> None:
        return None

    monkeypatch.setattr(Run, "_decided", decided)
    assert is_caught_by(right.test_one_in_flight_at_a_crash_is_not_done_again_by_default)


def test_a_fresh_idempotency_key_for_each_try(monkeypatch: Patch) -> None:
    counter = iter(range(99))
    monkeypatch.setattr(doing, "idempotency_key", lambda run, key: f"{key}-{next(counter)}")
    assert is_caught_by(right.test_a_retry_has_the_same_idempotency_key)


def test_believing_a_key_whatever_the_arguments(monkeypatch: Patch) -> None:
    monkeypatch.setattr(doing, "_digest", lambda *_: "")
    assert is_caught_by(right.test_the_same_key_with_other_arguments_is_an_error)


def test_letting_go_of_old_actions(monkeypatch: Patch) -> None:
    async def shortened(_: Any, manifest: Any, __: Any) -> Any:
        return replace(manifest, actions=manifest.actions[:5])

    monkeypatch.setattr(making, "shortened", shortened)
    assert is_caught_by(right.test_a_ledger_of_any_length, monkeypatch)


def test_moving_what_has_not_ended(monkeypatch: Patch) -> None:
    async def shortened(pages: Any, manifest: Any, _: Any) -> Any:
        if len(manifest.actions) < 2:
            return manifest
        leaf = await pages.leaf_of_actions(manifest.actions[1:])
        return replace(manifest, actions=manifest.actions[:1], ledger=(leaf, *manifest.ledger))

    monkeypatch.setattr(making, "shortened", shortened)
    assert is_caught_by(right.test_one_in_flight_stays_in_the_manifest, monkeypatch)


def test_undoing_the_ledger_by_a_rollback(monkeypatch: Patch) -> None:
    plain = making.Maker.next

    async def next_(self: Any, manifest: Any, draft: Any) -> Any:
        made = await plain(self, manifest, draft)
        if draft.origin is None:
            return made
        return replace(made, manifest=replace(made.manifest, ledger=(), actions=()))

    monkeypatch.setattr(making.Maker, "next", next_)
    assert is_caught_by(right.test_a_ledger_of_any_length, monkeypatch)


def test_the_second_answer_counts(monkeypatch: Patch) -> None:
    plain = Run._answer

    async def answer(self: Run, token: str, value: object, *, by: str | None = None) -> Any:
        base = await self.access.base()
        actions = tuple(
            replace(one, ended=None, result=None) if one.attempt == token else one
            for one in base.manifest.actions
        )

        async def forget(manifest: Any) -> Any:
            return asking.Edit(replace(manifest, actions=actions))

        if actions != base.manifest.actions:
            await self.access.amend(forget)
        return await plain(self, token, value, by=by)

    monkeypatch.setattr(Run, "aanswer", answer)
    monkeypatch.setattr(Run, "answer", lambda self, *a, **o: self._core.call(answer(self, *a, **o)))
    assert is_caught_by(pauses.test_an_answer_counts_once_and_the_second_is_told_whose_was_first)


def test_asking_without_the_state(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Run, "_draft_of", lambda *_: None)
    assert is_caught_by(pauses.test_a_question_is_committed_with_the_state_and_answered_anywhere)


def test_expiry_by_ones_own_clock(monkeypatch: Patch) -> None:
    async def own(access: Any) -> Any:
        return access.effects.clock.now()

    monkeypatch.setattr(questions, "store_time", own)
    assert is_caught_by(mixed_clocks, monkeypatch)


def mixed_clocks(shop: Shop, monkeypatch: Patch) -> None:
    """Asked on one machine, looked at on another whose clock is ten years ahead."""
    odd = OwnTime()
    odd.seconds = 3e8
    with shop.run() as run, pytest.raises(WaitingError):
        run.wait("Ship it?", expires=3600)
    store = Store(lambda: shop.inner, clock=odd)
    with store.run(RUN) as run, pytest.raises(WaitingError) as caught:
        run.wait("Ship it?", expires=3600)
    assert caught.value.kind is None


def test_the_right_one_keeps_to_the_stores_clock(monkeypatch: Patch) -> None:
    mixed_clocks(Shop(), monkeypatch)


def test_notes_that_go_along_are_lost(monkeypatch: Patch) -> None:
    """Of several that wait for one commit, only the first is in it."""
    plain = RunWriter._with

    async def first(self: RunWriter, manifest: Any, notes: list[Any]) -> Any:
        made = await plain(self, manifest, notes[:1])
        return replace(made, notes=notes[:1])

    monkeypatch.setattr(RunWriter, "_with", first)
    assert is_caught_by(several_wait_for_one_commit)


class Patient(MemoryStorage):
    """Commits the first note when all the others wait too."""

    writer: RunWriter | None = None

    async def replace(self, key: str, data: Any, token: str) -> str:
        writer, self.writer = self.writer, None
        end = time.monotonic() + 20
        while writer is not None and len(writer._notes) < NOTES and time.monotonic() < end:
            time.sleep(0.001)
        return await super().replace(key, data, token)


def several_wait_for_one_commit(shop: Shop) -> None:
    storage = Patient(shop.inner.url.removeprefix("memory://"))

    async def agent() -> list[int]:
        async with shop.open(storage).run(RUN) as run:
            storage.writer = run._writer
            calls = [run.aonce(f"k{n}", lambda n=n: n) for n in range(NOTES)]
            return await asyncio.gather(*calls)

    assert asyncio.run(agent()) == list(range(NOTES))
    with shop.run() as run:
        assert run.in_flight() == []
        assert [run.once(f"k{n}", lambda: None) for n in range(NOTES)] == list(range(NOTES))


def test_the_right_one_takes_all_along() -> None:
    several_wait_for_one_commit(Shop())
