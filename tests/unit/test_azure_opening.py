"""How a store on Azure is opened and closed: credentials, options, and the end of a process."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

pytest.importorskip("adlfs")

from azure.core.credentials import AccessToken

from cloudckpt.errors import AmbiguousError, PermissionDeniedError, StorageError
from tests.servers.base import ROOT, free_ports
from tests.servers.scripted import scripted
from tests.unit.azure_lab import METHODS, WRITTEN, named, with_options


class Credential:
    """What azure.identity hands out, as far as the store looks at it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = 0

    async def get_token(self, *scopes: str, **options: object) -> AccessToken:
        if self.error is not None:
            raise self.error
        return AccessToken("secret", int(time.time()) + 3600)

    async def close(self) -> None:
        self.closed += 1


def account(credential: Credential) -> dict[str, Any]:
    [port] = free_ports(1)
    return {"account_name": "a", "account_host": f"127.0.0.1:{port}", "credential": credential}


def test_a_credential_that_is_not_there_is_told_as_such() -> None:
    """DefaultAzureCredential says so only when a token is wanted."""
    from azure.identity import CredentialUnavailableError

    credential = Credential(CredentialUnavailableError("please log in"))
    with pytest.raises(PermissionDeniedError) as caught:
        with_options(account(credential), METHODS["read"])
    assert caught.value.kind == "no-credentials"


def test_the_callers_own_credential_stays_open() -> None:
    """It may serve other clients."""
    credential = Credential()
    with pytest.raises(AmbiguousError):
        with_options(account(credential), METHODS["read"])
    assert credential.closed == 0


def test_a_credential_that_adlfs_made_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    import adlfs

    made = Credential()
    monkeypatch.setattr(
        adlfs.AzureBlobFileSystem, "_get_default_azure_credential", lambda self, **_: (made, None)
    )
    with pytest.raises(AmbiguousError):
        with_options({**account(made), "credential": None, "anon": False}, METHODS["read"])
    assert made.closed == 1


def test_options_without_an_account_say_what_to_pass() -> None:
    with pytest.raises(PermissionDeniedError, match="connection_string") as caught:
        with_options({"anon": True}, METHODS["read"])
    assert caught.value.kind == "no-credentials"


def test_a_key_that_is_no_key_is_told_before_anything_is_sent() -> None:
    with scripted(WRITTEN) as server:
        options = {"connection_string": named(server.endpoint, key="x")}
        with pytest.raises(PermissionDeniedError):
            with_options(options, METHODS["create"])
        assert server.requests == []


@pytest.mark.parametrize(
    "options",
    [{"connection_string": "nonsense"}, {"account_name": "a", "account_key": 5}],
    ids=str,
)
def test_unusable_options_are_told_as_such(options: dict[str, Any]) -> None:
    with pytest.raises(StorageError) as caught:
        with_options(options, METHODS["read"])
    assert caught.value.kind == "bad-options"


FORKS = """
import asyncio, os, sys
from cloudckpt.storage.azure import AzureStorage

async def main():
    storage = AzureStorage("box", "", storage_options={"connection_string": sys.argv[1]})
    await storage.create("k", b"value")
    await storage.close()

asyncio.run(main())
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_and_its_forked_child_end_in_silence() -> None:
    """By itself adlfs closes its client at the end, on a loop that is closed, or in a child on a dead one."""
    with scripted(WRITTEN) as server:
        done = subprocess.run(
            [sys.executable, "-c", FORKS, named(server.endpoint)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
