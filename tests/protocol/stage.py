"""What the simulated protocol runs on: a network that loses, repeats and delays, and those who act.

Owns: `Network`, a storage over memory whose every call is a pause and a choice;
`writer`, `reader` and `collector`, the processes that act on one run; `Stage`,
which puts them together and holds the laws after every step.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from cloudckpt import keys
from cloudckpt.codec import decode, encode
from cloudckpt.commit import RunWriter
from cloudckpt.drafts import Draft
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    AmbiguousError,
    CheckpointNotFoundError,
    ConflictError,
    PreconditionFailedError,
    StorageError,
)
from cloudckpt.format import decode_manifest, encode_manifest
from cloudckpt.load import load
from cloudckpt.model import Manifest
from cloudckpt.retention import Retention
from cloudckpt.storage.contract import Data, Page, Storage, Stored, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol.scheduler import Chooser, Pause, Scheduler

T = TypeVar("T")

RUN = "r"
KEEP_LAST = 2
_stages = itertools.count()

FINE, LOST, UNANSWERED, LATE, ECHOED = range(5)
"""Fates of a write: done and answered; never arrived; done but not answered; arrives later; sent twice
by the network, so that the answer is the second one's."""


class Network:
    """The storage contract over `inner`; each call may be interrupted, each write may go wrong."""

    blocking = False

    def __init__(self, inner: Storage, scheduler: Scheduler, ledger: Ledger, faults: int) -> None:
        self.url = inner.url
        self.writes = 0
        self._inner = inner
        self._scheduler = scheduler
        self._ledger = ledger
        self._faults = faults

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        await Pause()
        if self._fate(LOST + 1) == LOST:
            raise AmbiguousError("lost on purpose")
        return await self._inner.read(key, offset=offset, length=length)

    async def create(self, key: str, data: Data) -> Token:
        return await self._write(lambda: self._inner.create(key, data), ECHOED + 1)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._write(lambda: self._inner.replace(key, data, token), ECHOED + 1)

    async def put(self, key: str, data: Data) -> None:
        await self._write(lambda: self._inner.put(key, data), LATE + 1)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        await Pause()
        return await self._inner.list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        gone = tuple(keys)

        async def go() -> None:
            await self._inner.delete(gone)
            self._ledger.delete(gone)

        await self._write(go, LATE + 1)

    async def close(self) -> None:
        pass

    async def _write(self, go: Callable[[], Awaitable[T]], fates: int) -> T:
        await Pause()
        fate = self._fate(fates)
        self.writes += 1
        if fate == LATE:
            self._scheduler.spawn("a late request", self._later(go))
        if fate in (LOST, LATE):
            raise AmbiguousError("lost on purpose")
        result = await go()
        if fate == ECHOED:
            result = await go()
        if fate == UNANSWERED:
            raise AmbiguousError("unanswered on purpose")
        return result

    def _fate(self, fates: int) -> int:
        fate = self._scheduler.chooser.fate(fates) if self._faults else FINE
        self._faults -= fate != FINE
        return fate

    async def _later(self, go: Callable[[], Awaitable[Any]]) -> None:
        await Pause()
        try:
            await go()
        except PreconditionFailedError:
            return
        finally:
            self.writes += 1


class Stage:
    """One run in a simulated world, and the laws after every step that wrote.

    Args:
        chooser: Who goes on, and what the network does.
        faults: How often the network may do something else than what it should.
        patience: Seconds for which a request is tried again.
        inner: The store below; by default memory of its own.
    """

    def __init__(
        self, chooser: Chooser, *, faults: int, patience: float = 1.0, inner: Storage | None = None
    ) -> None:
        self.scheduler = Scheduler(chooser, after_step=self._check)
        self.ledger = Ledger(keep_last=KEEP_LAST)
        self.inner = inner or MemoryStorage(f"stage-{next(_stages)}")
        self.network = Network(self.inner, self.scheduler, self.ledger, faults)
        self.policy = RetryPolicy(deadline=patience)
        self._checked = -1

    def start(self, name: str, act: Callable[[Stage, Effects], Any]) -> None:
        """Let a process act."""
        self.scheduler.spawn(name, act(self, self.scheduler.effects(name)))

    def run(self) -> Manifest | None:
        """Play it to its end, and return the manifest that stands then."""
        try:
            self.scheduler.run()
        finally:
            self.scheduler.close()
        return by_hand(check_laws(self.inner, RUN, self.ledger))

    def storage(self, effects: Effects) -> Storage:
        """Return the network as a process sees it."""
        return RetryingStorage(self.network, self.policy, effects)

    def claim(self, effects: Effects) -> RunWriter:
        """Return a new claim to write the run."""
        storage = self.storage(effects)
        return RunWriter(
            storage, effects, RUN, rules=Retention(keep_last=KEEP_LAST), policy=self.policy, prepare=nothing
        )

    def _check(self) -> None:
        if self.network.writes != self._checked:
            self._checked = self.network.writes
            by_hand(check_laws(self.inner, RUN, self.ledger))


STATES = {
    (name, n): {"by": name, "n": n, "pad": f"{n * 7919}" * (n % 2 * 8)} for name in "AB" for n in range(8)
}
ENCODED = {key: encode(state) for key, state in STATES.items()}
SMALL = max(len(ENCODED["A", 0].data), len(ENCODED["B", 0].data))
"""Bound under which every other state rides inline."""


def writer(name: str, saves: int, *, times: int = 1) -> Callable[[Stage, Effects], Any]:
    """A process that becomes the writer and saves; fenced, it starts again, `times` in all."""

    async def act(stage: Stage, effects: Effects) -> None:
        left = iter(range(saves))
        for _ in range(times):
            claim = stage.claim(effects)
            try:
                epoch = (await claim.become()).epoch
                stage.ledger.took_over(epoch)
                for n in left:
                    await save(stage, claim, name, n, epoch)
                await claim.settle()
                return
            except ConflictError:
                await claim.settle()
            except StorageError:  # of becoming, which may have happened
                continue

    return act


async def save(stage: Stage, claim: RunWriter, name: str, n: int, epoch: int) -> None:
    draft = Draft(commit=f"{name}{n}", state=ENCODED[name, n])
    with _going_on(), stage.ledger.asking(STATES[name, n], commit=draft.commit, epoch=epoch) as told:
        told((await claim.save(draft))[1])


@contextmanager
def _going_on() -> Iterator[None]:
    """After a doubt or a refusal of the network the next save is tried; a lost race ends it."""
    try:
        yield
    except ConflictError:
        raise
    except StorageError:
        return


async def nothing() -> None:
    pass


async def reader(stage: Stage, effects: Effects) -> None:
    """A process that loads: what it gets was saved, and is no older than what was acknowledged before."""
    for _ in range(2):
        before = max((ask.told.seq for ask in stage.ledger.saved), default=0)
        try:
            loaded = await load(stage.storage(effects), effects, RUN)
        except (CheckpointNotFoundError, StorageError):
            continue
        seen = loaded.entry.seq if loaded else 0
        assert seen >= before, f"a load returned seq {seen} after {before} was acknowledged"
        if loaded:
            stage.ledger.load(decode(loaded.data))


async def killer(stage: Stage, _: Effects) -> None:
    """A that dies at some moment, with all that it started aside."""
    while stage.scheduler.chooser.who(12):
        await Pause()
    stage.scheduler.kill("A")


async def collector(stage: Stage, effects: Effects) -> None:
    """Rule 3: list, fence by a commit that changes only the nonce, then delete what was listed and unused."""
    storage = stage.storage(effects)
    listed = {row.key for row in (await storage.list(keys.objects_prefix(RUN))).rows}
    for _ in range(5):
        try:
            stored = await storage.read(keys.manifest_key(RUN))
            if stored is None:
                return
            fenced = replace(decode_manifest(stored.data, RUN), nonce=effects.new_id())
            await storage.replace(keys.manifest_key(RUN), encode_manifest(fenced), stored.token)
        except (PreconditionFailedError, AmbiguousError):
            continue
        with suppress(AmbiguousError):
            await storage.delete(sorted(listed - set(fenced.keys())))
        return
