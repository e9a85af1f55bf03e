"""Workers under the scheduler: each with a lease, a heart beside it, or a claim to make.

Owns: `worker`, which becomes the writer when no lease is in its way, and saves while its
lease is renewed; and `claimants`, who all want the runs of one store.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from cloudckpt.claiming import Rounds
from cloudckpt.commit import RunWriter
from cloudckpt.core import Core
from cloudckpt.drafts import Draft
from cloudckpt.effects import Effects
from cloudckpt.errors import CloudckptError, ConflictError, RunBusyError, RunDeletedError, StorageError
from cloudckpt.leases import Busy, Sightings, Terms
from cloudckpt.retention import Retention
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.retry import RetryPolicy
from tests.protocol.network import FINE, Disk, Network, Remote
from tests.protocol.scheduler import RandomChooser, Scheduler
from tests.protocol.stage import ENCODED, KEEP_LAST, RUN, Host, nothing, save

LEASE = 4.0


def leased(host: Host, effects: Effects, busy: Busy) -> RunWriter:
    """Return a claim to write the run under a lease."""
    return RunWriter(
        host.storage(effects),
        effects,
        RUN,
        rules=Retention(keep_last=KEEP_LAST),
        policy=host.policy,
        prepare=nothing,
        terms=Terms(LEASE, busy),
        sightings=Sightings(effects.clock),
    )


def worker(name: str, saves: int, *, busy: Busy = "raise") -> Callable[[Host, Effects], Any]:
    """A process that waits for the lease of another, or takes the run, then saves; fenced, it ends."""

    async def act(host: Host, effects: Effects) -> None:
        claim = leased(host, effects, busy)
        for _ in range(20):
            try:
                epoch = (await claim.become()).epoch
                break
            except RunBusyError:
                await effects.sleep(1.0)
            except StorageError:  # it may have happened; another process would begin anew
                return
        else:
            return
        host.ledger.took_over(epoch)
        heart = effects.spawn(_beat(claim))
        with suppress(ConflictError):
            for n in range(saves):
                await save(host, claim, name, n, epoch)
        await heart.wait()
        await claim.settle()
        await claim.release()

    return act


async def _beat(claim: RunWriter) -> None:
    for _ in range(2):
        with suppress(CloudckptError):  # the next save tells
            await claim.renew()
            await claim.look()


# ---- claims


class Place:
    """What `Rounds` needs of a store, for one process of a simulation."""

    def __init__(self, storage: Storage, effects: Effects) -> None:
        self.storage = storage
        self.effects = effects
        self.sightings = Sightings(effects.clock)


def claimants(seed: int, *, runs: int = 3, workers: int = 3) -> list[tuple[str, str]]:
    """Let workers claim the runs of a store until there are none; return who got which.

    A worker that gets a run ends it at once, so that a late one may find it ended.
    """
    network = Network(Disk())
    scheduler = Scheduler(RandomChooser(seed), lambda request: network.answer(request, FINE))
    policy = RetryPolicy(deadline=1.0)

    def writer(storage: Storage, effects: Effects, run: str, terms: Terms) -> RunWriter:
        return RunWriter(storage, effects, run, policy=policy, prepare=nothing, terms=terms)

    async def offer(run: str) -> None:
        offered = writer(Remote(), scheduler.effects(f"offer of {run}"), run, Terms(offers=True))
        await offered.become()
        await offered.renew()

    got: list[tuple[str, str]] = []

    async def act(name: str, effects: Effects) -> None:
        storage = Remote()
        rounds = Rounds(cast("Core", Place(storage, effects)))
        while True:
            found, _ = await rounds.page("", None)
            if not found:
                return
            for base in found:
                claim = writer(storage, effects, base.manifest.run, Terms(lease=LEASE))
                try:
                    await claim.claim(base)
                except (RunBusyError, RunDeletedError):
                    continue
                got.append((base.manifest.run, name))
                await claim.save(Draft(f"{name} of {base.manifest.run}", ENCODED["A", 0], status="done"))

    for n in range(runs):
        scheduler.spawn(f"offer of r{n}", offer(f"r{n}"))
    scheduler.run()
    for n in range(workers):
        name = f"w{n}"
        scheduler.spawn(name, act(name, scheduler.effects(name)))
    scheduler.run()
    return got
