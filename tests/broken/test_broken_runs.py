"""Wrong variants of stores and runs; each must fail the law of `RunConformance` that is named."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cloudckpt import keys, load, objects
from cloudckpt.commit import RunWriter
from cloudckpt.errors import UnsupportedStoreError
from cloudckpt.objects import Objects
from cloudckpt.run import Run
from cloudckpt.storage import memory
from cloudckpt.storage.contract import Data, Stored, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.sweep import Sweeper
from cloudckpt.testing.concurrency import ConcurrencyLaws
from cloudckpt.testing.runs import RunConformance
from tests.broken.caught import check_caught
from tests.conformance.test_teeth import CompareThenWrite

Patch = pytest.MonkeyPatch
_names = itertools.count()
WAIT = 20.0


def holds(law: Callable[..., None], make: Callable[..., Any] = MemoryStorage) -> bool:
    """Say whether the law holds on two stores of a place of its own."""
    name = f"broken-{next(_names)}"
    store, other = (Store(lambda: make(name)) for _ in range(2))
    wanted = law.__code__.co_varnames[1 : law.__code__.co_argcount]
    fixtures = {"store": store, "other": other, "run_id": "r"}
    try:
        law(RunConformance(), **{name: fixtures[name] for name in wanted})
    except Exception as error:
        check_caught(error)
        print(f"broken: {error!r}")
        return False
    return True


ALL_LAWS = {**vars(ConcurrencyLaws), **vars(RunConformance)}
LAWS = [law for name, law in ALL_LAWS.items() if name.startswith("test_") and not hasattr(law, "pytestmark")]
LAWS.remove(RunConformance.test_an_end_without_a_close_is_silent_and_loses_nothing)  # in a process of its own


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_right_one_keeps_the_law(law: Callable[..., None]) -> None:
    """Otherwise what follows proves nothing."""
    assert holds(law)


def test_without_a_look_at_the_epoch_a_zombie_saves_on(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RunWriter, "_check", lambda *_: None)
    assert not holds(RunConformance.test_a_second_writer_fences_the_first)


def test_encoding_when_it_is_awaited_saves_what_came_later(monkeypatch: Patch) -> None:
    def asave(self: Run, state: object, **options: Any) -> Any:
        async def late() -> Any:
            return await right(self, state, **options)

        return late()

    right = Run.asave
    monkeypatch.setattr(Run, "asave", asave)
    assert not holds(RunConformance.test_the_state_is_encoded_at_the_call)


def test_sanitised_ids_collide(monkeypatch: Patch) -> None:
    monkeypatch.setattr(keys, "encode_run", lambda run: re.sub(r"[^a-z0-9]", "-", run.lower())[:180])
    assert not holds(RunConformance.test_no_two_runs_are_ever_one)


def test_a_listing_of_the_first_page_only_hides_runs(monkeypatch: Patch) -> None:
    right = load.list_runs

    async def first_page(*arguments: Any) -> Any:
        return (await right(*arguments))[0], None

    monkeypatch.setattr(memory, "PAGE_ROWS", 10)
    assert holds(RunConformance.test_no_two_runs_are_ever_one)
    monkeypatch.setattr("cloudckpt.store.list_runs", first_page)
    assert not holds(RunConformance.test_no_two_runs_are_ever_one)


def test_without_a_sweep_objects_stay(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Sweeper, "doom", lambda *_: None)
    assert not holds(RunConformance.test_objects_of_expired_checkpoints_go_and_nothing_else)


def test_a_sweep_of_the_whole_store_takes_a_neighbours_objects(monkeypatch: Patch) -> None:
    right = RunWriter.settle

    async def greedy(self: RunWriter) -> None:
        await right(self)
        storage = self.objects.placer._storage
        base = await self._pointer.read_existing()
        used = base.manifest.keys()
        listed = [row.key for row in (await storage.list(keys.OBJECTS)).rows]
        await storage.delete([key for key in listed if key not in used])

    monkeypatch.setattr(RunWriter, "settle", greedy)
    assert not holds(RunConformance.test_objects_of_expired_checkpoints_go_and_nothing_else)


def test_without_a_bound_the_manifest_grows(monkeypatch: Patch) -> None:
    monkeypatch.setattr(objects, "RIDE_BYTES", 10**9)
    monkeypatch.setattr(Objects, "make_room", lambda *_: nothing())
    assert not holds(RunConformance.test_small_payloads_ride_and_are_bounded)


async def nothing(*_: object) -> None:
    pass


def test_a_reader_that_becomes_the_writer_fences(monkeypatch: Patch) -> None:
    right = Run._load

    async def eager(self: Run, *arguments: Any, **options: Any) -> Any:
        await self._claimed().become()
        return await right(self, *arguments, **options)

    monkeypatch.setattr(Run, "_load", eager)
    assert not holds(RunConformance.test_reading_fences_nobody)


def test_expecting_after_becoming_the_writer_fences(monkeypatch: Patch) -> None:
    right = RunWriter._become
    monkeypatch.setattr(RunWriter, "_become", lambda self, _: right(self, None))
    assert not holds(RunConformance.test_a_state_that_is_not_the_newest_is_refused_and_fences_nobody)


def overtaken() -> Callable[[str], MemoryStorage]:
    """Return what makes a place where the first object that somebody reads is deleted before he has it."""
    asked: list[str] = []
    here, gone = threading.Event(), threading.Event()
    commits = itertools.count()

    class Overtaken(MemoryStorage):
        async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
            if key.startswith(keys.OBJECTS) and not asked:
                asked.append(key)
                here.set()
                gone.wait(WAIT)
            return await super().read(key, offset=offset, length=length)

        async def replace(self, key: str, data: Data, token: Token) -> Token:
            if key.startswith(keys.MANIFESTS) and next(commits):  # one is there to be read
                here.wait(WAIT)
            return await super().replace(key, data, token)

        async def delete(self, keys: Sequence[str]) -> None:
            await super().delete(keys)
            if asked and asked[0] in keys:
                gone.set()

    return Overtaken


def test_a_load_that_trusts_its_first_manifest_meets_what_expired(monkeypatch: Patch) -> None:
    law = RunConformance.test_a_reader_never_sees_less_than_was_saved
    assert holds(law, overtaken())
    monkeypatch.setattr(load, "REREADS", 0)
    assert not holds(law, overtaken())


def test_a_claim_without_a_guard_fences_its_own_threads(monkeypatch: Patch) -> None:
    came, second = itertools.count(), threading.Event()

    def unguarded(self: Run) -> RunWriter:
        if self._writer is None:
            if next(came) == 0:
                second.wait(WAIT)
            else:
                second.set()
                end = time.monotonic() + WAIT
                while not (self._writer and self._writer.is_writer) and time.monotonic() < end:
                    time.sleep(0.001)
            self._writer = self._core.writer(self.id, rules=self._rules)
        return self._writer

    monkeypatch.setattr(Run, "_claimed", unguarded)
    assert not holds(RunConformance.test_threads_that_save_to_one_run_all_land)


def test_a_save_at_the_end_of_the_block_saves_a_broken_state(monkeypatch: Patch) -> None:
    right = Run.__exit__

    def saving(self: Run, *error: Any) -> None:
        self.save({"half": "done"})
        right(self, *error)

    monkeypatch.setattr(Run, "__exit__", saving)
    assert not holds(RunConformance.test_an_error_in_the_block_saves_nothing)


def test_becoming_the_writer_before_encoding_leaves_a_run_behind(monkeypatch: Patch) -> None:
    right = Run._draft

    def hasty(self: Run, *arguments: Any) -> Any:
        self.acquire()
        return right(self, *arguments)

    monkeypatch.setattr(Run, "_draft", hasty)
    assert not holds(RunConformance.test_a_state_that_cannot_be_carried_writes_nothing)


# An engine that checks a condition and then writes.


class Raced(CompareThenWrite):
    """Right until the probe lets several race."""

    one_step = MemoryStorage.replace

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        racing = bytes(data).startswith(b"racer")
        return await (super().replace if racing else self.one_step)(key, data, token)


def test_the_probe_refuses_exists_then_write() -> None:
    with pytest.raises(UnsupportedStoreError, match="one_winner_of_a_race"):
        Store(lambda: Raced(f"broken-{next(_names)}")).run("r").save(1)
