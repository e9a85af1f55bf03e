"""A kept connection that the store closes is replaced: no error, one checkpoint a save, no second's wait.

A store closes what was idle for 5 to 20 seconds and an agent saves every 10 to 60, so a
PUT on a dying connection is the everyday lost answer. Here every connection that was
kept dies: with nothing under way, when the next request's head arrives, or when that
request is done and nobody has heard.

Waits are not timed but added up, as our own layer and the library below ask for them,
and each of ours is as long as chance allows.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, TypeAlias

import pytest

import cloudckpt
from cloudckpt.run import Run
from cloudckpt.storage import idle
from cloudckpt.storage.engines import engine_for
from cloudckpt.store import Store
from cloudckpt.testing.driver import Client, Driver
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.servers.base import Server
from tests.servers.idle_proxy import IdleProxy, Moment

SECOND = 1.0
FOR_EVER = 1e6
KEPT = idle.IDLE_SECONDS
STORES_KEEP = 5.0
"""Seconds that even the most impatient of stores keeps a connection."""
AT_ONCE = 16
A_FEW = 3
TRIES = 5
SMALL = {"n": 1}
LARGE = {"blob": secrets.token_bytes(40_000)}
Death: TypeAlias = tuple[Moment, bool]
"""When, and whether by RST."""

DEATHS = {f"{moment.name}-{how}": (moment, how == "RST") for moment in Moment for how in ("FIN", "RST")}

dying = pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)


@dataclass
class Stage:
    """One engine's store behind a proxy, the server itself, and all the waits that were asked for."""

    proxy: IdleProxy
    store: Store
    raw: Client
    waits: list[float]
    names: Iterator[int] = field(default_factory=count)

    def until_one_died(self, death: Death, act: Callable[[], object], *, spare: int = 0) -> None:
        """Do something while each connection that is open dies; no second's wait may come of it.

        Again, if no request was on one: obstore sometimes has another under way already.
        """
        moment, reset = death
        for _ in range(TRIES):
            before = self.proxy.died
            self.waits.clear()
            self.proxy.retire(moment, reset=reset, spare=spare)
            act()
            assert sum(self.waits) < SECOND
            if self.proxy.died > before:
                return
        pytest.fail("no connection died")


class Writer:
    """A run of a stage's store, whose saves are held against the laws at the end."""

    def __init__(self, stage: Stage) -> None:
        self._raw = stage.raw
        self.run: Run = stage.store.run(f"run-{next(stage.names)}")
        self.ledger = Ledger()
        self.save(SMALL)

    def save(self, state: object) -> None:
        with self.ledger.asking(state, epoch=self.run.epoch) as told:
            told(self.run.save(state))

    def load(self) -> Any:
        return self.run.load()

    def check(self) -> None:
        """See that each save is there exactly once, also as the server itself tells it."""
        manifest = self._raw.run(check_laws(self._raw.storage, self.run.id, self.ledger))
        assert manifest is not None
        assert manifest.seq == len(self.ledger.asked)


@contextmanager
def staged(server: Server, engine: str, *, idle_seconds: float) -> Iterator[Stage]:
    url = f"{server.url}/idle-{secrets.token_hex(4)}"
    waits: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(seconds: float, result: Any = None) -> Any:
        waits.append(seconds)
        return await really_sleep(0, result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        patch.setattr(time, "sleep", waits.append)
        patch.setattr(random.SystemRandom, "uniform", lambda _self, _low, high: high)
        patch.setattr(idle, "IDLE_SECONDS", idle_seconds)
        driver = Driver()
        raw = Client(driver, engine_for(url, storage_options=server.storage_options(), engine=engine)())
        with IdleProxy(server.endpoint) as proxy:
            options = server.through(proxy.endpoint).storage_options()
            with cloudckpt.open(url, storage_options=options, engine=engine) as store:
                store.run("first").save(SMALL)  # connects, and probes
                yield Stage(proxy, store, raw, waits)
        raw.close()
        driver.close()


class DyingConnections:
    """What holds of every engine. A subclass names one, and gives the fixture `server`."""

    engine: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def stage(cls, server: Server) -> Iterator[Stage]:
        """A stage on which every connection is kept, however slow the machine is."""
        with staged(server, cls.engine, idle_seconds=FOR_EVER) as made:
            yield made

    @pytest.fixture
    def later(self, server: Server) -> Iterator[Stage]:
        """A stage on which each request comes when every connection has been idle for too long."""
        with staged(server, self.engine, idle_seconds=0.0) as made:
            yield made

    @dying
    @pytest.mark.parametrize(
        ("state", "spare"), [(SMALL, 0), (LARGE, 0), (LARGE, 1)], ids=["small", "object", "its-manifest"]
    )
    def test_a_save_on_a_dying_connection_happens_once_and_soon(
        self, stage: Stage, death: Death, state: object, spare: int
    ) -> None:
        writer = Writer(stage)
        stage.until_one_died(death, lambda: writer.save(state), spare=spare)
        writer.save(SMALL)
        writer.check()

    @dying
    @pytest.mark.parametrize(
        ("state", "spare"), [(SMALL, 0), (LARGE, 0), (LARGE, 1)], ids=["small", "manifest", "its-object"]
    )
    def test_a_load_on_a_dying_connection_returns_the_state_soon(
        self, stage: Stage, death: Death, state: object, spare: int
    ) -> None:
        writer = Writer(stage)
        writer.save(state)
        reader = stage.store.run(writer.run.id)
        found: list[Any] = []
        stage.until_one_died(death, lambda: found.append(reader.load()), spare=spare)
        assert found
        assert all(each == state for each in found)

    @dying
    def test_a_new_writer_on_a_dying_connection_takes_over_once(self, stage: Stage, death: Death) -> None:
        """Its read and its claim are the first requests after what may have been a long model call."""
        writer = Writer(stage)
        epochs: list[int | None] = []

        def take_over() -> None:
            run = stage.store.run(writer.run.id)
            run.acquire()
            epochs.append(run.epoch)

        stage.until_one_died(death, take_over)
        assert epochs == list(range(2, 2 + len(epochs)))

    @dying
    def test_all_that_one_agent_keeps_may_die_together(self, stage: Stage, death: Death) -> None:
        """It has a few: what it puts aside and what it deletes go beside its saves."""
        writers = [Writer(stage) for _ in range(A_FEW)]
        with ThreadPoolExecutor(A_FEW) as pool:
            while stage.proxy.kept < A_FEW:
                list(pool.map(lambda writer: writer.save(SMALL), writers))
        stage.until_one_died(death, lambda: writers[0].save(LARGE))
        writers[0].check()

    def test_a_connection_that_was_idle_for_too_long_carries_no_request(self, later: Stage) -> None:
        """Saves at once leave many; were each found dead by a try, the waits would add up to a minute."""
        writers = [Writer(later) for _ in range(AT_ONCE)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda writer: writer.save(LARGE), writers))
        later.waits.clear()
        later.proxy.retire(Moment.AT_HEAD, reset=True)
        for writer in writers:
            writer.save(SMALL)
            assert writer.load() == SMALL
            writer.check()
        assert later.proxy.died == 0
        assert sum(later.waits) < SECOND


class OnMinIO(DyingConnections):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, minio_server: Server) -> Server:
        return minio_server


class OnFakeGCS(DyingConnections):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, fake_gcs_server: Server) -> Server:
        return fake_gcs_server


class OnGoogleXML(DyingConnections):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, gcs_xml_server: Server) -> Server:
        return gcs_xml_server


class OnAzurite(DyingConnections):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, azurite_server: Server) -> Server:
        return azurite_server


class TestS3fs(OnMinIO):
    engine = "s3fs"


class TestBoto3(OnMinIO):
    engine = "boto3"


class TestObstoreOnS3(OnMinIO):
    engine = "obstore"


class TestGcsfs(OnFakeGCS):
    engine = "gcsfs"


class TestAdlfs(OnAzurite):
    engine = "adlfs"


class TestObstoreOnGoogle(OnGoogleXML):
    engine = "obstore"


class TestObstoreOnAzure(OnAzurite):
    engine = "obstore"


def test_no_connection_is_kept_for_as_long_as_a_store_keeps_it() -> None:
    """The store's clock starts before ours, and a request takes a while to arrive."""
    assert KEPT <= STORES_KEEP - 1


@pytest.mark.parametrize(("scheme", "kind"), [("s3", "S3Store"), ("gs", "GCSStore"), ("az", "AzureStore")])
def test_obstore_is_told_not_to_wait_and_try_again(
    monkeypatch: pytest.MonkeyPatch, scheme: str, kind: str
) -> None:
    """Its waits are its own threads', so they are not seen above; nor is a write that it sends again."""
    store = pytest.importorskip("obstore.store")
    asked: list[dict[str, Any]] = []

    class Refused(Exception):
        pass

    def made(**options: Any) -> None:
        asked.append(options)
        raise Refused

    monkeypatch.setattr(store, kind, made)
    with pytest.raises(cloudckpt.StorageError):
        cloudckpt.open(f"{scheme}://bucket", engine="obstore").run("r").load()
    assert asked[0]["retry_config"]["max_retries"] == 0
