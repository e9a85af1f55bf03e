"""Credentials that expire in mid-run get renewed silently, or told as what they are: nothing is lost."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.exceptions import RefreshError
from google.oauth2.credentials import Credentials

import cloudckpt
from cloudckpt.errors import PermissionDeniedError
from cloudckpt.storage import retry
from cloudckpt.store import Store
from tests.protocol.scripted import OwnTime
from tests.servers.base import REGION, Server
from tests.servers.canned import Answer, Asked
from tests.servers.gate import Gate, refusal
from tests.servers.logins import Logins

LARGE = os.urandom(40_000)
SMALL_THEN_LARGE: tuple[Any, ...] = ({"n": 2}, {"n": 3, "pad": LARGE})

OBSTORE_KEEPS = 0.15
"""Seconds for which obstore takes what it was just given, however soon that ends: a tenth, and some."""

by_engines_of_s3 = pytest.mark.parametrize("engine", ["s3fs", "boto3", "obstore"])


@pytest.fixture
def place() -> str:
    return os.urandom(4).hex()


# Renewed.


@pytest.fixture
def logins(moto_server: Server) -> Iterator[Logins]:
    with Logins() as logins:
        yield logins


@pytest.fixture
def gate(moto_server: Server, logins: Logins) -> Iterator[Gate]:
    with Gate(moto_server.endpoint) as gate:
        gate.answers = logins.check
        yield gate


def open_s3(server: Server, gate: Gate, place: str, engine: str, **options: Any) -> Store:
    given = {"endpoint_url": gate.endpoint, "client_kwargs": {"region_name": REGION}}
    return cloudckpt.open(
        f"{server.url}/{place}",
        engine=engine,
        storage_options={**given, **options.pop("more", {})},
        **options,
    )


def let_ask(engine: str) -> None:
    """Return when the engine asks for credentials again."""
    if engine == "obstore":
        time.sleep(OBSTORE_KEEPS)


@pytest.mark.parametrize("source", [Logins.process, Logins.container, Logins.web_identity])
@by_engines_of_s3
def test_credentials_that_can_be_renewed_are(
    engine: str,
    source: Callable[[Logins, Path], dict[str, str]],
    moto_server: Server,
    gate: Gate,
    logins: Logins,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if engine == "obstore" and source is Logins.web_identity:
        pytest.skip("obstore speaks to STS by https only")
    for name, value in source(logins, tmp_path).items():
        monkeypatch.setenv(name, value)
    with open_s3(moto_server, gate, place, engine) as store:
        run = store.run("r")
        run.save({"n": 1})
        for state in SMALL_THEN_LARGE:
            let_ask(engine)
            logins.revoke()
            run.save(state)
        let_ask(engine)
        logins.revoke()
        assert run.load() == SMALL_THEN_LARGE[-1]
    assert len(logins.used) >= 3


@by_engines_of_s3
def test_a_source_of_credentials_that_fails_for_a_while_is_waited_for(
    engine: str,
    moto_server: Server,
    gate: Gate,
    logins: Logins,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_time: OwnTime,
) -> None:
    """Nothing was sent without credentials, so nothing is in doubt when the deadline is over."""
    monkeypatch.setattr(retry, "LEAST_PATIENCE", retry.MOST_PATIENCE)  # the server may be slow, too
    for name, value in logins.process(tmp_path).items():
        monkeypatch.setenv(name, value)
    with open_s3(moto_server, gate, place, engine, clock=own_time, timeout=3.0) as store:
        run = store.run("r")
        run.save({"n": 1})
        let_ask(engine)
        logins.failures = 2
        assert run.save({"n": 2}).seq == 2
        assert logins.failures == 0
        let_ask(engine)
        logins.failures = float("inf")
        with pytest.raises(PermissionDeniedError, match="intact") as raised:
            run.save({"n": 3})
        assert raised.value.kind == "credentials-unavailable"
        logins.failures = 0
        assert run.load() == {"n": 2}
        assert run.save({"n": 3}).seq == 3


class Renewable(Credentials):
    """A token of Google's that is a new one whenever it is asked for."""

    def __init__(self, renewals: int) -> None:
        super().__init__("token-0")
        self._left = renewals
        self._refresh_token = "renewable"

    def refresh(self, request: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise RefreshError("revoked")
        self.token = f"token-{os.urandom(4).hex()}"


def test_a_token_of_googles_that_ends_early_is_renewed_once(fake_gcs_server: Server, place: str) -> None:
    """By its own expiry it had an hour left. A 401 was not done, so sending it again is safe."""
    ended = set()

    def answers(asked: Asked) -> Answer | None:
        return Answer(401, b"Invalid Credentials") if asked.headers["Authorization"] in ended else None

    with Gate(fake_gcs_server.endpoint) as gate:
        gate.answers = answers
        options = {**fake_gcs_server.through(gate.endpoint).storage_options(), "token": Renewable(2)}
        with cloudckpt.open(f"{fake_gcs_server.url}/{place}", storage_options=options) as store:
            run = store.run("r")
            run.save({"n": 1})
            for state in SMALL_THEN_LARGE:
                ended.add(gate.requests[-1].headers["Authorization"])
                run.save(state)
            ended.add(gate.requests[-1].headers["Authorization"])
            with pytest.raises(PermissionDeniedError, match="intact"):
                run.save({"n": 4})
            assert len(ended) == 3
    assert load(fake_gcs_server, place) == SMALL_THEN_LARGE[-1]


# Told.

SAS_ENDED = (
    "<AuthenticationErrorDetail>Signature not valid in the specified time frame: Start [Sat, 01 Jan 2030 "
    "00:00:00 GMT] - Expiry [Sat, 01 Jan 2030 01:00:00 GMT] - Current [Sat, 01 Jan 2030 01:00:09 GMT]"
    "</AuthenticationErrorDetail>"
)
ENDED: dict[str, tuple[str, str, Answer, str]] = {
    **{
        f"{engine}-{code}": ("moto_server", engine, refusal(status, code), kind)
        for engine in ("s3fs", "boto3", "obstore")
        for status, code, kind in (
            (400, "ExpiredToken", "credentials-expired"),
            (403, "InvalidAccessKeyId", "credentials"),
        )
    },
    "gcsfs": ("fake_gcs_server", "gcsfs", Answer(401, b"Invalid Credentials"), "credentials"),
    **{
        f"{engine}-sas": (
            "azurite_server",
            engine,
            refusal(403, "AuthenticationFailed", SAS_ENDED),
            "credentials-expired",
        )
        for engine in ("adlfs", "obstore")
    },
}


TOLD = re.compile("expired.*intact")


def load(server: Server, place: str) -> Any:
    """Load what is there with credentials that are good, as after a new login."""
    with cloudckpt.open(f"{server.url}/{place}", storage_options=server.storage_options()) as store:
        return store.run("r").load()


@pytest.mark.parametrize("state", SMALL_THEN_LARGE, ids=["small", "large"])
@pytest.mark.parametrize("ended", ENDED)
def test_credentials_that_have_ended_are_told_and_nothing_is_lost(
    ended: str, state: Any, place: str, request: pytest.FixtureRequest
) -> None:
    """At each request of a save, one or two: what was acknowledged is loaded after a new login."""
    name, engine, answer, kind = ENDED[ended]
    server: Server = request.getfixturevalue(name)
    with Gate(server.endpoint) as gate:
        options = server.through(gate.endpoint).storage_options()
        if engine == "gcsfs":
            options["token"] = Credentials("bare")
        for good in range(1 if state is SMALL_THEN_LARGE[0] else 2):
            with cloudckpt.open(
                f"{server.url}/{place}", storage_options=options, engine=engine, timeout=20.0
            ) as store:
                run = store.run("r")
                run.save({"n": good})
                sent = len(gate.requests)
                gate.answers = lambda asked, end=sent + good: answer if len(gate.requests) > end else None
                with pytest.raises(PermissionDeniedError, match=TOLD) as raised:
                    run.save(state)
                assert raised.value.kind == kind
                with pytest.raises(PermissionDeniedError, match=TOLD):
                    run.load()
                gate.answers = lambda asked: None
            assert load(server, place) == {"n": good}
