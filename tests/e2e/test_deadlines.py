"""A store that is busy or gone for a while is not noticed; one that stays so is told within the deadline.

By every engine, through a filter before a real store. Time is the test's own where
waiting is ours; only a store that never answers takes real time, by a deadline that
is short.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest

import cloudckpt
from cloudckpt.errors import OutcomeUnknownError, StorageError, ThrottledError
from cloudckpt.storage import retry
from cloudckpt.storage.retry import RetryPolicy
from cloudckpt.store import Store
from tests.protocol.scripted import OwnTime
from tests.servers.base import Server
from tests.servers.canned import Answer, Asked
from tests.servers.gate import BROKEN, Gate, refusal

ENGINES = {
    "s3fs": "moto_server",
    "boto3": "moto_server",
    "obstore-s3": "moto_server",
    "gcsfs": "fake_gcs_server",
    "adlfs": "azurite_server",
    "obstore-az": "azurite_server",
}
BUSY = {
    "503": refusal(503, "SlowDown"),
    "429": refusal(429, "TooManyRequests"),
    "reset": BROKEN,
}
LARGE = os.urandom(40_000)
TIMEOUT = 10.0
MOST_WAIT = RetryPolicy().most


@dataclass
class Place:
    """A new place in a store behind a filter, by one engine."""

    server: Server
    engine: str
    gate: Gate
    name: str

    def open(self, **options: Any) -> Store:
        behind = self.server.through(self.gate.endpoint)
        return cloudckpt.open(
            f"{self.server.url}/{self.name}",
            storage_options=behind.storage_options(),
            engine=self.engine.partition("-")[0],
            **options,
        )


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    server = request.getfixturevalue(ENGINES[request.param])
    with Gate(server.endpoint) as gate:
        yield Place(server, request.param, gate, os.urandom(4).hex())


def each_fails_first(answer: Answer, times: int) -> Callable[[Asked], Answer | None]:
    """Let every request fail so often before it goes through; one that is repeated counts as the same."""
    seen: Counter[tuple[str, str]] = Counter()

    def answers(asked: Asked) -> Answer | None:
        seen[asked.method, asked.path] += 1
        return answer if seen[asked.method, asked.path] % (times + 1) else None

    return answers


def test_a_store_that_is_busy_for_a_while_is_not_noticed(place: Place, own_time: OwnTime) -> None:
    """A 503 of a conditional write may hide that it happened, so this is not just trying again."""
    with place.open(clock=own_time) as store:
        store.run("first").save({})  # a store is tried out once, by keys that are new with every try
        run = store.run("r")
        for n, answer in enumerate(BUSY.values()):
            place.gate.answers = each_fails_first(answer, 2)
            assert run.save({"n": n, "pad": LARGE * (n % 2)}).seq == n + 1
            assert run.load()["n"] == n
        assert run.load(seq=2) == {"n": 1, "pad": LARGE}
        assert [info.seq for info in run.history()] == [3, 2, 1]
    assert 0 < own_time.seconds < 60


def test_a_store_that_stays_busy_is_told_at_the_deadline(place: Place, own_time: OwnTime) -> None:
    """And the run goes on when the store does: from what was acknowledged, or from what was in doubt."""
    with place.open(clock=own_time, timeout=TIMEOUT) as store:
        run = store.run("r")
        run.save({"n": 1})
        head = 1
        for state, answer in (({"n": 2}, BUSY["503"]), ({"n": 3, "pad": LARGE}, BUSY["429"])):
            for act in (lambda state=state: run.save(state), run.load):
                began = own_time.seconds
                place.gate.answers = lambda asked, answer=answer: answer
                with pytest.raises(StorageError) as told:
                    act()
                assert TIMEOUT - MOST_WAIT <= own_time.seconds - began <= TIMEOUT, told.value
            place.gate.answers = lambda asked: None
            head += 1
            assert run.save(state).seq == head
            assert run.load() == state
        place.gate.answers = lambda asked: BUSY["429"]
        with pytest.raises(ThrottledError):
            store.run("r").load()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LEAST_PATIENCE", 0.25)


@contextmanager
def soon() -> Iterator[None]:
    """What is in the block takes less than libraries wait by themselves: 15 to 120 seconds, and twice."""
    began = monotonic()
    try:
        yield
    finally:
        assert monotonic() - began < 12


def at_last(act: Callable[[], Any]) -> Any:
    """Return what an act does: a store that is well may still take longer than is waited for here."""
    end = monotonic() + 60
    while monotonic() < end:
        with suppress(StorageError):
            return act()
    return act()


@contextmanager
def silent() -> Iterator[str]:
    """An endpoint that takes connections and requests, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def unreachable() -> Iterator[str]:
    """An endpoint that does not even take connections: what it has not yet taken fills its queue."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("nobody", "kinds"), [(silent, {"timeout"}), (unreachable, {"unreachable", "timeout"})]
)
def test_a_store_that_never_answers_is_told_within_the_deadline(
    place: Place, nobody: Callable[[], Any], kinds: set[str]
) -> None:
    """A slow machine may take the one for the other, where the library's clocks for both run at once."""
    with nobody() as endpoint:
        place.gate.endpoint = endpoint
        with place.open(timeout=0.6) as store, pytest.raises(StorageError) as raised, soon():
            store.run("r").save({"n": 1})
    assert raised.value.kind in kinds


@pytest.mark.usefixtures("hurried")
def test_a_store_that_falls_silent_in_mid_run_is_told_within_the_deadline(place: Place) -> None:
    """The write may have happened; who asks is told that, and not made to wait for ever to find out."""
    with place.open(timeout=0.6) as store:
        run = store.run("r")
        at_last(lambda: run.save({"n": 1}))
        for state, error in (({"n": 2}, OutcomeUnknownError), ({"n": 2, "pad": LARGE}, StorageError)):
            place.gate.answering.clear()
            with pytest.raises(error), soon():
                run.save(state)
            place.gate.answering.set()
        at_last(lambda: run.save({"n": 3}))
        assert at_last(run.load) == {"n": 3}
