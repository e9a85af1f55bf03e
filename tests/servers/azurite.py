"""Azurite, Microsoft's emulator of Azure Storage: its blob service, in memory.

A Node program. First found of: `azurite-blob` on PATH, one installed here by npm
(`fetched.py`).

What it can't do as Azure does: a hierarchical namespace, throttling, and most
words for a refusal (it says AuthorizationFailure to a wrong key and to nobody).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.base import BUCKET, Server, Unavailable, free_ports, new_folder, ready, spawn
from tests.servers.fetched import cache, npm_install

PACKAGE = "azurite@3"
MAIN = "node_modules/azurite/dist/src/blob/main.js"
AWAKE = Path(__file__).with_name("azurite_awake.js")
MEMORY_MIB = 2048

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's one account: public, in Microsoft's documentation."""


@dataclass(frozen=True)
class AzureServer(Server):
    """A running store that speaks Azure's Blob service, with one empty container."""

    access_key: str = ACCOUNT
    secret_key: str = KEY

    @property
    def url(self) -> str:
        return f"az://{self.bucket}"

    @property
    def connection(self) -> str:
        """The connection string."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.access_key};AccountKey={self.secret_key};"
            f"BlobEndpoint={self.endpoint}/{self.access_key};"
        )

    def storage_options(self, **options: Any) -> dict[str, Any]:
        """Return what adlfs and `cloudckpt.open` take; plain JSON values.

        Args:
            **options: More of them.
        """
        return {"connection_string": self.connection, **options}

    def environment(self) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection}

    def client(self) -> Any:
        """Return a client of Azure's own library that sends each request once: to look and to damage."""
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient.from_connection_string(self.connection, retry_total=0)


def start() -> Server:
    """Start it.

    Raises:
        Unavailable: With the reason.
    """
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError

    started = time.monotonic()
    command = find()
    if command is None:
        raise Unavailable("no program: install Node.js with npm to have it installed")
    [port] = free_ports(1)
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    options += ["--inMemoryPersistence", "--extentMemoryLimit", str(MEMORY_MIB)]
    options += ["--skipApiVersionCheck"]  # the client library is often newer than it
    options += ["--disableTelemetry", "--silent"]
    node, *program = command
    process = spawn([node, "--require", str(AWAKE), *program, *options], new_folder("azurite"))
    server = AzureServer("azurite", f"http://127.0.0.1:{port}", process=process)
    refused = (ServiceRequestError, ServiceResponseError)
    return ready(server, timeout=60, started=started, prove=_prove, passing=refused)


def prepare(say: Callable[[str], None]) -> None:
    """Install the program if `start` would find none and npm is here. It may take half a minute.

    Args:
        say: Told before and after.

    Raises:
        Unavailable: The installation failed.
    """
    if find() is None and shutil.which("node") and shutil.which("npm"):
        npm_install(PACKAGE, _installed(), say)


def find() -> list[str] | None:
    """Return the command that starts it, or None."""
    node = shutil.which("node")
    if node is None:
        return None
    found = shutil.which("azurite-blob")
    main = Path(found).resolve() if found else _installed() / MAIN
    return [str(Path(node).absolute()), str(main)] if main.exists() else None


def _installed() -> Path:
    return cache() / PACKAGE.replace("@", "-")


def _prove(client: Any) -> None:
    from azure.core.exceptions import ResourceExistsError

    container = client.get_container_client(BUCKET)
    if not container.exists():
        container.create_container()
    blob = container.get_blob_client(f"ready/{time.monotonic_ns()}")
    blob.upload_blob(b"x", overwrite=False)
    try:
        blob.upload_blob(b"y", overwrite=False)
    except ResourceExistsError:
        blob.delete_blob()
        return
    raise Unavailable("it ignores If-None-Match")
