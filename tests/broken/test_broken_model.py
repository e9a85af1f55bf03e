"""Wrong variants of what an agent does with a run; each must disagree with the oracle of `test_model.py`.

That the right one agrees is what that test says. What operators do is in `test_broken_operators.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import load, making
from cloudckpt.commit import RunWriter
from cloudckpt.errors import CheckpointNotFoundError, OutcomeUnknownError
from cloudckpt.pointer import Base, Pointer
from cloudckpt.run import Run
from tests.broken.caught import check_caught
from tests.protocol.test_model import EXAMPLES, STEPS, InMemory, explore

Patch = pytest.MonkeyPatch

SEEDS = (1, 2, 3, 4)
"""A variant is caught by the first that shows it; most by the first of all."""


def agrees() -> bool:
    """Say whether the product answers as the oracle does, whatever the seed."""
    for seed in SEEDS:
        try:
            explore(InMemory, seed=seed, examples=EXAMPLES[InMemory], steps=STEPS, shrink=False)
        except Exception as error:
            check_caught(error)
            print(f"broken, at seed {seed}: {error!r}")
            return False
    return True


def test_a_state_that_is_not_the_newest_is_saved(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RunWriter, "_check_expected", lambda *_: None)
    assert not agrees()


def test_ones_own_save_of_unknown_outcome_is_taken_for_a_strangers(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RunWriter, "_only_ours", lambda *_: False)
    assert not agrees()


def test_a_strangers_save_is_taken_for_ones_own(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RunWriter, "_only_ours", lambda *_: True)
    assert not agrees()


def test_a_doubt_is_taken_for_success(monkeypatch: Patch) -> None:
    right = Pointer.swap

    async def swap(self: Pointer, base: Base | None, new: Any, *arguments: Any) -> tuple[Base, bool]:
        try:
            return await right(self, base, new, *arguments)
        except OutcomeUnknownError:
            return Base(new, "believed"), True

    monkeypatch.setattr(Pointer, "swap", swap)
    assert not agrees()


def test_the_base_is_kept_after_a_doubt(monkeypatch: Patch) -> None:
    right = RunWriter.save

    async def save(self: RunWriter, draft: Any) -> Any:
        before = self._base
        try:
            return await right(self, draft)
        except OutcomeUnknownError:
            self._base = before
            raise

    monkeypatch.setattr(RunWriter, "save", save)
    assert not agrees()


def test_who_was_fenced_is_forgiven_after_a_load(monkeypatch: Patch) -> None:
    right = RunWriter.newest

    async def newest(self: RunWriter) -> Base | None:
        base = await right(self)
        if self._epoch is not None and self._base is not None:
            self._epoch = self._base.manifest.epoch
        return base

    monkeypatch.setattr(RunWriter, "newest", newest)
    assert not agrees()


def test_a_tagged_checkpoint_expires(monkeypatch: Patch) -> None:
    right = making.plan_expiry

    def forgetful(checkpoints: Any, **options: Any) -> Any:
        plan = right(tuple(replace(entry, tags=()) for entry in checkpoints), **options)
        kept = {entry.seq for entry in plan.kept}
        return replace(plan, kept=tuple(entry for entry in checkpoints if entry.seq in kept))

    monkeypatch.setattr(making, "plan_expiry", forgetful)
    assert not agrees()


def test_one_checkpoint_more_is_kept_than_was_asked_for(monkeypatch: Patch) -> None:
    right = making.plan_expiry
    monkeypatch.setattr(
        making,
        "plan_expiry",
        lambda found, *, rules, **options: right(
            found, rules=replace(rules, keep_last=rules.keep_last and rules.keep_last + 1), **options
        ),
    )
    assert not agrees()


def test_a_closed_run_stays_the_writer(monkeypatch: Patch) -> None:
    async def settle(self: Run) -> None:
        if self._writer is not None:
            await self._writer.settle()

    monkeypatch.setattr(Run, "_settle", settle)
    assert not agrees()


def test_the_newest_is_given_for_one_that_expired(monkeypatch: Patch) -> None:
    right = load.choose

    async def choose(pages: Any, manifest: Any, which: Any) -> Any:
        try:
            return await right(pages, manifest, which)
        except CheckpointNotFoundError:
            return manifest.head

    monkeypatch.setattr(load, "choose", choose)
    assert not agrees()


def test_a_reader_becomes_the_writer(monkeypatch: Patch) -> None:
    right = Run._load

    async def eager(self: Run, *arguments: Any, **options: Any) -> Any:
        if not self._closed:
            await self._claimed().become()
        return await right(self, *arguments, **options)

    monkeypatch.setattr(Run, "_load", eager)
    assert not agrees()


def test_an_async_save_encodes_when_it_is_awaited(monkeypatch: Patch) -> None:
    right = Run.asave

    def asave(self: Run, state: object, **options: Any) -> Any:
        async def late() -> Any:
            return await right(self, state, **options)

        return late()

    monkeypatch.setattr(Run, "asave", asave)
    assert not agrees()
