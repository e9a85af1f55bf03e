"""A process of the simulation that saves behind its caller, and the laws that are its own.

Owns: `Life`, one run whose saves go through the real `Saver`, on the simulated network.
Its laws, besides those of every run: what is committed comes in the order of the saves; a
crash costs no more than what was counted as pending; one that is kept is not passed over;
what failed was told to a caller; after a flush without an error the last save is the head.
"""

from __future__ import annotations

from typing import Any

from cloudckpt import keys
from cloudckpt.background import Saver
from cloudckpt.codec import decode
from cloudckpt.drafts import Draft
from cloudckpt.effects import Effects
from cloudckpt.errors import CloudckptError, ConflictError, StorageError
from cloudckpt.format import decode_manifest
from cloudckpt.load import load
from cloudckpt.model import CheckpointInfo, describe
from cloudckpt.testing.driver import by_hand
from tests.protocol.scheduler import Pause
from tests.protocol.stage import ENCODED, RUN, STATES, Stage

SAVES = 6
KEPT = (2,)
"""Saves of these numbers are kept: no newer one may take their place."""


class Life:
    """A's life: saves behind, now and then a flush, and an end.

    Args:
        room: How many may wait.
        flushes: After which saves it flushes.
        faulty: Whether commits may fail.
        every: Only each so many saves are committed by themselves, as in cadence "selective".

    Attributes:
        committed: Which saves were, in order.
        failed: Errors of commits.
        told: Errors that a call raised.
        fenced: Whether it lost a race.
    """

    def __init__(
        self, *, room: int = 1, flushes: tuple[int, ...] = (3,), faulty: bool = False, every: int = 1
    ) -> None:
        self.room = room
        self.flushes = flushes
        self.faulty = faulty
        self.every = every
        self.saver: Saver[int]
        self.offered: list[int] = []
        self.committed: list[int] = []
        self.failed: list[BaseException] = []
        self.told: list[BaseException] = []
        self.fenced = False
        self.ended = False

    async def act(self, stage: Stage, effects: Effects) -> None:
        claim = stage.claim(effects)
        try:
            stage.ledger.took_over((await claim.become()).epoch)
        except StorageError:  # which may have happened
            return

        async def commit(n: int) -> CheckpointInfo:
            try:
                epoch = claim.base.manifest.epoch if claim.base else None
                with stage.ledger.asking(STATES["A", n], commit=f"A{n}", epoch=epoch) as told:
                    manifest, entry = await claim.save(Draft(commit=f"A{n}", state=ENCODED["A", n]))
                    told(entry)
            except CloudckptError as error:
                self.failed.append(error)
                raise
            self.committed.append(n)
            return describe(manifest, entry)

        def begin(work: Any) -> None:
            stage.scheduler.spawn("A, aside", work, "A")

        self.saver = Saver(commit, begin, of=RUN)
        for n in range(SAVES):
            await Pause()
            self._check_loss(stage)
            if not await self._offer(n):
                break
            if n in self.flushes:
                await self._flush()
        self.saver.end()
        await self._flush()
        self.ended = True
        if not self.faulty and not self.fenced:
            assert self.committed[-1] == SAVES - 1, f"the last save was not committed: {self.committed}"
        await claim.settle()

    async def _offer(self, n: int) -> bool:
        """Offer a save until it is taken, as one does who goes on after a passing error."""
        while True:
            try:
                start = n in KEPT or (n + 1) % self.every == 0
                pending = self.saver.offer(n, keep=n in KEPT, start=start, room=self.room)
            except ConflictError as error:
                self.fenced = True
                self.told.append(error)
                return False
            except StorageError as error:
                self.told.append(error)
                continue
            if pending is not None:
                self.offered.append(n)
                return True
            first = self.saver.outcomes()[:1]
            await Pause(lambda first=first: all(one.done() for one in first))  # type: ignore[misc]

    async def _flush(self) -> None:
        waiting = self.saver.outcomes()
        await Pause(lambda: all(one.done() for one in waiting))
        try:
            self.saver.tell()
        except CloudckptError as error:
            self.fenced = self.fenced or isinstance(error, ConflictError)
            self.told.append(error)
        else:
            if not self.failed and self.offered:
                assert self.committed[-1] == self.offered[-1], "a flush left a save that is not durable"

    # ---- laws

    def _check_loss(self, stage: Stage) -> None:
        """Hold what is durable against what a crash may cost by now."""
        if self.failed or self.fenced or not self.offered:
            return
        stored = by_hand(stage.inner.read(keys.manifest_key(RUN)))
        assert stored is not None
        manifest = decode_manifest(stored.data, RUN)
        if manifest.epoch > 1:
            return
        durable = max(self.committed, default=-1)
        lost = self.offered[-1] - max(durable, -1)
        assert lost <= self.saver.pending, (
            f"{lost} saves would be lost, and pending says {self.saver.pending}"
        )

    def check_end(self) -> None:
        assert self.committed == sorted(set(self.committed)), f"out of order: {self.committed}"
        if self.ended and not self.failed:
            assert set(KEPT) & set(self.offered) <= set(self.committed), "a kept save was passed over"
        if self.ended and self.failed:
            assert self.told, f"nobody was told of {self.failed}"
            assert self.told[0] is self.failed[0], "it was not the first error"

    async def resume(self, stage: Stage, effects: Effects) -> None:
        """B, who goes on when A is dead: it finds all but what was pending."""
        await Pause(lambda: "A" in stage.scheduler._dead or self.ended)
        if not hasattr(self, "saver"):
            return
        known = (self.offered[-1] if self.offered else -1) - self.saver.pending
        loaded = await load(stage.storage(effects), effects, RUN)
        found = decode(loaded.data)["n"] if loaded else -1
        if not self.failed:
            assert found >= known, f"{found} is older than {known}: more was lost than was pending"
