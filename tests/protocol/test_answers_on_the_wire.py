"""Answers that get lost between an engine and a real server: what a save is told is what happened.

Owns: the matrix of writes, fates and engines, each with nobody else about, and with
another writer that commits before the first one can look. A proxy does to one write what
a network may do; the server is a real one, and the engine sends requests again by its own
rules. What no proxy can arrange is scripted in tests/protocol/test_lost_answers.py.

Invariant: the other writer, and whoever checks the laws, reach the server directly.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import pytest

import cloudckpt
from cloudckpt.errors import FencedError
from cloudckpt.model import Manifest
from cloudckpt.run import Run
from cloudckpt.storage.engines import engine_for
from cloudckpt.store import Store
from cloudckpt.testing.driver import Client, Driver
from cloudckpt.testing.invariants import Ledger, check_laws
from tests.servers.base import Server
from tests.servers.proxy import Proxy
from tests.servers.wire_faults import Effect, Fault

PATIENCE = 0.25
"""Seconds for which a client waits in vain."""

HASTY = {
    "s3": {"config_kwargs": {"read_timeout": PATIENCE}},
    "gs": {"requests_timeout": PATIENCE},
    "az": {"read_timeout": PATIENCE},
}
"""Kind of store to the options by which each of its engines waits no longer than that."""

FATES = {
    "cut-before": [Effect.DROP_REQUEST],
    "cut-before-twice": [Effect.DROP_REQUEST] * 2,  # aiohttp sends a PUT again by itself, once
    "cut-after": [Effect.DROP_ANSWER],
    "500-after": [Effect.ANSWER_500],
    "503-after": [Effect.ANSWER_503],
    "timeout-after": [Effect.NO_ANSWER],
    "late-before-retry": [Effect.LATE_BEFORE_RETRY],
    "late-after-retry": [Effect.LATE_AFTER_RETRY],
}

NO_READ_BACK = ("cut-before", "late-before-retry", "late-after-retry")
"""Where a library that sends the request again by itself leaves nothing to read back for."""

LARGE = secrets.token_bytes(40_000)
"""More than rides in a manifest."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a save.

    Attributes:
        path: Where it goes.
        seq: How many checkpoints the run has before.
        is_ours: Whether the one that saves is the run's writer already.
        blob: What the state holds besides.
    """

    path: str
    seq: int
    is_ours: bool
    blob: bytes = b""


WRITES = {
    "create": Write("manifests/", 0, is_ours=False),
    "take-over": Write("manifests/", 1, is_ours=False),
    "replace": Write("manifests/", 1, is_ours=True),
    "object": Write("objects/", 1, is_ours=True, blob=LARGE),
}


class Place:
    """One engine on one server.

    Attributes:
        proxy: Between the two, but not for `direct` and `raw`.
        store: Through the proxy.
        hasty: The same with little patience.
        direct: Another process's.
        raw: The engine itself.
        upload: The method of its writes.
    """

    def __init__(self, engine: str, server: Server, stack: ExitStack) -> None:
        url = f"{server.url}/{secrets.token_hex(4)}"
        scheme = url.partition(":")[0]
        self.upload = "POST" if engine == "gcsfs" else "PUT"
        self.proxy = stack.enter_context(Proxy(server.endpoint))

        def opened(endpoint: str, **more: Any) -> Store:
            options = {**server.through(endpoint).storage_options(), **more}
            return stack.enter_context(cloudckpt.open(url, engine=engine, storage_options=options))

        self.store = opened(self.proxy.endpoint)
        self.hasty = opened(self.proxy.endpoint, **HASTY[scheme])
        self.direct = opened(server.endpoint)
        driver = Driver()
        stack.callback(driver.close)
        self.raw = Client(driver, engine_for(url, engine=engine, storage_options=server.storage_options())())
        stack.callback(self.raw.close)
        self.direct.run("probed").save({})  # else the first run that is created probes the store


class Scene:
    """A run as it is before the write, its saves, and what they were told.

    Attributes:
        us: Through the proxy.
        other: Another process's, which has not done anything yet.
    """

    def __init__(self, place: Place, write: str, fate: str) -> None:
        self.place = place
        self.write = WRITES[write]
        self.effects = FATES[fate]
        self.ledger = Ledger()
        self.id = secrets.token_hex(4)
        self.us = (place.hasty if Effect.NO_ANSWER in self.effects else place.store).run(self.id)
        self.other = place.direct.run(self.id)
        for _ in range(self.write.seq):
            self.save(self.us if self.write.is_ours else place.direct.run(self.id))

    def arm(self, method: str | None = None, *, meanwhile: Callable[[], object] | None = None) -> None:
        """Let the write have its fate, or with another method what is at the same place."""
        *before, last = (
            Fault(effect, method or self.place.upload, self.write.path) for effect in self.effects
        )
        self.place.proxy.arm(*before, replace(last, meanwhile=meanwhile))

    def save(self, run: Run, blob: bytes = b"") -> int:
        """Save what nobody else saves; return its seq."""
        state = {"unique": secrets.token_hex(8), "blob": blob}
        with self.ledger.asking(state, epoch=run.epoch) as told:
            info = run.save(state)
            told(info)
        return info.seq

    def check(self) -> Manifest:
        """Check the laws; return the manifest."""
        self.ledger.epochs = [run.epoch for run in (self.us, self.other) if run.epoch is not None]
        manifest = self.place.raw.run(check_laws(self.place.raw.storage, self.id, self.ledger))
        assert manifest is not None
        return manifest

    def check_faults(self, *, late_lands: bool = False) -> None:
        """Check that all happened, and what became of a request that came late."""
        assert not self.place.proxy.armed, "the fault did not happen"
        late = self.place.proxy.deliver_late()
        assert len(late) == sum(effect.is_late for effect in self.effects)
        assert set(late) <= ({200, 201} if late_lands else {409, 412})


Places: TypeAlias = Callable[[str, Server], Place]


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    made: dict[tuple[str, str], Place] = {}
    with ExitStack() as stack:

        def place(engine: str, server: Server) -> Place:
            at = (engine, server.name)
            if at not in made:
                made[at] = Place(engine, server, stack)
            return made[at]

        yield place


class OnTheWire:
    """The laws, for each engine on each of its servers: a class below, with the fixture `server`."""

    engine: ClassVar[str]

    @pytest.fixture
    def place(
        self, places: Places, server: Server, fate: str, record_property: Callable[[str, object], None]
    ) -> Place:
        record_property("engine", f"{self.engine} on {server.name}")  # for the table, see conftest.py
        record_property("fate", fate)
        found = places(self.engine, server)
        found.proxy.disarm()  # of what a test left that failed
        found.proxy.deliver_late()
        return found

    @pytest.mark.parametrize("fate", FATES)
    @pytest.mark.parametrize("write", WRITES)
    def test_a_write_in_doubt_happens_exactly_once(self, place: Place, write: str, fate: str) -> None:
        """A library that sends a request again is refused by its own success; so is one that comes late."""
        scene = Scene(place, write, fate)
        scene.arm()
        seq = scene.write.seq + 1
        assert scene.save(scene.us, scene.write.blob) == seq
        scene.check_faults(late_lands=fate == "late-before-retry")
        manifest = scene.check()
        assert (manifest.seq, manifest.epoch) == (seq, 1 + (write == "take-over"))
        assert scene.save(scene.us) == seq + 1
        scene.check()

    @pytest.mark.parametrize("fate", FATES)
    @pytest.mark.parametrize("write", WRITES)
    def test_another_commit_before_the_read_back_turns_nothing_round(
        self, place: Place, write: str, fate: str
    ) -> None:
        """What is read back is the other's, and its history alone tells of ours: won, or fenced."""
        scene = Scene(place, write, fate)
        scene.arm(meanwhile=lambda: scene.save(scene.other))
        happened = fate.endswith("-after")
        succeeds = not scene.write.is_ours or (happened and write == "replace")
        with nullcontext() if succeeds else pytest.raises(FencedError):
            scene.save(scene.us, scene.write.blob)
        scene.check_faults(late_lands=fate == "late-before-retry" and write == "object")
        manifest = scene.check()
        seq = scene.write.seq + 1 + succeeds
        # A run is created, or taken over, once more on top of the other's, who is fenced by that.
        epoch = 2 if scene.write.is_ours else scene.write.seq + 2 + happened
        assert (manifest.seq, manifest.epoch) == (seq, epoch)
        fenced, writer = (scene.us, scene.other) if scene.write.is_ours else (scene.other, scene.us)
        with pytest.raises(FencedError):
            scene.save(fenced)
        assert scene.save(writer) == seq + 1
        scene.check()

    @pytest.mark.parametrize("fate", FATES)
    def test_a_tag_set_before_the_read_back_is_no_lost_race(self, place: Place, fate: str) -> None:
        """It moves the base, and adds no checkpoint: the save puts its object again and goes on."""
        scene = Scene(place, "replace", fate)
        scene.arm(meanwhile=lambda: scene.other.tag("seen", seq=1))
        assert scene.save(scene.us, LARGE) == 2
        scene.check_faults()
        manifest = scene.check()
        assert (manifest.seq, manifest.epoch) == (2, 1)
        assert [entry.tags for entry in manifest.checkpoints] == [(), ("seen",)]

    @pytest.mark.parametrize("fate", [fate for fate in FATES if fate not in NO_READ_BACK])
    def test_a_read_back_that_fails_too_is_done_again(self, place: Place, fate: str) -> None:
        scene = Scene(place, "replace", fate)
        scene.arm()
        scene.arm("GET")
        assert scene.save(scene.us) == 2
        scene.check_faults()
        assert scene.check().seq == 2


class OnMinIO(OnTheWire):
    @pytest.fixture
    def server(self, minio_server: Server) -> Server:
        return minio_server


class OnSeaweedFS(OnTheWire):
    @pytest.fixture
    def server(self, seaweedfs_server: Server) -> Server:
        return seaweedfs_server


class OnAzurite(OnTheWire):
    @pytest.fixture
    def server(self, azurite_server: Server) -> Server:
        return azurite_server


class TestS3fsOnMinIO(OnMinIO):
    engine = "s3fs"


class TestBoto3OnMinIO(OnMinIO):
    engine = "boto3"


class TestObstoreOnMinIO(OnMinIO):
    engine = "obstore"


class TestS3fsOnSeaweedFS(OnSeaweedFS):
    engine = "s3fs"


class TestBoto3OnSeaweedFS(OnSeaweedFS):
    engine = "boto3"


class TestObstoreOnSeaweedFS(OnSeaweedFS):
    engine = "obstore"


class TestGcsfsOnFakeGCS(OnTheWire):
    engine = "gcsfs"

    @pytest.fixture
    def server(self, fake_gcs_server: Server) -> Server:
        return fake_gcs_server


class TestObstoreOnFakeGCS(OnTheWire):
    engine = "obstore"

    @pytest.fixture
    def server(self, gcs_xml_server: Server) -> Server:
        return gcs_xml_server


class TestAdlfsOnAzurite(OnAzurite):
    engine = "adlfs"


class TestObstoreOnAzurite(OnAzurite):
    engine = "obstore"
