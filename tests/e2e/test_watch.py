"""What a watch is for, on real connections: the save after a long call finds one that is open.

Nothing is timed: the connections end when the test says so, and are never too old for the client.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest

import cloudckpt
from cloudckpt.errors import FencedError
from cloudckpt.storage import idle
from cloudckpt.store import Store
from tests.servers.base import Server
from tests.servers.idle_proxy import IdleProxy, Moment
from tests.until import until

ENGINES = ["s3fs", "boto3", "obstore"]


@pytest.fixture(params=ENGINES)
def stage(
    request: pytest.FixtureRequest, minio_server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[IdleProxy, Store]]:
    monkeypatch.setattr(idle, "IDLE_SECONDS", 1e6)
    url = f"{minio_server.url}/watch-{secrets.token_hex(4)}"
    with IdleProxy(minio_server.endpoint) as proxy:
        options = minio_server.through(proxy.endpoint).storage_options()
        with cloudckpt.open(url, storage_options=options, engine=request.param) as store:
            store.run("first").save({})  # connects, and probes
            yield proxy, store


def opened_by_a_save_after_a_pause(stage: tuple[IdleProxy, Store], *, looks: int) -> int:
    """Return how many connections a save opens after the store has closed all, and some looks since.

    The least of a few: a client's pool may take a connection back a moment after the answer,
    when the next request has begun to open another.
    """
    return min(_opened(stage, looks) for _ in range(5))


def _opened(stage: tuple[IdleProxy, Store], looks: int) -> int:
    proxy, store = stage
    with store.run("r") as run:
        run.save({"n": 1})
        proxy.retire(Moment.IDLE, reset=False)
        for _ in range(looks):  # as a watch does it, and not while the save is under way
            store._core.call(run._claimed().look())
        opened = proxy.opened
        run.save({"n": 2})
    return proxy.opened - opened


def test_without_a_watch_the_save_after_a_pause_pays_for_a_connection(
    stage: tuple[IdleProxy, Store],
) -> None:
    assert opened_by_a_save_after_a_pause(stage, looks=0) == 1


def test_a_look_has_opened_it_before(stage: tuple[IdleProxy, Store]) -> None:
    assert opened_by_a_save_after_a_pause(stage, looks=1) == 0


def test_a_watch_sends_one_kind_of_request_and_ends_with_the_run(stage: tuple[IdleProxy, Store]) -> None:
    proxy, store = stage
    with store.run("r", watch=0.02) as run:
        run.save({"n": 1})
        before = len(proxy.requests)
        until(lambda: len(proxy.requests) >= before + 3)
        assert {request.method for request in proxy.requests[before:]} == {"GET"}
    after = len(proxy.requests)
    time.sleep(0.1)
    assert len(proxy.requests) <= after + 1, "one may have been under way"


def test_a_watch_tells_of_a_fence_by_another_machine(stage: tuple[IdleProxy, Store]) -> None:
    _, store = stage
    with store.run("r", watch=0.02) as run:
        run.save({"n": 1})
        with store.run("r") as other:
            other.save({"n": 2})
        until(lambda: run.fenced)
        with pytest.raises(FencedError):
            run.save({"n": 3})
