"""The store's own rules: set by several at once, over a network that loses and doubles answers."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.errors import (
    AmbiguousError,
    ConflictError,
    CorruptCheckpointError,
    PreconditionFailedError,
    ThrottledError,
    UnsupportedFormatError,
)
from cloudckpt.retention import Retention
from cloudckpt.sealed import seal
from cloudckpt.storage.contract import Data, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol.scripted import Act, echoed, failing, fine, lost, unanswered

_names = itertools.count()
RULES = Retention(keep_last=3)


class Place(MemoryStorage):
    """Memory with a script for the writes of the settings."""

    def __init__(self) -> None:
        super().__init__(f"settings-{next(_names)}")
        self.script: deque[Act] = deque()

    async def create(self, key: str, data: Data) -> Token:
        return await self._next(key, lambda: super(Place, self).create(key, data))

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._next(key, lambda: super(Place, self).replace(key, data, token))

    def check_placing(self, placing: Any) -> None:
        """It can do anything."""

    async def _next(self, key: str, go: Any) -> Token:
        ours = key == keys.SETTINGS_KEY and self.script
        return str(await (self.script.popleft() if ours else fine)(go))


@pytest.fixture(params=[False, True], ids=["first", "again"])
def place(request: pytest.FixtureRequest) -> Place:
    place = Place()
    if request.param:
        Store(lambda: place).set_retention(Retention(keep_last=7, min_keep=2))
    return place


@pytest.mark.parametrize("act", [lost, unanswered, echoed, failing(ThrottledError("slow down"))])
def test_rules_are_set_whatever_is_answered(place: Place, act: Act) -> None:
    """A client library sends again by itself, and "the key exists" is what its own success gets."""
    place.script.append(act)
    store = Store(lambda: place)
    store.set_retention(RULES)
    assert store.get_retention() == RULES


def test_who_sets_rules_at_the_same_time_as_another_keeps_that_ones_lock(place: Place) -> None:
    """The rules that are set say nothing of a lock, so it stays."""
    store = Store(lambda: place)
    other = Retention(keep_last=9, lock="governance:30d")

    async def overtaken(go: Any) -> Any:
        await Store(lambda: place)._set_retention(other)
        return await go()

    place.script.append(overtaken)
    store.set_retention(RULES)
    assert store.get_retention() == Retention(keep_last=3, lock="governance:30d")


@pytest.mark.parametrize(
    ("act", "error"), [(lost, AmbiguousError), (failing(ThrottledError("slow down")), ThrottledError)]
)
def test_what_never_gets_through_is_told(place: Place, act: Act, error: type[Exception]) -> None:
    place.script.extend([act] * 100)
    with pytest.raises(error):
        Store(lambda: place, timeout=0.2).set_retention(RULES)


def test_who_is_always_overtaken_is_told_that(place: Place) -> None:
    place.script.extend([failing(PreconditionFailedError("another was faster"))] * 100)
    with pytest.raises(ConflictError, match="all the time"):
        Store(lambda: place, timeout=0.2).set_retention(RULES)


@pytest.mark.parametrize("data", [b"{", seal({"format": 1, "retention": {"keep_last": "ten"}})])
def test_damaged_settings_say_what_to_do_and_that_helps(data: bytes) -> None:
    place = Place()
    by_hand(place.put(keys.SETTINGS_KEY, data))
    store = Store(lambda: place)
    for act in (store.get_retention, lambda: store.run("r").save(1), lambda: store.set_retention(RULES)):
        with pytest.raises(CorruptCheckpointError, match="take them away by") as told:
            act()
        assert told.value.key == keys.SETTINGS_KEY
    by_hand(place.delete([keys.SETTINGS_KEY]))
    store.set_retention(RULES)
    store.run("r").save(1)
    assert store.run("r").summary().retention.keep_last == 3


def test_settings_of_a_newer_release_are_left_alone() -> None:
    place = Place()
    by_hand(place.put(keys.SETTINGS_KEY, seal({"format": 99})))
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        Store(lambda: place).set_retention(RULES)
