"""Opening, options and the end of a store."""

from __future__ import annotations

import asyncio
import copy
import itertools
import pickle
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import cloudckpt
from cloudckpt.errors import ClosedError, InvalidInputError
from cloudckpt.format import decode_manifest
from cloudckpt.keys import manifest_key
from cloudckpt.retention import Retention
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol.scripted import OwnTime

_names = itertools.count()


@pytest.fixture
def url() -> str:
    return f"memory://store-{next(_names)}"


def test_opening_reads_and_writes_nothing(tmp_path: Any) -> None:
    """So that a wrong URL is found at the first use, with an error that names what was asked for."""
    store = cloudckpt.open(tmp_path / "not" / "yet")
    assert store.run("r").load() is None
    assert list(store.runs()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_store_shows_its_url(url: str) -> None:
    assert repr(cloudckpt.open(url)) == f"<Store {url}>"


@pytest.mark.parametrize(
    "options",
    [
        *({"keep_last": bad} for bad in (0, -1, 1.5, "3", True)),
        {"retention": 3},
        {"retention": Retention(), "keep_last": 3},
        *(
            {name: bad}
            for name in ("timeout", "latency")
            for bad in (-1, float("inf"), float("nan"), "1", None, True)
        ),
        {"storage_options": 5},
        {"engine": "nonsense"},
    ],
)
def test_an_unusable_option_is_refused_at_once(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        cloudckpt.open(url, **options)
    assert next(iter(options)) in str(caught.value)


def test_times_come_from_the_clock_that_was_given(url: str) -> None:
    """For people; nothing that safety rests on compares them, so a clock that stands still does no harm."""
    clock = OwnTime()
    store = cloudckpt.open(url, clock=clock)
    first = store.run("r").save({})
    second = store.run("r").save({})
    assert first.time == second.time == datetime(2030, 1, 1, tzinfo=UTC)
    stored = by_hand(MemoryStorage(url.removeprefix("memory://")).read(manifest_key("r")))
    assert stored is not None
    assert decode_manifest(stored.data, "r").writer.since == datetime(2030, 1, 1, tzinfo=UTC)


def test_latency_is_added_to_each_request(url: str) -> None:
    cloudckpt.open(url).run("r").save({})
    run = cloudckpt.open(url, latency=0.02).run("r")
    started = time.monotonic()
    run.load()
    assert time.monotonic() - started >= 0.02
    started = time.monotonic()
    run.acquire()
    assert time.monotonic() - started >= 0.04


def test_a_store_is_a_block_that_closes_itself_and_its_runs(url: str) -> None:
    with cloudckpt.open(url) as store:
        run = store.run("r")
        run.save({})
    assert store.closed
    with pytest.raises(ClosedError, match="open it again"), store:
        pass

    async def agent() -> None:
        async with cloudckpt.open(url) as store:
            await store.run("r").asave({})
        await store.aclose()
        with pytest.raises(ClosedError):
            async with store:
                pass
        with pytest.raises(ClosedError):
            async for _ in store.aruns():
                pass

    asyncio.run(agent())


def test_closing_waits_for_what_was_started_aside(url: str) -> None:
    """Objects that are put behind, and deletions of what expired."""
    storage = MemoryStorage(url)

    class Slow(MemoryStorage):
        async def put(self, *arguments: Any) -> None:
            time.sleep(0.02)
            await super().put(*arguments)

    store = Store(lambda: Slow(url), keep_last=1)
    run = store.run("r")
    for n in range(3):
        run.save({"n": n, "blob": secrets.token_bytes(20_000)})
    store.close()
    stored = by_hand(storage.read(manifest_key("r")))
    assert stored is not None
    used = decode_manifest(stored.data, "r").keys()
    assert {row.key for row in by_hand(storage.list("objects/")).rows} <= used.keys()


def test_two_stores_of_one_place_are_independent(url: str) -> None:
    one, other = cloudckpt.open(url), cloudckpt.open(url)
    one.run("r").save({"n": 1})
    one.close()
    assert other.run("r").load() == {"n": 1}


def test_an_error_in_the_block_is_seen_though_the_store_was_closed_in_it() -> None:
    """The end of the block would else raise `ClosedError` in its place."""
    store = cloudckpt.open("memory://closed-in-the-block")

    def block() -> None:
        with store.run("r"):
            store.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()


def test_a_store_that_is_open_obeys_the_rules_that_another_sets(tmp_path: Path) -> None:
    """A service that runs for weeks must not begin runs under the rules of its first day."""
    with cloudckpt.open(tmp_path) as service, cloudckpt.open(tmp_path) as operator:
        service.run("first").save(1)
        operator.set_retention(Retention(keep_last=2))
        service.run("second").save(1)
        rules = [service.run(run).summary().retention.keep_last for run in ("first", "second")]
    assert rules == [10, 2]


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
def test_a_run_and_a_pending_save_say_that_they_stay_in_their_process(url: str, send: Any) -> None:
    """As an argument of a process that is spawned: what was told named a lambda of ours."""
    with cloudckpt.open(url) as store, store.run("r", cadence="background") as run:
        with pytest.raises(TypeError, match=r"store\.run\('r'\)"):
            send(run)
        with pytest.raises(TypeError, match="wait for it"):
            send(run.save({"n": 1}))
