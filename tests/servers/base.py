"""What a started server is, and how a server process is started and awaited.

Owns: `Server`, `Unavailable`, and the child process with its folder. Invariant:
a process is ended by its own pid, and its folder goes with it. What is peculiar
to one program is in that program's module.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import botocore.exceptions

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

BUCKET = "cloudckpt-test"
REGION = "us-east-1"
ACCESS_KEY = "cloudckpt"
SECRET_KEY = "cloudckpt-secret"


class Unavailable(Exception):
    """The server can't run here; the message is the reason, for the summary."""


class PortTaken(Unavailable):
    """Somebody took a port between the moment it was chosen and its use; start again."""


@dataclass(frozen=True)
class Process:
    """A child process with a folder of its own, both gone after `stop`."""

    child: subprocess.Popen[bytes]
    folder: Path
    leftovers: tuple[Path, ...] = ()

    def stop(self) -> None:
        """Kill it; its data is thrown away, and a polite end takes up to 15 s. Safe to call twice."""
        self.child.kill()
        self.child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in self.leftovers:
            path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise `Unavailable` if it has ended; `PortTaken` if that was why."""
        code = self.child.poll()
        if code is not None:
            taken = "already in use" in (self.folder / "log").read_text(errors="replace").lower()
            raise (PortTaken if taken else Unavailable)(f"it ended with code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """Return the last line that it wrote."""
        lines = (self.folder / "log").read_text(errors="replace").split("\n")
        return next((line.strip("\0 ") for line in reversed(lines) if line.strip("\0 ")), "it said nothing")


@dataclass(frozen=True)
class Server:
    """A running store that speaks S3, with one empty bucket.

    Attributes:
        name: As in the summary.
        endpoint: ``http://127.0.0.1:PORT``.
        races: Whether its conditional writes hold when they race. One that
            works off its requests one by one proves nothing about races.
        start_seconds: What it took until it was ready.
    """

    name: str
    endpoint: str
    races: bool = True
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    bucket: str = BUCKET
    region: str = REGION
    start_seconds: float = 0.0
    process: Process | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The bucket's root; add ``/prefix``, a new one for each test."""
        return f"s3://{self.bucket}"

    def through(self, endpoint: str) -> Server:
        """Return the same server as reached by another endpoint, such as a proxy's."""
        return replace(self, endpoint=endpoint)

    def storage_options(self, **client: Any) -> dict[str, Any]:
        """Return what s3fs and `cloudckpt.open` take; plain JSON values.

        Args:
            **client: More ``client_kwargs``.
        """
        return {
            "key": self.access_key,
            "secret": self.secret_key,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": self.region, **client},
        }

    def environment(self) -> dict[str, str]:
        """Return the same as environment variables, for a process of its own."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """Return a boto3 client that sends each request once: to look and to damage out of band."""
        return boto3.client(
            "s3",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            endpoint_url=self.endpoint,
            region_name=self.region,
            config=botocore.config.Config(
                retries={"total_max_attempts": 1},
                connect_timeout=5,
                read_timeout=20,
                s3={"addressing_style": "path"},
            ),
        )

    def stop(self) -> None:
        """End the process. Safe to call twice; a server that was there before is left alone."""
        if self.process is not None:
            self.process.stop()


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def spawn(command: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None) -> Process:
    """Start a program that dies with this process, its output in ``folder/log``.

    Args:
        command: An absolute path and its arguments.
        folder: Its own, from `new_folder`; given up to the process.
        environment: Added to a small one: no setting of the user's reaches the server.
    """
    small = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    small |= {"HOME": str(folder), "TMPDIR": str(folder), **(environment or {})}
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(ROOT / "tests/servers/bound.py"), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=small,
        )
    return Process(child, folder)


def new_folder(name: str) -> Path:
    """Return a new temporary folder."""
    return Path(tempfile.mkdtemp(prefix=f"cloudckpt-{name}-"))


def prove_s3(client: Any) -> None:
    """Do a conditional PUT, and see its repetition refused.

    An open port is not enough: SeaweedFS answers long before it can store anything.
    """
    key = f"ready/{time.monotonic_ns()}"
    # By an earlier try of ours, or on a server that was there before.
    with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=BUCKET)
    client.put_object(Bucket=BUCKET, Key=key, Body=b"x", IfNoneMatch="*")
    try:
        client.put_object(Bucket=BUCKET, Key=key, Body=b"y", IfNoneMatch="*")
    except botocore.exceptions.ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:
            client.delete_object(Bucket=BUCKET, Key=key)
            return
        raise
    raise Unavailable("it ignores If-None-Match")


def ready(
    server: Server,
    *,
    timeout: float,
    started: float,
    prove: Callable[[Any], None] = prove_s3,
    passing: tuple[type[Exception], ...] = (
        botocore.exceptions.ClientError,
        botocore.exceptions.BotoCoreError,
    ),
) -> Server:
    """Wait until the server can do what the tests need; return it with its time.

    Args:
        server: Just started.
        timeout: Seconds to wait at most.
        started: When it was, by the monotonic clock.
        prove: Called with the server's client until it raises nothing.
        passing: What `prove` raises as long as the server is not ready.

    Raises:
        Unavailable: It ended, or took longer than `timeout`; it is stopped then.
    """
    client = server.client()
    try:
        while True:
            try:
                prove(client)
                if server.process is not None:
                    server.process.check()  # else it was another run's server that answered on this port
                return replace(server, start_seconds=time.monotonic() - started)
            except passing as error:
                if server.process is not None:
                    server.process.check()
                if time.monotonic() - started > timeout:
                    raise Unavailable(f"it was not ready after {timeout:.0f} s: {error}") from error
            time.sleep(0.1)
    except BaseException:
        server.stop()
        raise
    finally:
        client.close()
