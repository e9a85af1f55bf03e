"""What a run knows of itself while a request of its own is under way, such as one that renews its lease."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.errors import AmbiguousError, FencedError, OutcomeUnknownError
from cloudckpt.history import Which
from cloudckpt.run import Run
from cloudckpt.storage.contract import Data, Stored, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from tests.unit.test_leases import LONG, Clock, manifest

WAIT = 60.0
_names = itertools.count()


class Halting(MemoryStorage):
    """Holds the next request for a manifest up until it may go on, or breaks each.

    Attributes:
        halts: Whether it does.
        here: Set when a request is held up.
        go: Lets it go on.
        broken: Whether no request is answered.
    """

    blocking = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.halts = self.broken = False
        self.here, self.go = threading.Event(), threading.Event()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        await self._passed(key)
        return await super().read(key, offset=offset, length=length)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        await self._passed(key)
        return await super().replace(key, data, token)

    async def _passed(self, key: str) -> None:
        if self.broken:
            raise AmbiguousError("nobody answers")
        if self.halts and key.startswith(keys.MANIFESTS):
            self.halts = False
            self.here.set()
            while not self.go.is_set():  # noqa: ASYNC110 - it is set in another thread
                await asyncio.sleep(0.001)


@pytest.fixture
def storage() -> Halting:
    return Halting(f"holding-{next(_names)}")


@pytest.fixture
def run(storage: Halting) -> Run:
    """A run with one checkpoint, and a lease that is not renewed by itself."""
    run = Store(lambda: storage, clock=Clock(), probed=True, timeout=0.0).run("r", lease=LONG)
    run.save({"n": 1})
    return run


@contextmanager
def under_way(storage: Halting, run: Run, work: Coroutine[Any, Any, Any]) -> Iterator[None]:
    """Let something of a run's be under way in the block."""
    storage.halts = True
    work_aside = run._root.aside(work)
    assert storage.here.wait(WAIT)
    try:
        yield
    finally:
        storage.go.set()
        work_aside.result(WAIT)


async def nothing() -> None:
    pass


WORKS: dict[str, Callable[[Run], Coroutine[Any, Any, Any]]] = {
    "a renewal": lambda run: run._claimed().renew(),
    "a load": lambda run: run._load(Which(), fallback=False),
    "a save": lambda run: run._save(run._draft_of({"n": 2}), None),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_who_asks_meanwhile_is_told_what_stood_before(
    storage: Halting, run: Run, work: Callable[[Run], Coroutine[Any, Any, Any]]
) -> None:
    """A heart beats at any moment: ``save(state, expect=run.head)`` would then expect nothing at all."""
    with under_way(storage, run, work(run)):
        assert (run.head, run.epoch) == (1, 1)
    assert run.epoch == 1


def test_a_run_that_is_left_while_its_heart_beats_is_free(storage: Halting, run: Run) -> None:
    """Else whoever is next would wait until the lease has expired."""
    store = Store(lambda: MemoryStorage(storage.url.removeprefix("memory://")), probed=True)
    with under_way(storage, run, run._claimed().renew()):
        release = run._root.aside(run._claimed().release())
        run._root.call(nothing())  # after which that is under way too
    release.result(WAIT)
    lease = manifest(store).lease
    assert lease is not None
    assert lease.seconds is None


def test_nothing_is_told_of_what_nobody_knows(storage: Halting, run: Run) -> None:
    storage.broken = True
    with pytest.raises(OutcomeUnknownError):
        run.save({"n": 2})
    assert (run.head, run.epoch) == (None, None)
    storage.broken = False
    assert run.load() == {"n": 1}
    assert (run.head, run.epoch) == (1, 1)
    other = Store(lambda: storage, probed=True).run("r", busy="take")
    other.acquire()
    with pytest.raises(FencedError):
        run.save({"n": 2})
    assert (run.head, run.epoch) == (None, None)
