"""Wrong variants of the commit protocol; each must break a law, or the suites prove nothing.

Each is one line of reasoning left out. It is played under the scheduler of
`tests/protocol` until a law breaks, and the right protocol is played just as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import keys, making, objects, sweep
from cloudckpt.commit import RunWriter
from cloudckpt.effects import Effects
from cloudckpt.errors import AmbiguousError, PreconditionFailedError
from cloudckpt.format import decode_manifest
from cloudckpt.making import Maker
from cloudckpt.objects import Objects
from cloudckpt.pointer import Base, Pointer
from cloudckpt.storage.contract import Data, Storage, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.invariants import LawBrokenError
from tests.protocol.scheduler import Pause, RandomChooser
from tests.protocol.stage import RUN, Stage, collector, killer, reader, writer

SEEDS = 300
EVERYBODY = {
    "A": writer("A", 5, times=2),
    "B": writer("B", 4, times=2),
    "killer": killer,
    "reader": reader,
}

Patch = pytest.MonkeyPatch


def first_broken(
    *,
    collect: Callable[[Stage, Effects], Any] = collector,
    inner: Callable[[], Storage | None] = lambda: None,
) -> str | None:
    """Return the first law that a random run breaks, or None when all of them hold."""
    for seed in range(SEEDS):
        stage = Stage(RandomChooser(seed), faults=seed % 7, patience=seed % 2 * 0.1, inner=inner())
        for name, act in {**EVERYBODY, "collector": collect}.items():
            stage.start(name, act)
        try:
            stage.run()
        except LawBrokenError as error:
            return error.law
    return None


@pytest.fixture(autouse=True)
def none_rides(monkeypatch: Patch) -> None:
    monkeypatch.setattr(making, "INLINE_BYTES", 0)
    monkeypatch.setattr(sweep, "SWEEP_KEYS", 1)


@pytest.fixture
def all_ride(none_rides: None, monkeypatch: Patch) -> None:
    monkeypatch.setattr(making, "INLINE_BYTES", 1000)
    monkeypatch.setattr(objects, "RIDE_BYTES", 0)
    monkeypatch.setattr(objects, "MAX_RIDE_BYTES", 130)


def test_the_right_protocol_breaks_none() -> None:
    assert first_broken() is None


@pytest.mark.usefixtures("all_ride")
def test_the_right_protocol_with_riding_payloads_breaks_none() -> None:
    assert first_broken() is None


def trust_preconditions(monkeypatch: Patch) -> None:
    right = Pointer.swap

    async def swap(self: Pointer, base: Any, new: Any, _: Any, commit: Any = None) -> tuple[Base, bool]:
        return await right(self, base, new, lambda _: False, commit)

    monkeypatch.setattr(Pointer, "swap", swap)


def test_trusting_a_failed_precondition(monkeypatch: Patch) -> None:
    """A network that sends a write twice answers so to one's own success."""
    trust_preconditions(monkeypatch)
    assert first_broken() == "L4"


def test_trying_again_without_looking_for_ones_own_commit(monkeypatch: Patch) -> None:
    trust_preconditions(monkeypatch)
    monkeypatch.setattr(RunWriter, "_only_ours", lambda *_: True)
    assert first_broken() in ("L3", "L4")


class Believing:
    """Takes a doubt for success, as a client does that ignores time-outs."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        try:
            return await self._storage.replace(key, data, token)
        except AmbiguousError:
            return token


def test_taking_a_doubt_for_success(monkeypatch: Patch) -> None:
    right = Stage.storage
    monkeypatch.setattr(Stage, "storage", lambda stage, effects: Believing(right(stage, effects)))
    assert first_broken() in ("L2", "L3")


def test_the_manifest_before_the_object(monkeypatch: Patch) -> None:
    right = Objects.put

    async def put(self: Objects, extents: Any, data: bytes) -> None:
        self._effects.spawn(right(self, extents, data))

    monkeypatch.setattr(Objects, "put", put)
    assert first_broken() == "L1"


def test_the_same_key_again_after_a_lost_race(monkeypatch: Patch) -> None:
    """A collector that listed it may delete it: the fence moved the base, and nobody put it again."""
    name, put = Objects.extents, Objects.put
    named: dict[tuple[object, int, bytes], Any] = {}

    async def extents(self: Objects, seq: int, data: bytes) -> Any:
        if (self, seq, data) not in named:
            named[self, seq, data] = await name(self, seq, data)
        return named[self, seq, data]

    async def put_once(self: Objects, extents: Any, data: bytes) -> None:
        if (self, extents) not in named:
            await put(self, extents, data)
            named[self, extents] = True  # type: ignore[index]

    monkeypatch.setattr(Objects, "extents", extents)
    monkeypatch.setattr(Objects, "put", put_once)
    assert first_broken() in ("L1", "L7")


@pytest.mark.usefixtures("all_ride")
def test_dropping_the_inline_copy_before_its_object_exists(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Objects, "exists", lambda *_: True)
    assert first_broken() == "L1"


def test_deleting_what_expires_before_the_commit_landed(monkeypatch: Patch) -> None:
    right = Maker.next

    async def early(self: Maker, manifest: Any, draft: Any) -> Any:
        found = await right(self, manifest, draft)
        await self._objects._storage.delete(sorted(manifest.keys().keys() - found.manifest.keys().keys()))
        return found

    monkeypatch.setattr(Maker, "next", early)
    assert first_broken() == "L7"


def test_saving_without_a_look_at_the_epoch(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RunWriter, "_check", lambda *_: None)
    assert first_broken() == "L6"


def test_expiring_the_checkpoint_that_the_writer_started_from(monkeypatch: Patch) -> None:
    right = making.plan_expiry
    monkeypatch.setattr(
        making,
        "plan_expiry",
        lambda entries, **options: right(entries, **{**options, "epoch": 0}),
    )
    assert first_broken() == "L7"


async def unfenced(stage: Stage, effects: Effects) -> None:
    """A collector that lists, reads and deletes."""
    storage = stage.storage(effects)
    stored = await storage.read(keys.manifest_key(RUN))
    if stored is not None:
        used = decode_manifest(stored.data, RUN).keys()
        listed = [row.key for row in (await storage.list(keys.objects_prefix(RUN))).rows]
        await storage.delete([key for key in listed if key not in used])


def test_collecting_without_a_fence() -> None:
    assert first_broken(collect=unfenced) in ("L1", "L7")


class ExistsThenWrite(MemoryStorage):
    """Checks a condition and writes in two steps."""

    def __init__(self) -> None:
        super().__init__(f"exists-then-write-{id(self)}")
        self._space.values.clear()

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        found = await self.read(key)
        await Pause()
        if found is None or found.token != token:
            raise PreconditionFailedError("stale", key=key)
        return self._space.write(key, data)


def test_an_engine_that_checks_and_then_writes() -> None:
    assert first_broken(inner=ExistsThenWrite) in ("L2", "L3", "L6")
