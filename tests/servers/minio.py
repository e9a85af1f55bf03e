"""MinIO, from wherever one is found: an endpoint, a program, or built once by the Go toolchain.

It is AGPL: a program beside the tests, never a dependency and never passed on.

    CLOUDCKPT_TEST_MINIO_URL   http://KEY:SECRET@HOST:PORT of one that runs (default minioadmin twice)
    MINIO_BIN                  the program
    minio on PATH              the program
    ~/.cache/cloudckpt-tests   the program as built here, below XDG_CACHE_HOME where that is set
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.base import (
    ACCESS_KEY,
    SECRET_KEY,
    Server,
    Unavailable,
    free_ports,
    new_folder,
    ready,
    spawn,
)

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
BUILD_SECONDS = 1200


def start() -> Server:
    """Start it, or take the one that `CLOUDCKPT_TEST_MINIO_URL` names.

    Raises:
        Unavailable: With the reason.
    """
    started = time.monotonic()
    url = os.environ.get("CLOUDCKPT_TEST_MINIO_URL")
    if url:
        return ready(_given(url), timeout=15, started=started)
    program = find()
    if program is None:
        raise Unavailable(
            "no program: set MINIO_BIN or CLOUDCKPT_TEST_MINIO_URL, or install Go to have it built"
        )
    port, console = free_ports(2)
    folder = new_folder("minio")
    command = [str(program), "server", str(folder / "data"), "--address", f"127.0.0.1:{port}"]
    command += ["--console-address", f"127.0.0.1:{console}", "--certs-dir", str(folder / "certs")]
    settings = {
        "MINIO_ROOT_USER": ACCESS_KEY,
        "MINIO_ROOT_PASSWORD": SECRET_KEY,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",  # it asks its vendor for a newer release otherwise
    }
    server = Server("minio", f"http://127.0.0.1:{port}", process=spawn(command, folder, environment=settings))
    return ready(server, timeout=60, started=started)


def prepare(say: Callable[[str], None]) -> None:
    """Build the program if `start` would find none and Go is here. It may take minutes.

    Args:
        say: Told before and after.

    Raises:
        Unavailable: The build failed.
    """
    go = shutil.which("go")
    if os.environ.get("CLOUDCKPT_TEST_MINIO_URL") or find() or go is None:
        return
    target = _built()
    say(f"building MinIO {VERSION} once into {target} (about 150 s on two cores)")
    started = time.monotonic()
    # Built aside and moved, so that a build which is cut short leaves nothing that looks like a program.
    aside = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [go, "install", f"github.com/minio/minio@{VERSION}"],
            env={**os.environ, "GOBIN": str(aside)},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            words = done.stderr.strip().splitlines() or ["it said nothing"]
            raise Unavailable(f"go install failed: {words[-1]}")
        os.replace(aside / "minio", target)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"go install took longer than {BUILD_SECONDS} s") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    say(f"built MinIO in {time.monotonic() - started:.0f} s")


def find() -> Path | None:
    """Return the program, or None.

    Raises:
        Unavailable: `MINIO_BIN` is set and is no program.
    """
    named = os.environ.get("MINIO_BIN")
    if named:
        if not os.access(named, os.X_OK):
            raise Unavailable(f"MINIO_BIN is not a program: {named}")
        return Path(named).absolute()
    found = shutil.which("minio")
    if found:
        return Path(found).absolute()
    return _built() if os.access(_built(), os.X_OK) else None


def _built() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "cloudckpt-tests" / "bin" / f"minio-{VERSION}"


def _given(url: str) -> Server:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unavailable(f"CLOUDCKPT_TEST_MINIO_URL is not http://KEY:SECRET@HOST:PORT: {url}")
    port = f":{parts.port}" if parts.port else ""
    return Server(
        "minio",
        f"{parts.scheme}://{parts.hostname}{port}",
        access_key=parts.username or "minioadmin",
        secret_key=parts.password or "minioadmin",
    )
