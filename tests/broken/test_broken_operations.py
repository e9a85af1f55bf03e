"""Wrong variants of the history's pages and of what operators do; each is caught by the test named in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import collect, commit, curate, folding, making, runner
from cloudckpt.access import Access
from cloudckpt.errors import CloudckptError
from cloudckpt.folding import Folding
from cloudckpt.making import Maker
from cloudckpt.retention import Retention
from tests.broken.caught import is_caught_by
from tests.protocol import past
from tests.protocol import test_history as right
from tests.protocol.past import RUN, SAVES, TAGGED, World, save, state_of
from tests.protocol.scripted import AtOnce, WhenAwaited

Patch = pytest.MonkeyPatch
small = past.small


@pytest.fixture(autouse=True)
def at_once(monkeypatch: Patch) -> None:
    monkeypatch.setattr(runner, "_spawn_aside", AtOnce)


def test_pages_made_ready_are_used_after_a_fence(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Folding, "forget", lambda _: None)
    assert is_caught_by(right.test_a_collector_after_every_save_takes_nothing_that_is_needed, AtOnce)


def test_a_manifest_refers_to_a_page_before_it_exists(monkeypatch: Patch) -> None:
    async def put(self: Any, newest: int, document: bytes) -> tuple[str, int]:
        return f"h{newest}-{'0' * 64}-0", len(document)

    monkeypatch.setattr(folding.Pages, "_put", put)
    assert is_caught_by(right.test_the_laws_hold_after_every_save_of_a_long_run)


def test_a_payload_that_rides_moves_before_its_object_exists(monkeypatch: Patch) -> None:
    async def ended(*_: Any) -> None:
        pass

    monkeypatch.setattr(runner, "_spawn_aside", WhenAwaited)
    monkeypatch.setattr(folding.Objects, "ended", ended)
    monkeypatch.setattr(Folding, "_fits", lambda _, manifest, fold: fold and fold.apply(manifest))
    assert is_caught_by(right.test_the_laws_hold_after_every_save_of_a_long_run)


def test_a_writer_deletes_what_is_not_its_checkpoints_own(monkeypatch: Patch) -> None:
    for module in (making, folding, curate):
        monkeypatch.setattr(module, "owned", lambda entry: {x.key: x.length for x in entry.extents})
    assert is_caught_by(rolled_back_twice)


def rolled_back_twice() -> None:
    """The newer of two checkpoints with one object expires first."""
    world = World(rules=Retention(keep_last=3))
    world.ledger.keep_last = 3
    with world.store.run(RUN) as run:
        world.ledger.took_over(run.epoch)
        with world.ledger.asking(state_of(TAGGED)) as told:
            told(run.rollback(tag="good"))
        for step in range(SAVES + 1, SAVES + 8):
            save(world, run, step)
            world.check()


def test_the_right_one_outlives_a_rollback() -> None:
    rolled_back_twice()


def test_collecting_without_a_fence(monkeypatch: Patch) -> None:
    async def amend(self: Access, edit: Any, *, deleted: bool = False) -> Any:
        base = await self.base(deleted=deleted)
        await edit(base.manifest)
        return base, True

    monkeypatch.setattr(collect.Access, "amend", amend)
    assert is_caught_by(right.test_a_collector_after_every_save_takes_nothing_that_is_needed, AtOnce)


def test_collecting_what_only_a_page_refers_to(monkeypatch: Patch) -> None:
    async def window(pages: Any, manifest: Any) -> dict[str, int]:
        return {**manifest.keys(), **{pages.key(page): page.size for page in manifest.history}}

    monkeypatch.setattr(collect, "every_key", window)
    assert is_caught_by(right.test_a_collector_after_every_save_takes_nothing_that_is_needed, AtOnce)


def test_deleting_without_a_tombstone(monkeypatch: Patch) -> None:
    async def delete_run(access: Access, **_: Any) -> Any:
        listed = await collect.objects_of(access.storage, access.run)
        await access.storage.delete([*listed, access.pointer._key])
        return None, collect.Collected(access.run, 0, 0, 0)

    monkeypatch.setattr(collect, "delete_run", delete_run)
    assert is_caught_by(right.test_a_zombie_does_not_revive_a_deleted_run)


def test_deleting_in_spite_of_a_hold(monkeypatch: Patch) -> None:
    async def check(*_: Any) -> None:
        pass

    monkeypatch.setattr(collect, "check_not_held", check)
    assert is_caught_by(right.test_a_hold_refuses_expiry_and_deletion_until_it_is_released)


def test_a_hold_is_forgotten_when_the_rules_are_applied(monkeypatch: Patch) -> None:
    plan = curate.plan_expiry

    def forgetful(entries: Any, **options: Any) -> Any:
        return plan([replace(entry, hold=None) for entry in entries], **{**options, "hold": None})

    monkeypatch.setattr(curate, "plan_expiry", forgetful)
    assert is_caught_by(right.test_a_hold_refuses_expiry_and_deletion_until_it_is_released)


def test_an_edit_that_loses_the_race_is_believed(monkeypatch: Patch) -> None:
    async def amend(self: Access, edit: Any, *, deleted: bool = False) -> Any:
        base = await self.base(deleted=deleted)
        wanted = await edit(base.manifest)
        if wanted is not None:
            new = replace(wanted.manifest, nonce=self.effects.new_id())
            await self.pointer.swap(base, new, lambda _: False)
        return base, True

    monkeypatch.setattr(Access, "amend", amend)
    assert is_caught_by(right.test_an_edit_that_lost_the_race_is_made_again, monkeypatch)


def test_a_rollback_that_does_not_look_whether_its_checkpoint_is_still_there(monkeypatch: Patch) -> None:
    plain = Maker._again
    first: list[Any] = []

    async def stale(self: Maker, manifest: Any, draft: Any, seq: int) -> Any:
        first[:] = first or [await plain(self, manifest, draft, seq)]
        return replace(first[0], seq=manifest.seq + 1)

    assert is_caught_by(rolled_back_to_what_expires, monkeypatch, stale)
    rolled_back_to_what_expires(monkeypatch, plain)


def rolled_back_to_what_expires(monkeypatch: Patch, again: Any) -> None:
    """The rules are applied between the look at the checkpoint and the commit."""
    world = World()
    world.ledger.keep_last = 1
    swap = commit.Pointer.swap
    with world.store.run(RUN) as run:
        monkeypatch.setattr(Maker, "_again", again)

        async def late(self: Any, *arguments: Any) -> Any:
            monkeypatch.setattr(commit.Pointer, "swap", swap)
            world.open(world.inner).run(RUN).retain(Retention(keep_last=2))
            return await swap(self, *arguments)

        monkeypatch.setattr(commit.Pointer, "swap", late)
        with pytest.raises(CloudckptError):
            run.rollback(seq=8)
    world.check()
