"""Those who act on one run, and the stage that plays them against each other.

Owns: `writer`, `reader`, `collector` and `deleter`, which are processes, and `killer`,
which ends one; `Host`, what they act with; `Stage`, which plays one run of choices and
holds the laws after every step that wrote. `explore.py` plays all runs of the same processes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from cloudckpt import keys
from cloudckpt.access import Access
from cloudckpt.codec import decode, encode
from cloudckpt.collect import collect, delete_run
from cloudckpt.commit import RunWriter
from cloudckpt.drafts import Draft
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    ConflictError,
    RunDeletedError,
    RunNotFoundError,
    StorageError,
)
from cloudckpt.load import load
from cloudckpt.model import Manifest
from cloudckpt.retention import Retention
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy
from cloudckpt.sweep import Sweeper
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.protocol.network import FATES, FINE, Disk, Network, Remote
from tests.protocol.scheduler import Answer, Chooser, Pause, Request, Scheduler

RUN = "r"
MANIFEST = keys.manifest_key(RUN)
KEEP_LAST = 2

STATES = {
    (name, n): {"by": name, "n": n, "pad": f"{n * 7919}" * (n % 2 * 8)} for name in "ABCD" for n in range(8)
}
ENCODED = {key: encode(state) for key, state in STATES.items()}
SMALL = max(len(encoded.data) for (_, n), encoded in ENCODED.items() if n == 0)
"""Bound under which every other state rides inline."""


class Host:
    """What a process acts with, besides its effects.

    Args:
        ledger: Where it notes what it asked for and was told.
        patience: Seconds for which a request is tried again.
        keep_last: How many checkpoints its commits keep.
    """

    def __init__(self, ledger: Ledger, *, patience: float, keep_last: int) -> None:
        self.ledger = ledger
        self.policy = RetryPolicy(deadline=patience)
        self._rules = Retention(keep_last=keep_last)

    def storage(self, effects: Effects) -> Storage:
        """Return the network as a process sees it."""
        return RetryingStorage(Remote(), self.policy, effects)

    def claim(self, effects: Effects) -> RunWriter:
        """Return a new claim to write the run."""
        return RunWriter(
            self.storage(effects), effects, RUN, rules=self._rules, policy=self.policy, prepare=nothing
        )

    def access(self, effects: Effects) -> Access:
        """Return the run as an operator has it."""
        storage = self.storage(effects)
        return Access(storage, effects, RUN, self.policy, Sweeper(storage, effects))

    async def ask(self, what: str, *arguments: str) -> Any:
        """Ask whoever plays what a process can't know."""
        return await Pause(request=Request(what, arguments))


async def nothing() -> None:
    pass


Act = Callable[[Any, Effects], Coroutine[Any, Any, None]]
"""What a process does, with a `Host`."""

Plot = Mapping[str, Act]
"""Who acts, by name."""


def acknowledged(ledger: Ledger) -> int:
    """Return the number of the newest checkpoint that anybody was told of."""
    return max((ask.told.seq for ask in ledger.saved), default=0)  # type: ignore[union-attr]


class Stage(Host):
    """One run in a simulated world, and the laws after every step that wrote.

    Args:
        chooser: Who goes on, and what the network does.
        faults: How often the network may do something else than what it should.
        patience: Seconds for which a request is tried again.
        keep_last: How many checkpoints a commit keeps.
    """

    def __init__(
        self, chooser: Chooser, *, faults: int, patience: float = 1.0, keep_last: int = KEEP_LAST
    ) -> None:
        super().__init__(Ledger(keep_last=keep_last), patience=patience, keep_last=keep_last)
        self.inner = Disk()
        self.scheduler = Scheduler(chooser, self._answer, after_step=self._check)
        self._network = Network(self.inner, self._delay)
        self._faults = faults
        self._wrote = True

    def start(self, name: str, act: Act) -> None:
        """Let a process act."""
        self.scheduler.spawn(name, act(self, self.scheduler.effects(name)))

    def run(self) -> Manifest | None:
        """Play it to its end, and return the manifest that stands then."""
        try:
            self.scheduler.run()
        finally:
            self.scheduler.close()
        return self._laws()

    def _answer(self, request: Request) -> Answer:
        if request.op == "acknowledged":
            return Answer(acknowledged(self.ledger))
        if request.op == "kill":
            return Answer(self._kill(*request.arguments))
        fate = self.scheduler.chooser.fate(FATES[request.op]) if self._faults else FINE
        self._faults -= fate != FINE
        self._wrote |= request.op not in ("read", "list")
        return self._network.answer(request, fate)

    def _kill(self, name: str) -> bool:
        if self.scheduler.chooser.who(12):
            return False
        self.scheduler.kill(name)
        return True

    def _delay(self, request: Request) -> None:
        self.scheduler.spawn("the network", self._later(request))

    async def _later(self, request: Request) -> None:
        await Pause()
        self._network.land(request)
        self._wrote = True

    def _check(self) -> None:
        if self._wrote:
            self._wrote = False
            self._laws()

    def _laws(self) -> Manifest | None:
        self.ledger.delete(self.inner.deleted)
        return by_hand(check_laws(self.inner, RUN, self.ledger))  # type: ignore[arg-type]


def writer(name: str, saves: int, *, times: int = 1) -> Act:
    """A process that becomes the writer and saves; fenced, it starts again, `times` in all."""

    async def act(host: Host, effects: Effects) -> None:
        left = iter(range(saves))
        for _ in range(times):
            claim = host.claim(effects)
            try:
                epoch = (await claim.become()).epoch
                host.ledger.took_over(epoch)
                for n in left:
                    await save(host, claim, name, n, epoch)
                await claim.settle()
                return
            except (ConflictError, RunDeletedError):
                await claim.settle()
            except StorageError:  # of becoming, which may have happened
                continue

    return act


async def save(host: Host, claim: RunWriter, name: str, n: int, epoch: int) -> None:
    """After a doubt or a refusal of the network the next save is tried; a lost race ends it."""
    draft = Draft(commit=f"{name}{n}", state=ENCODED[name, n])
    asking = host.ledger.asking(STATES[name, n], commit=draft.commit, epoch=epoch)
    with suppress(StorageError), asking as told:
        told((await claim.save(draft))[1])


def loader(loads: int) -> Act:
    """A process that loads: what it gets was saved, and is no older than what was acknowledged before.

    Unless the run is deleted meanwhile.
    """

    async def act(host: Host, effects: Effects) -> None:
        for _ in range(loads):
            before = await host.ask("acknowledged")
            try:
                loaded = await load(host.storage(effects), effects, RUN)
            except (StorageError, RunDeletedError):
                continue
            seen = loaded.entry.seq if loaded else 0
            assert seen >= before, f"a load returned seq {seen} after {before} was acknowledged"
            if loaded:
                host.ledger.load(decode(loaded.data))

    return act


reader = loader(2)


async def killer(host: Host, _: Effects) -> None:
    """A dies at some moment, with all that it started aside."""
    while not await host.ask("kill", "A"):
        pass


async def collector(host: Host, effects: Effects) -> None:
    """A process that removes what nothing refers to."""
    with suppress(StorageError, ConflictError, RunNotFoundError):
        await collect(host.access(effects))


async def deleter(host: Host, effects: Effects) -> None:
    """A process that deletes the run, and looks whether it stays deleted.

    Only one that is there: else it would list, for objects without a manifest.
    """
    access = host.access(effects)
    with suppress(StorageError, ConflictError, RunNotFoundError):
        await access.base(deleted=True)
        await delete_run(access, by="the test")
        assert (await access.base(deleted=True)).manifest.status == "deleted", "a deleted run came back"


LISTS = {collector: 1, deleter: 1}
"""How many listings such a process gets at most; any other gets none."""
