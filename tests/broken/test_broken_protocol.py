"""Wrong variants of the commit protocol; each must break a law, or the suites prove nothing.

Each is one line of reasoning left out. It is played under the scheduler of
`tests/protocol` until a law breaks, and the right protocol is played just as long. Those
that a few small processes show are found once more by going through all of their runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloudckpt import keys, making
from cloudckpt.commit import RunWriter
from cloudckpt.effects import Effects
from cloudckpt.errors import AmbiguousError, PreconditionFailedError
from cloudckpt.format import decode_manifest
from cloudckpt.making import Maker
from cloudckpt.objects import Objects
from cloudckpt.pointer import Base, Pointer
from cloudckpt.storage.contract import Data, Token
from cloudckpt.testing.invariants import LawBrokenError
from tests.protocol import stage as stages
from tests.protocol.explore import BrokenError, explore
from tests.protocol.network import Disk, Remote
from tests.protocol.plots import riding
from tests.protocol.scheduler import RandomChooser
from tests.protocol.stage import (
    LISTS,
    MANIFEST,
    RUN,
    Act,
    Host,
    Plot,
    Stage,
    collector,
    killer,
    reader,
    writer,
)
from tests.protocol.test_simulation import play

SEEDS = 300
EVERYBODY: Plot = {
    "A": writer("A", 5, times=2),
    "B": writer("B", 4, times=2),
    "killer": killer,
    "reader": reader,
}

Patch = pytest.MonkeyPatch


def first_broken(*, collects: Act = collector) -> str | None:
    """Return the first law that a random run breaks, or None when all of them hold."""
    for seed in range(SEEDS):
        stage = Stage(RandomChooser(seed), faults=seed % 7, patience=seed % 2 * 0.1)
        try:
            play({**EVERYBODY, "collector": collects}, stage)
        except LawBrokenError as error:
            return error.law
    return None


@pytest.fixture(autouse=True)
def none_rides() -> Iterator[None]:
    with riding("none rides"):
        yield


@pytest.fixture
def all_ride(none_rides: None) -> Iterator[None]:
    with riding("all ride, put behind at once"):
        yield


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


class Believing(Remote):
    """Takes a doubt for success, as a client does that ignores time-outs."""

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        try:
            return await super().replace(key, data, token)
        except AmbiguousError:
            return token


def test_taking_a_doubt_for_success(monkeypatch: Patch) -> None:
    monkeypatch.setattr(stages, "Remote", Believing)
    assert first_broken() in ("L2", "L3")


def put_behind_the_manifest(monkeypatch: Patch) -> None:
    right = Objects.put

    async def put(self: Objects, extents: Any, data: bytes) -> None:
        self._effects.spawn(right(self, extents, data))

    monkeypatch.setattr(Objects, "put", put)


def test_the_manifest_before_the_object(monkeypatch: Patch) -> None:
    put_behind_the_manifest(monkeypatch)
    assert first_broken() == "L1"


def keep_keys(monkeypatch: Patch) -> None:
    """Name and put an object once, however often the commit is tried."""
    name, put = Objects.extents, Objects.put

    async def extents(self: Objects, seq: int, data: bytes) -> Any:
        named = self.__dict__.setdefault("named", {})
        if (seq, data) not in named:
            named[seq, data] = await name(self, seq, data)
        return named[seq, data]

    async def put_once(self: Objects, extents: Any, data: bytes) -> None:
        there = self.__dict__.setdefault("there", [])
        if extents not in there:
            await put(self, extents, data)
            there.append(extents)

    monkeypatch.setattr(Objects, "extents", extents)
    monkeypatch.setattr(Objects, "put", put_once)


def test_the_same_key_again_after_a_lost_race(monkeypatch: Patch) -> None:
    """A collector that listed it may delete it: the fence moved the base, and nobody put it again."""
    keep_keys(monkeypatch)
    assert first_broken() in ("L1", "L7")


@pytest.mark.usefixtures("all_ride")
def test_dropping_the_inline_copy_before_its_object_exists(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Objects, "exists", lambda *_: True)
    assert first_broken() == "L1"


def test_deleting_what_expires_before_the_commit_landed(monkeypatch: Patch) -> None:
    right = Maker.next

    async def early(self: Maker, manifest: Any, draft: Any) -> Any:
        found = await right(self, manifest, draft)
        await self._objects.placer._storage.delete(
            sorted(manifest.keys().keys() - found.manifest.keys().keys())
        )
        return found

    monkeypatch.setattr(Maker, "next", early)
    assert first_broken() == "L7"


def ignore_the_epoch(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RunWriter, "_check", lambda *_: None)


def test_saving_without_a_look_at_the_epoch(monkeypatch: Patch) -> None:
    ignore_the_epoch(monkeypatch)
    assert first_broken() == "L6"


def test_expiring_the_checkpoint_that_the_writer_started_from(monkeypatch: Patch) -> None:
    right = making.plan_expiry
    monkeypatch.setattr(
        making,
        "plan_expiry",
        lambda entries, **options: right(entries, **{**options, "epoch": 0}),
    )
    assert first_broken() == "L7"


async def unfenced(host: Host, effects: Effects) -> None:
    """A collector that lists, reads and deletes."""
    storage = host.storage(effects)
    stored = await storage.read(MANIFEST)
    if stored is not None:
        used = decode_manifest(stored.data, RUN).keys()
        listed = [row.key for row in (await storage.list(keys.objects_prefix(RUN))).rows]
        await storage.delete([key for key in listed if key not in used])


def test_collecting_without_a_fence() -> None:
    assert first_broken(collects=unfenced) in ("L1", "L7")


class ExistsThenWrite(Remote):
    """Checks a condition and writes in two steps."""

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        found = await self.read(key)
        if found is None or found.token != token:
            raise PreconditionFailedError("stale", key=key)
        return await super().replace(key, data, token)


def write_unconditionally(monkeypatch: Patch) -> None:
    def replace(self: Disk, key: str, data: bytes, _: Token) -> Token:
        del self.values[key]
        return self._create(key, data)

    monkeypatch.setattr(Disk, "_replace", replace)
    monkeypatch.setattr(stages, "Remote", ExistsThenWrite)


def test_an_engine_that_checks_and_then_writes(monkeypatch: Patch) -> None:
    write_unconditionally(monkeypatch)
    assert first_broken() in ("L2", "L3", "L6")


# By going through all runs of a few processes.

WRITER = {"A": writer("A", 2)}
TWO = {"A": writer("A", 1), "B": writer("B", 1)}


def first_of_all(plot: Plot, *, faults: int) -> str | None:
    """Return the law that the first of all runs breaks, or None when there is no such run."""
    try:
        explore(plot, faults=faults)
    except BrokenError as error:
        if not isinstance(error.__cause__, LawBrokenError):
            raise
        return error.__cause__.law
    return None


@pytest.mark.parametrize(
    ("wrong", "plot", "faults", "laws"),
    [
        (trust_preconditions, WRITER, 1, ["L4"]),
        (put_behind_the_manifest, WRITER, 0, ["L1"]),
        (keep_keys, {**WRITER, "collector": collector}, 0, ["L1", "L7"]),
        (ignore_the_epoch, TWO, 0, ["L6"]),
        (write_unconditionally, TWO, 0, ["L2", "L3", "L6"]),
        (lambda _: None, {**WRITER, "collector": unfenced}, 0, ["L1", "L7"]),
    ],
)
def test_among_all_runs_of_a_few_processes(
    wrong: Any, plot: Plot, faults: int, laws: list[str], monkeypatch: Patch
) -> None:
    """With no more processes and faults than it takes; the right protocol breaks no law among them."""
    monkeypatch.setitem(LISTS, unfenced, 1)
    right = {name: collector if act is unfenced else act for name, act in plot.items()}
    assert first_of_all(right, faults=faults) is None
    wrong(monkeypatch)
    assert first_of_all(plot, faults=faults) in laws
