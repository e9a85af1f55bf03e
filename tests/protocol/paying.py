"""Workers under the scheduler who claim runs and pay in each, while answers get lost and some of them die.

Owns: `Payday`. The world outside is a list of what was paid; a worker that finds a payment in flight
looks there, as a `verify` does. So whatever happens each run is paid for once, and ends. Who has
the answer to its intent pays in the same step: between the two a zombie may always pay.
"""

from __future__ import annotations

from contextlib import suppress
from typing import cast

from cloudckpt.claiming import Rounds
from cloudckpt.commit import RunWriter
from cloudckpt.core import Core
from cloudckpt.drafts import Draft
from cloudckpt.effects import Effects
from cloudckpt.errors import CloudckptError
from cloudckpt.leases import Terms
from cloudckpt.ledger import Begin, End
from cloudckpt.model import Manifest
from cloudckpt.pointer import Base, read_base
from cloudckpt.storage.retry import RetryingStorage, RetryPolicy
from cloudckpt.testing.driver import by_hand
from tests.protocol.network import FATES, FINE, Disk, Network, Remote
from tests.protocol.scheduler import Answer, Pause, RandomChooser, Request, Scheduler
from tests.protocol.stage import ENCODED, nothing
from tests.protocol.workers import LEASE, Place

ROUNDS = 60
NO_ARGUMENTS = "0" * 64


class Bursts(RandomChooser):
    """Lets a process do much before another one goes on, so that those who wait are late."""

    def who(self, options: int) -> int:
        return super().who(options) if super().who(8) == 0 else 0

    def fate(self, options: int) -> int:
        return super().who(options) if super().who(3) == 0 else 0


class Payday:
    """One run of the simulation.

    Args:
        seed: Of all choices.
        faults: How often the network may do something else than what it should.
        deaths: How many workers die, each at some moment.
        patience: Seconds for which a request is tried again.

    Attributes:
        paid: Each payment, by run.
        held: Who became the writer of which run, with its epoch.
    """

    def __init__(self, seed: int, *, faults: int, deaths: int, patience: float = 0.0) -> None:
        self.paid: list[str] = []
        self.held: list[tuple[str, int, str]] = []
        self.runs = ["r0", "r1"]
        self._faults = 0
        self._policy = RetryPolicy(deadline=patience)
        self._network = Network(Disk(), self._delay)
        self._scheduler = Scheduler(Bursts(seed), self._answer)
        for run in self.runs:
            self._scheduler.spawn(f"offer of {run}", self._offer(run, self._effects(f"offer of {run}")))
        self._scheduler.run()
        self._faults = faults
        for n in range(deaths + 3):
            self._scheduler.spawn(f"w{n}", self._worker(f"w{n}", self._effects(f"w{n}")))
        for n in range(deaths):
            self._scheduler.spawn(f"death of w{n}", self._death(f"w{n}"))

    def play(self) -> None:
        """Play it to its end."""
        try:
            self._scheduler.run()
        finally:
            self._scheduler.close()

    def check(self) -> None:
        """Hold it against its laws."""
        for run in self.runs:
            assert self.manifest(run).status == "done", f"{run} is left that nobody gets"
            assert self.paid.count(run) == 1, f"{run} is paid {self.paid.count(run)} times"
        claims = [(run, epoch) for run, epoch, _ in self.held]
        assert len(set(claims)) == len(claims), "two got the same claim"

    def manifest(self, run: str) -> Manifest:
        """Return what stands of a run."""
        base = by_hand(read_base(self._network.disk, run))  # type: ignore[arg-type]
        assert base
        return base.manifest

    def _effects(self, process: str) -> Effects:
        return self._scheduler.effects(process)

    def _answer(self, request: Request) -> Answer:
        if request.op == "kill":
            dies = not self._scheduler.chooser.who(5)
            if dies:
                self._scheduler.kill(*request.arguments)
            return Answer(dies)
        fate = self._scheduler.chooser.fate(FATES[request.op]) if self._faults else FINE
        self._faults -= fate != FINE
        return self._network.answer(request, fate)

    def _delay(self, request: Request) -> None:
        self._scheduler.spawn("the network", self._later(request))

    async def _later(self, request: Request) -> None:
        await Pause()
        self._network.land(request)

    async def _death(self, name: str) -> None:
        while not await Pause(request=Request("kill", (name,))):
            if self._all_done():
                return

    def _all_done(self) -> bool:
        return all(self.manifest(run).status == "done" for run in self.runs)

    # ---- those who act

    def _writer(self, run: str, effects: Effects, terms: Terms) -> RunWriter:
        storage = RetryingStorage(Remote(), self._policy, effects)
        return RunWriter(storage, effects, run, policy=self._policy, prepare=nothing, terms=terms)

    async def _offer(self, run: str, effects: Effects) -> None:
        offered = self._writer(run, effects, Terms(offers=True))
        await offered.become()
        await offered.renew()

    async def _worker(self, name: str, effects: Effects) -> None:
        storage = RetryingStorage(Remote(), self._policy, effects)
        rounds = Rounds(cast("Core", Place(storage, effects)))
        for _ in range(ROUNDS):
            if self._all_done():
                return
            found: list[Base] = []
            with suppress(CloudckptError):
                found, _ = await rounds.page("", None)
            for base in found:
                with suppress(CloudckptError):  # another one goes on with it, when the lease has expired
                    await self._work(name, base, effects)
            await effects.sleep(LEASE)

    async def _work(self, name: str, base: Base, effects: Effects) -> None:
        run = base.manifest.run
        writer = self._writer(run, effects, Terms(LEASE))
        known = await writer.claim(base)
        self.held.append((run, known.epoch, name))
        await _thinks()
        action = next(iter(known.actions), None)
        if action is None or action.ended is None:
            attempt = action.attempt if action else ""
            happened = run in self.paid
            await _thinks()
            if action is None or not happened:
                attempt = effects.new_id()
                await writer.record(Begin("pay", NO_ARGUMENTS, attempt))
                self.paid.append(run)
            await _thinks()
            await writer.record(End("pay", attempt, b"paid"))
        await _thinks()
        await writer.save(Draft(f"{name} of {run} as {known.epoch}", ENCODED["A", 0], status="done"))
        await writer.settle()


async def _thinks() -> None:
    """Take so long that the others may see the lease expire."""
    for _ in range(8):
        await Pause()
