"""Repair beside an agent and operators at work: what they expire and replace meanwhile is no damage."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.errors import CorruptCheckpointError, StaleStateError
from cloudckpt.retention import Retention
from cloudckpt.storage.contract import Stored
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol.test_history import RUN, World, small, state_of

__all__ = ["small"]

_names = itertools.count()


class Watched(MemoryStorage):
    """Memory in which something happens before one of the next reads of an object."""

    def __init__(self, name: str, acts: list[Callable[[str], Any]]) -> None:
        super().__init__(name)
        self._acts = acts

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        if key.startswith(keys.OBJECTS) and self._acts:
            self._acts.pop(0)(key)
        return await super().read(key, offset=offset, length=length)


class Agent:
    """An agent of which only the newest checkpoint is kept, and one by a tag."""

    def __init__(self) -> None:
        self.name = f"beside-{next(_names)}"
        self.store = Store(lambda: MemoryStorage(self.name), keep_last=1)
        self.run = self.store.run("r")
        self.run.save({"n": 0, "blob": os.urandom(40_000)}, tags=["first"])
        self.save()

    def save(self, _: str = "") -> None:
        """Each save deletes the one before it at once."""
        self.run.save({"n": 1, "blob": os.urandom(40_000)})
        self.store._core.call(self.store._core._sweeper.settle())

    def repaired(self, saves: int, **options: Any) -> Any:
        watched = Watched(self.name, [self.save] * saves)
        return Store(lambda: watched).run("r").repair(**options)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("saves", [1, 2])
def test_a_checkpoint_that_expires_while_it_is_looked_at_is_not_damaged(saves: int, dry_run: bool) -> None:
    """It was taken for damaged, and the tagged one, hours old, for the newest intact."""
    agent = Agent()
    done = agent.repaired(saves, dry_run=dry_run)
    assert (done.back_to, done.seq, done.left) == (None, None, ())
    agent.save()


def test_who_can_not_look_as_fast_as_somebody_saves_is_told_that() -> None:
    agent = Agent()
    agent.run.untag("first", seq=1)
    with pytest.raises(StaleStateError, match="saves"):
        agent.repaired(100)


def test_that_no_checkpoint_is_intact_is_said_of_a_run_that_stands_still() -> None:
    agent = Agent()
    agent.run.untag("first", seq=1)
    agent.save()
    core = agent.store._core
    core.call(core.storage.delete([row.key for row in core.call(core.storage.list(keys.OBJECTS)).rows]))
    with pytest.raises(CorruptCheckpointError, match="no checkpoint of the run is intact"):
        agent.repaired(0)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_page_that_is_replaced_while_it_is_looked_at_is_not_lost(dry_run: bool) -> None:
    """It was said to be lost with all that it holds; or, as it has held checkpoints, to be held."""
    for at in itertools.count():
        world = World(rules=Retention(keep_last=100))
        agent = world.store.run(RUN)
        agent.hold("case 7", seq=2)
        lost = agent.find(seq=9)
        by_hand(
            world.inner.delete(
                [
                    row.key
                    for row in by_hand(world.inner.list(keys.OBJECTS)).rows
                    if f"/{lost.seq}-" in row.key
                ]
            )
        )
        acts = [*[lambda _: None] * at, lambda _, agent=agent: agent.tag("again", seq=2)]
        watched = Watched(world.inner.url.removeprefix("memory://"), acts)
        done = Store(lambda watched=watched: watched).run(RUN).repair(drop_damaged=True, dry_run=dry_run)
        assert (done.back_to, done.dropped, done.lost, done.left) == (None, (9,), 0, ())
        assert agent.load(seq=2) == state_of(2)
        if acts:
            break
    assert at > 10, "it reads pages"
