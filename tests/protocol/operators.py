"""What operators do to one run while its agents work, as processes of the simulation.

Owns: those processes, `agent`, whose own process tags and does something once beside its saves,
and `Operated`, a stage that knows what all of them were told and holds it against what stands in
the end: a tag, a hold and a result that were acknowledged are there, and nothing was done twice.
Each of them may be told that it failed; what it may not be told is that the run is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cloudckpt import codec
from cloudckpt.access import Access
from cloudckpt.collect import delete_run
from cloudckpt.commit import RunWriter
from cloudckpt.curate import apply_retention, edit_checkpoint, edit_run, held, tagged
from cloudckpt.drafts import Again, Draft
from cloudckpt.effects import Effects
from cloudckpt.errors import (
    CheckpointNotFoundError,
    ConflictError,
    HeldError,
    RunDeletedError,
    RunNotFoundError,
    StorageError,
)
from cloudckpt.history import Filter, Which, listed
from cloudckpt.ledger import Begin, End
from cloudckpt.model import Action, Entry, Hold, Manifest, Origin
from cloudckpt.repair import repair
from cloudckpt.retention import Retention
from cloudckpt.verify import verify
from tests.protocol.scheduler import Chooser
from tests.protocol.stage import ENCODED, KEEP_LAST, RUN, STATES, Act, Stage, collector, killer, save

TOLD = (StorageError, ConflictError, RunNotFoundError, RunDeletedError, CheckpointNotFoundError)
HOLD = Hold("the lawyer", "case 7", datetime(2030, 1, 1, tzinfo=UTC))
STATE_OF = {encoded.encoded_digest: STATES[key] for key, encoded in ENCODED.items()}
ARGUMENTS = "0" * 64


class Operated(Stage):
    """A stage, and what those who act on it were told.

    Attributes:
        tags: seq and tag of each that was set.
        holds: seq of each checkpoint that is held.
        whole: seqs of those that were there when the whole run was held.
        done: Keys of what was done once.
        alone: Whether nobody but the agent becomes the writer, so that it meets no conflict.
    """

    def __init__(self, chooser: Chooser, *, faults: int, patience: float, alone: bool) -> None:
        super().__init__(chooser, faults=faults, patience=patience, keep_last=KEEP_LAST)
        self.ledger.keep_last = 1  # the smallest that an operator applies
        self.alone = alone
        self.tags: set[tuple[int, str]] = set()
        self.holds: set[int] = set()
        self.whole: set[int] = set()
        self.done: set[str] = set()

    def check(self, manifest: Manifest) -> None:
        """Hold what was told against a manifest that has all its checkpoints."""
        there = {entry.seq: entry for entry in manifest.checkpoints}
        if manifest.status == "deleted":
            assert not self.holds, "a run was deleted in spite of a hold on a checkpoint"
            assert not self.whole, "a run was deleted in spite of a hold"
            return
        for seq, tag in self.tags:
            assert seq in there, f"a checkpoint expired in spite of its tag {tag}"
            assert tag in there[seq].tags, f"the tag {tag} is gone"
        for seq in self.holds:
            assert seq in there, "a checkpoint expired in spite of its hold"
            assert there[seq].hold == HOLD
        assert self.whole <= there.keys(), "a checkpoint expired in spite of a hold on the run"
        ended = {action.key for action in manifest.actions if action.ended is not None}
        assert self.done <= ended, "a result that was recorded is gone"


async def _begun(host: Any, saves: int) -> None:
    """Return when the run has so many checkpoints; or after a while, as it may never have."""
    for _ in range(150):
        if await host.ask("acknowledged") >= saves:
            return


async def _all(access: Access) -> list[Entry]:
    return await access.reading(lambda manifest: listed(access.pages, manifest, Filter()))


# ---- agents


def agent(name: str, saves: int, *, times: int = 1) -> Act:
    """A process that saves, and tags its newest and does something once in threads of its own."""

    async def act(host: Any, effects: Effects) -> None:
        left = iter(range(saves))
        for _ in range(times):
            claim = host.claim(effects)
            beside: list[Any] = []
            try:
                epoch = (await claim.become()).epoch
                host.ledger.took_over(epoch)
                beside = [effects.spawn(work(host, claim, effects)) for work in (_says, _does)]
                for n in left:
                    await save(host, claim, name, n, epoch)
            except StorageError:  # of becoming, which may have happened
                continue
            except (ConflictError, RunDeletedError) as error:
                if host.alone and isinstance(error, ConflictError):
                    raise  # it is a stranger to itself
            for work in beside:
                await work.wait()
            await claim.settle()

    return act


async def _says(host: Operated, claim: RunWriter, effects: Effects) -> None:
    access = host.access(effects)
    for n in range(2):
        with suppress(*TOLD):
            tag = f"own-{n}"
            base, entry = await edit_checkpoint(access, Which(), tagged(tag))
            host.tags.add((entry.seq, tag))
            await claim.adopt(base)


async def _does(host: Operated, claim: RunWriter, _: Effects) -> None:
    for n in range(3):
        with suppress(*TOLD):
            await _once(host, claim, f"act-{n % 2}", f"{claim.id}-{n}")


async def _once(host: Operated, claim: RunWriter, key: str, attempt: str) -> None:
    async def find(manifest: Manifest) -> Action | None:
        return next((one for one in manifest.actions if one.key == key), None)

    action = await claim.reading(find)
    if action is not None and action.ended is not None:
        return
    known = key in host.done
    await claim.record(Begin(key, ARGUMENTS, attempt))
    assert not known, f"{key} is done again"
    await claim.record(End(key, attempt, codec.encode(key).data))
    host.done.add(key)


# ---- operators


def tagger(tags: int) -> Act:
    """A process that tags checkpoints old and new."""

    async def act(host: Any, effects: Effects) -> None:
        access = host.access(effects)
        await _begun(host, 1)
        for n in range(tags):
            with suppress(*TOLD):
                if found := await _all(access):
                    entry = found[(n * 3 + len(found)) % len(found)]
                    await edit_checkpoint(access, Which(seq=entry.seq), tagged(f"tag-{n}"))
                    host.tags.add((entry.seq, f"tag-{n}"))

    return act


async def holder(host: Any, effects: Effects) -> None:
    """A process that holds the oldest checkpoint."""
    access = host.access(effects)
    await _begun(host, 3)
    with suppress(*TOLD):
        if found := await _all(access):
            await edit_checkpoint(access, Which(seq=found[-1].seq), held(HOLD))
            host.holds.add(found[-1].seq)


async def holder_of_all(host: Any, effects: Effects) -> None:
    """A process that holds the run."""
    access = host.access(effects)
    await _begun(host, 5)
    with suppress(*TOLD):
        await edit_run(access, lambda manifest: replace(manifest, hold=HOLD))
        host.whole |= {entry.seq for entry in await _all(access)}


def retainer(*keeps: int) -> Act:
    """A process that applies rules, one after the other."""

    async def act(host: Any, effects: Effects) -> None:
        access = host.access(effects)
        await _begun(host, 2)
        for keep in keeps:
            with suppress(*TOLD):
                await apply_retention(access, Retention(keep_last=keep), "operator")

    return act


async def repairer(host: Any, effects: Effects) -> None:
    """A process that looks for damage to repair, of which there is none."""
    with suppress(*TOLD):
        done, _ = await repair(host.access(effects), lambda: host.claim(effects), drop_damaged=True)
        assert (done.back_to, done.dropped, done.lost, done.left) == (None, (), 0, ()), done


async def verifier(host: Any, effects: Effects) -> None:
    """A process that looks for damage, of which there is none."""
    for depth in (1, 2, 3):
        with suppress(StorageError, RunNotFoundError):
            report, _ = await verify(host.access(effects), depth)
            assert report.ok, [str(problem) for problem in report.problems]


async def roller(host: Any, effects: Effects) -> None:
    """A process that goes back to the oldest checkpoint."""
    access, claim = host.access(effects), host.claim(effects)
    await _begun(host, 2)
    with suppress(*TOLD):
        if found := await _all(access):
            old = found[-1]
            draft = Draft(commit="back", state=Again(old.seq), origin=Origin(RUN, old.seq))
            with host.ledger.asking(STATE_OF[old.encoded_digest or ""], commit="back") as told:
                told((await claim.save(draft))[1])
    await claim.settle()


async def deleter(host: Any, effects: Effects) -> None:
    """A process that deletes the run, unless it is held."""
    await _begun(host, 5)
    with suppress(*TOLD, HeldError):
        await delete_run(host.access(effects), by="the test")


PLOTS: Mapping[str, Mapping[str, Act]] = {
    "tags": {"A": agent("A", 6), "tagger": tagger(3), "collector": collector, "retainer": retainer(2, 1)},
    "a hold": {"A": agent("A", 6), "holder": holder, "retainer": retainer(1), "deleter": deleter},
    "a hold on all": {"A": agent("A", 8), "holder": holder_of_all, "retainer": retainer(1, 2)},
    "a hold on all, and a deletion": {"A": agent("A", 6), "holder": holder_of_all, "deleter": deleter},
    "a repair": {"A": agent("A", 6), "repairer": repairer, "tagger": tagger(3), "retainer": retainer(1)},
    "two repairs": {"A": agent("A", 6), "repairer": repairer, "repairer 2": repairer, "tagger": tagger(2)},
    "a look": {"A": agent("A", 6), "verifier": verifier, "tagger": tagger(3), "retainer": retainer(1)},
    "a way back": {
        "A": agent("A", 5, times=2),
        "roller": roller,
        "retainer": retainer(1),
        "tagger": tagger(2),
    },
    "two agents": {
        "A": agent("A", 4, times=3),
        "B": agent("B", 3, times=2),
        "roller": roller,
        "verifier": verifier,
    },
    "a death": {
        "A": agent("A", 6),
        "killer": killer,
        "B": agent("B", 4),
        "tagger": tagger(2),
        "collector": collector,
        "retainer": retainer(1),
    },
    "everybody": {
        "A": agent("A", 6, times=2),
        "B": agent("B", 3, times=2),
        "tagger": tagger(2),
        "holder": holder,
        "roller": roller,
        "collector": collector,
        "collector 2": collector,
        "retainer": retainer(1),
        "repairer": repairer,
        "verifier": verifier,
    },
}
