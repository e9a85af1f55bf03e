"""The laws of stores and runs as a pytest class. Subclass it for an engine of your own.

    class TestMyRuns(RunConformance):
        @pytest.fixture
        def make_store(self, place):
            return lambda **options: Store(lambda: MyStorage(place), **options)

        @pytest.fixture
        def recipe(self, place):
            return f"Store(lambda: MyStorage({place!r}))", "from mine import MyStorage"

Owns: what a user of `Run` and `Store` may rely on, on every engine. Invariant:
each test keeps to runs of its own, so one place serves them all, and each of its
stores is as independent as two machines are. Damage, crashes and lost answers are
not provoked here, since they need a hand inside the engine.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.errors import (
    CheckpointNotFoundError,
    ClosedError,
    FencedError,
    InvalidInputError,
    SchemaError,
    SerializationError,
    StaleStateError,
)
from cloudckpt.model import CheckpointInfo
from cloudckpt.objects import MAX_RIDE_BYTES
from cloudckpt.run import Run
from cloudckpt.store import Store
from cloudckpt.testing.concurrency import ConcurrencyLaws, large, lawful
from cloudckpt.testing.invariants import Ledger

AWKWARD = (
    *("A", "a", "Ä", "ä", " ", "  ", ".", "..", "...", "/", "//", "a/", "/a", "a/b", "a//b", "../a"),
    *("a.json", ".json", "a b", "a%20b", "a+b", "a!20b", "!", "!z", "a\\b", "C:", "nul", "-", "--help", "~"),
    *("\0", "a\0b", "\n", "\r\n", "\x7f", "\ud800", "\udc80", "\udfff\ud800", "😀", "e\u0301", "\u00e9"),
    *("\u202e", "\ufeff", "\u212a", "\u017f", "x" * 180, "x" * 181, "x" * 1024, "X" * 1024),
    *("x" * 1023 + "y", "ä" * 1024, "😀" * 1024, "😀" * 1023 + "a"),
)
"""Run ids that sanitising, folding, normalising, cutting or joining paths would make one, or lose."""


@dataclass
class Plan:
    """A state of a class of its own."""

    goal: str
    step: int = 0


class RunConformance(ConcurrencyLaws):
    """Laws of stores and runs. A subclass gives the fixtures `make_store` and `recipe`."""

    @pytest.fixture
    def make_store(self) -> Callable[..., Store]:
        """Return what makes an independent `Store` of the place under test, with these options."""
        raise NotImplementedError("override the fixture make_store")

    @pytest.fixture
    def open_store(self, make_store: Callable[..., Store]) -> Iterator[Callable[..., Store]]:
        """Return the same, whose stores are closed after the test."""
        stores: list[Store] = []

        def one(**options: Any) -> Store:
            stores.append(make_store(**options))
            return stores[-1]

        yield one
        for store in stores:
            store.close()

    @pytest.fixture
    def store(self, open_store: Callable[..., Store]) -> Store:
        return open_store()

    @pytest.fixture
    def other(self, open_store: Callable[..., Store]) -> Store:
        """Return a second store of the same place, as another machine has it."""
        return open_store()

    @pytest.fixture
    def run_id(self) -> str:
        return f"laws-{secrets.token_hex(8)}"

    # Saving and loading.

    def test_a_run_that_does_not_exist_loads_as_none(self, store: Store, run_id: str) -> None:
        """And looking does not make it: a typing error in an id must not leave a run behind."""
        run = store.run(run_id)
        assert run.load() is None
        assert run.load(seq=3) is None
        assert run.history() == []
        assert (run.head, run.epoch) == (None, None)
        assert list(store.runs(run_id)) == []

    def test_a_saved_state_is_loaded_equal(self, store: Store, other: Store, run_id: str) -> None:
        """By its writer, by another handle, and by another machine; whether it rides or not."""
        run = store.run(run_id)
        plain: list[Any] = [{}, [], b"", "", 0, "\ud800", {"a": [1, (2, b"\0"), None]}]
        for state in (*plain, bytes(10**6), large(1)):
            run.save(state)
            for loaded in (run.load(), store.run(run_id).load(), other.run(run_id).load()):
                assert (type(loaded), loaded) == (type(state), state)

    def test_the_async_calls_do_the_same(self, store: Store, other: Store, run_id: str) -> None:
        async def agent() -> None:
            async with store.run(run_id) as run:
                assert await run.aload() is None
                for n in range(3):
                    assert (await run.asave({"n": n}, tags=[f"t{n}"])).seq == n + 1
                assert await run.aload() == {"n": 2}
                assert await run.aload(seq=1) == {"n": 0}
                assert [info.tags for info in await run.ahistory()] == [("t2",), ("t1",), ("t0",)]
            assert [info.id async for info in other.aruns(run_id)] == [run_id]
            await other.aclose()
            with pytest.raises(ClosedError):
                await other.run(run_id).aload()

        asyncio.run(agent())

    def test_a_type_builds_its_object(self, store: Store, run_id: str) -> None:
        run = store.run(run_id)
        run.save(Plan("find it", 7))
        assert run.load(Plan) == Plan("find it", 7)
        with pytest.raises(SchemaError) as caught:
            run.load(list[int])
        assert (caught.value.facts["run"], caught.value.facts["seq"]) == (run_id, 1)
        assert run.load(Plan) == Plan("find it", 7)

    def test_seq_counts_from_one_and_history_is_newest_first(
        self, store: Store, other: Store, run_id: str
    ) -> None:
        with store.run(run_id) as run:
            infos = [run.save({"n": n}) for n in range(1, 6)]
        with other.run(run_id) as run:
            infos.append(run.save({"n": 6}))
        assert [info.seq for info in infos] == [1, 2, 3, 4, 5, 6]
        assert [info.parent for info in infos] == [None, 1, 2, 3, 4, 5]
        history = store.run(run_id).history()
        assert [(info.seq, info.commit) for info in history] == [(x.seq, x.commit) for x in reversed(infos)]
        for info in history:
            assert other.run(run_id).load(seq=info.seq) == {"n": info.seq}

    def test_what_a_save_was_told_is_in_the_history(self, store: Store, other: Store, run_id: str) -> None:
        metadata = {"cost": 0.1, "ü": ["\0", None, {"deep": True}], "n": 2**53 + 1}
        told = store.run(run_id).save(Plan("x", 3), tags=["best", "ü", "best"], metadata=metadata)
        assert (told.step, told.tags, told.metadata) == (3, ("best", "ü"), metadata)
        assert store.run(run_id).save({"step": 4}).step == 4
        assert store.run(run_id).save({"step": 4}, step=5).step == 5
        [found] = [info for info in other.run(run_id).history() if info.seq == 1]
        assert found == told
        assert (found.run, found.epoch, found.schema) == (run_id, 1, "Plan")
        assert 0 < found.size <= found.encoded_size + 64

    def test_the_state_is_encoded_at_the_call(self, store: Store, run_id: str) -> None:
        """What the agent does to its state while a save is under way is not half in it."""

        async def agent() -> None:
            run = store.run(run_id)
            state: dict[str, Any] = {"seen": [1], "blob": bytearray(40_000)}
            saving = run.asave(state)
            state["seen"].append(2)
            state["blob"][0] = 1
            await saving
            assert await run.aload() == {"seen": [1], "blob": bytes(40_000)}

        asyncio.run(agent())

    def test_a_state_that_cannot_be_carried_writes_nothing(self, store: Store, run_id: str) -> None:
        """Not even the run, and a run that exists is as it was; the error names each path."""
        for expected in (None, {"n": 1}):
            run = store.run(run_id)
            with pytest.raises(SerializationError) as caught:
                run.save({"ok": 1, "bad": [print, {"worse": object()}]})
            assert len(caught.value.paths) == 2
            assert run.load() == expected
            assert bool(list(store.runs(run_id))) == (expected is not None)
            run.save({"n": 1})

    def test_an_unusable_argument_writes_nothing(self, store: Store, run_id: str) -> None:
        unusable: dict[str, list[Any]] = {
            "step": [-1, 1.0, True, 2**64],
            "expect": [-1, "1", False],
            "tags": ["t", [""], [1], [[]], 5, ["t" * 129], ["\ud83d\ude00"]],
            "metadata": [{"a": {1}}, [1], {"n": float("nan")}, {1: 1}],
        }
        for name, value in ((name, value) for name, values in unusable.items() for value in values):
            with pytest.raises(InvalidInputError):
                store.run(run_id).save({}, **{name: value})
        assert list(store.runs(run_id)) == []

    # What is kept, and where.

    def test_only_the_last_are_kept_and_tagged_ones(self, store: Store, other: Store, run_id: str) -> None:
        with store.run(run_id, keep_last=3) as run:
            for n in range(1, 8):
                run.save({"n": n}, tags=["first"] if n == 1 else [])
        late = other.run(run_id)
        assert [info.seq for info in late.history()] == [7, 6, 5, 1]
        assert late.load(seq=1) == {"n": 1}
        for seq in (2, 4, 8):
            with pytest.raises(CheckpointNotFoundError) as caught:
                late.load(seq=seq)
            assert caught.value.facts["retained"] == [7, 6, 5, 1]
        with pytest.raises(InvalidInputError):
            late.load(seq=0)

    def test_what_a_resumed_run_started_from_is_kept(self, store: Store, other: Store, run_id: str) -> None:
        """Whoever finds that the resume itself went wrong must be able to go back before it."""
        store.run(run_id, keep_last=1).save({"n": 1})
        with other.run(run_id, keep_last=1) as run:
            for n in range(2, 5):
                run.save({"n": n})
        assert [info.seq for info in store.run(run_id).history()] == [4, 1]

    def test_small_payloads_ride_and_are_bounded(self, store: Store, other: Store, run_id: str) -> None:
        """However fast one saves, the manifest stays small and never loses a payload."""
        ledger = Ledger()
        with store.run(run_id) as run:
            for n in range(12):
                state = {"n": n, "blob": secrets.token_bytes(20_000)}
                info = self._save(ledger, run, state)
                assert info.inline
                manifest = lawful(other, run_id, ledger)
                assert sum(map(len, manifest.inline.values())) <= MAX_RIDE_BYTES
            assert not self._save(ledger, run, large(1)).inline
        lawful(other, run_id, ledger)

    def test_objects_of_expired_checkpoints_go_and_nothing_else(
        self, store: Store, other: Store, run_id: str
    ) -> None:
        neighbour = store.run(f"{run_id}-neighbour")
        neighbour.save(large(0))
        ledger = Ledger(keep_last=2)
        with store.run(run_id, keep_last=2) as run:
            for n in range(8):
                self._save(ledger, run, large(n) if n % 3 else {"n": n, "blob": secrets.token_bytes(20_000)})
        manifest = lawful(other, run_id, ledger)
        left = set(self._objects(other, run_id))
        assert manifest.keys().keys() - manifest.inline.keys() <= left <= manifest.keys().keys()
        assert len(self._objects(other, neighbour.id)) == 1

    # Writers.

    def test_a_second_writer_fences_the_first(self, store: Store, other: Store, run_id: str) -> None:
        """For good, and before anything of the first's next save is seen; the error names who took over."""
        ledger = Ledger()
        with store.run(run_id) as first, other.run(run_id) as second:
            ledger.took_over(1)
            ledger.took_over(second.epoch)
            self._save(ledger, second, {"by": "second"})
            for _ in range(2):
                with pytest.raises(FencedError) as caught:
                    self._save(ledger, first, {"by": "first"})
                for fact in ("host", "pid", "since", "epoch"):
                    assert fact in caught.value.facts
                assert first.load() == {"by": "second"}, "the fenced one still reads"
            self._save(ledger, second, {"by": "second, again"})
        assert lawful(store, run_id, ledger).epoch == 2

    def test_reading_fences_nobody(self, store: Store, other: Store, run_id: str) -> None:
        with store.run(run_id) as run:
            run.save({"n": 1})
            assert other.run(run_id).load() == {"n": 1}
            assert len(other.run(run_id).history()) == 1
            assert len(list(other.runs(run_id))) == 1
            assert run.save({"n": 2}).epoch == 1

    def test_a_state_that_is_not_the_newest_is_refused_and_fences_nobody(
        self, store: Store, other: Store, run_id: str
    ) -> None:
        run = store.run(run_id)
        assert run.save({"n": 1}, expect=0).seq == 1
        assert run.save({"n": 2}, expect=1).seq == 2
        for expect in (0, 1, 3):
            with pytest.raises(StaleStateError):
                other.run(run_id).save({"n": "stale"}, expect=expect)
            with pytest.raises(StaleStateError):
                run.save({"n": "stale"}, expect=expect)
        assert run.save({"n": 3}, expect=2).epoch == 1
        assert other.run(run_id).save({"n": 4}, expect=3).epoch == 2

    def test_entering_again_becomes_the_writer_again(self, store: Store, run_id: str) -> None:
        run = store.run(run_id)
        for epoch in (1, 2):
            with run as same:
                assert same is run
                run.acquire()
                assert (run.epoch, run.save({"epoch": epoch}).epoch) == (epoch, epoch)
            with pytest.raises(ClosedError):
                run.save({"late": True})
        assert run.load() == {"epoch": 2}, "a closed run still reads"

    def test_an_error_in_the_block_saves_nothing(self, store: Store, run_id: str) -> None:
        def agent() -> None:
            with store.run(run_id) as run:
                state = {"n": 1}
                run.save(state)
                state["n"] = 2
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            agent()
        assert store.run(run_id).load() == {"n": 1}
        assert len(store.run(run_id).history()) == 1

    def test_a_closed_store_refuses_every_call(self, store: Store, other: Store, run_id: str) -> None:
        run = store.run(run_id)
        run.save({"n": 1})
        store.close()
        store.close()
        for call in (run.load, run.history, run.acquire, lambda: run.save({}), lambda: list(store.runs())):
            with pytest.raises(ClosedError):
                call()
        with pytest.raises(ClosedError):
            store.run(run_id)
        assert other.run(run_id).load() == {"n": 1}

    # Names.

    def test_no_two_runs_are_ever_one(self, store: Store, other: Store, run_id: str) -> None:
        ids = [f"{run_id}{awkward}" for awkward in AWKWARD if len(awkward) < 1000]
        ids += [run_id, *AWKWARD]
        for name in ids:
            store.run(name).save({"id": name})
        found = [info.id for info in other.runs()]
        assert len(found) == len(set(found))
        assert set(ids) <= set(found)
        for name in ids:
            late = other.run(name)
            assert late.load() == {"id": name}
            assert len(late.history()) == 1 or name in AWKWARD
        for prefix in (run_id, f"{run_id}a", f"{run_id}/", f"{run_id}A", "x" * 150, "😀", "\udfff", "."):
            expected = {name for name in found if name.startswith(prefix)}
            assert {info.id for info in other.runs(prefix)} == expected

    def test_a_listing_tells_size_and_time(self, store: Store, run_id: str) -> None:
        store.run(run_id).save(secrets.token_bytes(10_000))
        [info] = store.runs(run_id)
        assert 10_000 < info.manifest_size < 20_000
        assert info.modified.tzinfo is not None

    def test_an_unusable_id_is_refused(self, store: Store) -> None:
        unusable: list[Any] = ["", "x" * 1025, None, 7, b"bytes", "\ud83d\ude00"]
        for run_id in unusable:
            with pytest.raises(InvalidInputError):
                store.run(run_id)
        with pytest.raises(InvalidInputError):
            list(store.runs(5))  # type: ignore[arg-type]

    # What the tests above look with.

    def _save(self, ledger: Ledger, run: Run, state: object) -> CheckpointInfo:
        with ledger.asking(state, epoch=run.epoch) as told:
            info = run.save(state)
            assert isinstance(info, CheckpointInfo)
            told(info)
        return info

    def _objects(self, store: Store, run_id: str) -> list[str]:
        page = store._core.call(store._core.storage.list(keys.objects_prefix(run_id)))
        return [row.key for row in page.rows]
