"""A store is asked, once, whether it keeps its conditions; one that doesn't is refused with what was seen."""

from __future__ import annotations

import itertools
import secrets
from typing import Any

import pytest

from cloudckpt import keys, runner
from cloudckpt.errors import (
    AmbiguousError,
    CorruptCheckpointError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
    UnsupportedFormatError,
    UnsupportedStoreError,
)
from cloudckpt.sealed import seal, unseal
from cloudckpt.storage.contract import Data, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import Effect, Fault, FaultyStorage, Plan
from tests.protocol.scripted import OwnTime
from tests.unit.ignoring import IgnoresIfMatch, IgnoresIfNoneMatch

_names = itertools.count()


def memory(kind: type[MemoryStorage] = MemoryStorage) -> MemoryStorage:
    return kind(f"probe-{next(_names)}")


def keys_of(storage: MemoryStorage) -> list[str]:
    return [row.key for row in by_hand(storage.list("")).rows]


class IgnoresAll(IgnoresIfNoneMatch, IgnoresIfMatch):
    pass


class MakesWhatIsMissing(MemoryStorage):
    async def replace(self, key: str, data: Data, token: Token) -> Token:
        with self._space.lock:
            if key not in self._space.values:
                return self._space.write(key, data)
        return await super().replace(key, data, token)


class TellsEveryRacerThatItWon(MemoryStorage):
    """As a gateway does that keeps the condition and answers before it knows."""

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        try:
            return await super().replace(key, data, token)
        except PreconditionFailedError:
            if data.startswith(b"racer"):  # type: ignore[union-attr]
                return "won"
            raise


class TellsEveryRacerThatItLost(MemoryStorage):
    async def replace(self, key: str, data: Data, token: Token) -> Token:
        written = await super().replace(key, data, token)
        if bytes(data).startswith(b"racer"):
            raise PreconditionFailedError("lost")
        return written


@pytest.mark.parametrize(
    ("kind", "findings"),
    [
        (IgnoresIfNoneMatch, ["not second_create_refused"]),
        (IgnoresIfMatch, ["not stale_replace_refused", "not replace_of_missing_refused", "not one_winner"]),
        (IgnoresAll, ["not second_create_refused", "not stale_replace_refused", "not one_winner_of_a_race"]),
        (MakesWhatIsMissing, ["not replace_of_missing_refused"]),
        (TellsEveryRacerThatItWon, ["not one_winner_of_a_race"]),
        (TellsEveryRacerThatItLost, ["not one_winner_of_a_race"]),
    ],
)
def test_a_store_that_breaks_a_promise_is_refused_with_what_was_seen(
    kind: type[MemoryStorage], findings: list[str]
) -> None:
    """At the first use, before anything of a run is written, and again at the next."""
    storage = memory(kind)
    for use in ("acquire", "save"):
        run = Store(lambda: storage).run("r")
        with pytest.raises(UnsupportedStoreError) as caught:
            run.acquire() if use == "acquire" else run.save({})
        shown = str(caught.value)
        for finding in findings:
            assert finding in shown
        assert storage.url in shown
    assert keys_of(storage) == []


def test_the_verdict_is_kept_and_the_probes_keys_are_not() -> None:
    storage = memory()
    Store(lambda: storage).run("r").save({})
    assert sorted(keys_of(storage)) == [keys.STORE_KEY, keys.manifest_key("r")]
    stored = by_hand(storage.read(keys.STORE_KEY))
    assert stored is not None
    document = unseal(stored.data)
    assert set(document["probe"].values()) == {True}
    assert document["format"] == 1
    faulty = FaultyStorage(storage)
    Store(lambda: faulty).run("r2").save({})
    assert not [call for call in faulty.calls if call.key.startswith(keys.PROBES)]


def test_loading_asks_nothing() -> None:
    """Reading is safe on any store, and costs one request."""
    faulty = FaultyStorage(memory(IgnoresAll))
    assert Store(lambda: faulty).run("r").load() is None
    assert [call.op for call in faulty.calls] == ["read"]


@pytest.mark.parametrize("effect", [Effect.LOST_REQUEST, Effect.LOST_ANSWER])
def test_a_lost_answer_does_not_make_a_sound_store_look_broken(effect: Effect) -> None:
    clean = FaultyStorage(memory())
    Store(lambda: clean).run("r").save({})
    for call in range(len(clean.calls)):
        faulty = FaultyStorage(memory(), Plan((Fault(call, effect),)))
        assert Store(lambda faulty=faulty: faulty).run("r").save({}).seq == 1


def test_a_store_that_is_out_of_order_is_not_called_unfit() -> None:
    """Trying later may work, while another store is a decision."""

    class Down(MemoryStorage):
        async def create(self, key: str, data: Data) -> Token:
            raise AmbiguousError("503")

    with pytest.raises(StorageError):
        Store(lambda: memory(Down), timeout=0).run("r").save({})


def test_a_role_that_may_not_delete_can_begin_a_store() -> None:
    class NoDelete(MemoryStorage):
        async def delete(self, _: Any) -> None:
            raise PermissionDeniedError("no right")

    storage = memory(NoDelete)
    assert Store(lambda: storage).run("r").save({}).seq == 1


def test_the_documents_of_a_store_are_checked() -> None:
    storage = memory()
    by_hand(storage.create(keys.STORE_KEY, b"junk"))
    with pytest.raises(CorruptCheckpointError, match="delete this key") as caught:
        Store(lambda: storage).run("r").save({})
    assert caught.value.key == keys.STORE_KEY
    newer = memory()
    by_hand(newer.create(keys.STORE_KEY, seal({"format": 2})))
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        Store(lambda: newer).run("r").save({})
    assert keys_of(newer) == [keys.STORE_KEY]


def test_two_clients_may_probe_at_once() -> None:
    """Each has keys of its own, and the verdict of the first is the store's."""
    storage = memory()

    class Overtaken(FaultyStorage):
        async def create(self, key: str, data: Data) -> Token:
            if key == keys.STORE_KEY:
                Store(lambda: storage).run("other").save({})
            return await super().create(key, data)

    assert Store(lambda: Overtaken(storage)).run("r").save({}).seq == 1


def test_a_store_that_allows_one_write_a_second_to_a_name_is_probed_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Google answers 429 to the second write; a probe that gives up would refuse the best of stores."""
    waits: list[float] = []
    busy: set[str] = set()

    class OneAtATime(MemoryStorage):
        async def create(self, key: str, data: Data) -> Token:
            self._once(key)
            return await super().create(key, data)

        async def replace(self, key: str, data: Data, token: Token) -> Token:
            self._once(key)
            return await super().replace(key, data, token)

        def _once(self, key: str) -> None:
            if key in busy:
                raise ThrottledError("one write a second")
            busy.add(key)

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        busy.clear()

    monkeypatch.setattr(runner, "_sleep", wait)
    assert Store(lambda: OneAtATime(secrets.token_hex(4))).run("r").save({}).seq == 1
    assert [seconds for seconds in waits if seconds >= 1]


def test_a_probe_ends_with_the_deadline_of_the_save_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits longer between its writes than others do, but not longer than its caller has."""

    class Busy(MemoryStorage):
        async def create(self, key: str, data: Data) -> Token:
            raise ThrottledError("not now")

    time = OwnTime()
    monkeypatch.setattr(runner, "_sleep", time.sleep)
    with pytest.raises(ThrottledError):
        Store(lambda: memory(Busy), timeout=2.0, clock=time).run("r").save({})
    assert time.seconds < 2.0 + 2.0


def test_a_verdict_that_can_not_be_kept_now_stops_nobody() -> None:
    """The run is in order, and the next new one asks again."""

    class BusyThere(MemoryStorage):
        async def create(self, key: str, data: Data) -> Token:
            if key == keys.STORE_KEY:
                raise ThrottledError("not now")
            return await super().create(key, data)

    assert Store(lambda: memory(BusyThere)).run("r").save({}).seq == 1
