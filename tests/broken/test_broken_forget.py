"""Wrong variants of erasing a run and of bringing one back; each is caught by the test named in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cloudckpt import forget, restore, runner
from cloudckpt.collect import bury
from cloudckpt.errors import AmbiguousError, CloudckptError
from cloudckpt.forget import _Erasure
from cloudckpt.storage.beside import Reach
from cloudckpt.storage.versions import Version, Versions
from cloudckpt.testing.faults import Effect
from tests.broken.caught import is_caught_by
from tests.protocol import erased, test_forget_left, test_forget_meanwhile
from tests.protocol import test_forget as right
from tests.protocol import test_restore as right_restore
from tests.protocol.erased import RUN, WHY, filled
from tests.protocol.scripted import no_sleep
from tests.protocol.versioned import VersionedMemory

Patch = pytest.MonkeyPatch
at_once = erased.at_once


def test_erasing_before_the_tombstone(monkeypatch: Patch) -> None:
    """A crash in between leaves a run that is there and can't be loaded."""

    async def late(access: Any, **options: Any) -> Any:
        if not options["dry_run"]:
            await _Erasure(access, Versions(access.storage)).erase()
        return await bury(access, **options)

    monkeypatch.setattr(forget, "bury", late)
    assert is_caught_by(
        test_forget_meanwhile.test_what_a_crash_interrupted_is_finished_by_another_call, Effect.CRASH_AFTER
    )


def test_erasing_what_can_be_read_and_no_versions(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Versions, "__init__", _plain)
    assert is_caught_by(right.test_nothing_but_the_tombstone_is_left_of_a_versioned_bucket)


def _plain(self: Versions, storage: Any) -> None:
    from cloudckpt.storage.versions import Plain

    self._reach = Reach(storage)
    self.known, self._engine = True, Plain(self._reach.engine)


def test_erasing_the_old_pointers_of_another_run(monkeypatch: Patch) -> None:
    async def pages(self: _Erasure) -> Any:
        for prefix in (self._objects, self._manifest):
            cursor = None
            while True:
                page = await self._versions.page(prefix, cursor=cursor)
                yield [row for row in page.rows if prefix == self._objects or not row.newest]
                cursor = page.cursor
                if cursor is None:
                    break

    monkeypatch.setattr(_Erasure, "_pages", pages)
    assert is_caught_by(right.test_another_run_keeps_everything)


def test_erasing_the_marker_above_what_is_locked(monkeypatch: Patch) -> None:
    is_due = _Erasure._is_due

    def careless(self: _Erasure, row: Version, turn: int, _covered: set[str]) -> bool:
        return is_due(self, row, turn, set())

    monkeypatch.setattr(_Erasure, "_is_due", careless)
    assert is_caught_by(test_forget_left.test_a_marker_above_a_locked_version_stays)


def test_believing_every_answer(monkeypatch: Patch) -> None:
    async def erase(self: _Erasure) -> None:
        async for rows in self._pages():
            await self._erase(list(rows)) if rows else None

    monkeypatch.setattr(_Erasure, "erase", erase)
    assert is_caught_by(test_forget_left.test_a_store_that_lists_what_it_said_it_erased_is_not_believed)


def test_forgetting_in_spite_of_a_hold(monkeypatch: Patch) -> None:
    from cloudckpt import collect

    async def check(*_: Any) -> None:
        pass

    monkeypatch.setattr(collect, "check_not_held", check)
    assert is_caught_by(right.test_a_hold_refuses_it_and_nothing_is_touched, True, False)


def test_a_failure_of_the_store_is_taken_for_a_lock(monkeypatch: Patch) -> None:
    erase = Versions.erase

    async def silent(self: Versions, rows: Sequence[Version]) -> Any:
        try:
            return await erase(self, rows)
        except CloudckptError:
            return []

    class Broken(VersionedMemory):
        async def erase(self, rows: Sequence[Version]) -> Any:
            raise AmbiguousError("no answer")

    monkeypatch.setattr(Versions, "erase", silent)
    receipt = filled(Broken()).forget(RUN, why=WHY)
    assert not receipt.complete, "the listing tells what the answers hide"


def test_asking_again_for_what_is_on_its_way(monkeypatch: Patch) -> None:
    """Each request is paid for."""
    monkeypatch.setattr(restore.Cold, "warmth", _always_cold)
    assert is_caught_by(right_restore.test_a_restore_asks_for_what_the_checkpoint_needs_and_nothing_else)


async def _always_cold(self: Any, key: str) -> Any:
    return restore.Warmth.COLD


def test_the_runner_is_that_of_the_tests() -> None:
    """Else a wait in one of these would be a real one."""
    assert runner._sleep is no_sleep
