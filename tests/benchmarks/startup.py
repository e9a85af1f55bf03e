"""What `import cloudckpt`, the first use and a cold start cost, in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial

import cloudckpt
from cloudckpt import keys
from tests.benchmarks.lab import Lab
from tests.benchmarks.measure import Figure, Table, medians, milliseconds
from tests.servers.base import ROOT, Server
from tests.servers.proxy import separate

PROGRAMS = {
    "import cloudckpt": ("import cloudckpt", 50),
    "from cloudckpt import Checkpoint": ("from cloudckpt import Checkpoint", None),
    "open a folder, save and load": (
        "import cloudckpt; s = cloudckpt.open('memory://'); s.run('a').save({}); s.run('a').load()",
        None,
    ),
    "open an s3:// store": ("import cloudckpt; cloudckpt.open('s3://bucket')", None),
    "import s3fs (for comparison)": ("import s3fs", None),
}
"""Program, and the target in milliseconds."""

LOAD = """
import cloudckpt
store = cloudckpt.open({url!r}, engine={engine!r}, storage_options={options!r})
if store.run({run!r}).load() != {state!r}:
    raise SystemExit("this is not what was saved")
"""

GET = {
    "boto3": """
import boto3
client = boto3.client(
    "s3",
    endpoint_url={endpoint!r},
    region_name={region!r},
    aws_access_key_id={access_key!r},
    aws_secret_access_key={secret_key!r},
)
if len(client.get_object(Bucket={bucket!r}, Key={key!r})["Body"].read()) != {size!r}:
    raise SystemExit("this is not what was saved")
""",
    "obstore": """
import obstore
from obstore.store import S3Store
store = S3Store(
    {bucket!r},
    config=dict(
        endpoint={endpoint!r},
        region={region!r},
        access_key_id={access_key!r},
        secret_access_key={secret_key!r},
    ),
    client_options=dict(allow_http=True),
)
if len(obstore.get(store, {key!r}).bytes()) != {size!r}:
    raise SystemExit("this is not what was saved")
""",
}
"""Bare scripts that get the same object."""

COLD = 1.2
"""At most this many times the bare script's time."""

RUN = "bench"
STATE = {"step": 1, "messages": ["what an agent said"] * 20}


def run(lab: Lab) -> Iterator[Table]:
    yield _imports(lab)
    server = lab.server()
    yield _cold(lab, server, "no latency", COLD)
    rtt = lab.round_trips[0]
    with separate(server.endpoint, rtt=rtt) as endpoint:
        yield _cold(lab, server.through(endpoint), f"a wire of {rtt * 1e3:.0f} ms", None)


def _imports(lab: Lab) -> Table:
    programs = {"bare": "pass"} | {label: program for label, (program, _) in PROGRAMS.items()}
    took = _processes(programs, lab.rounds(15))
    table = Table(
        "start of a process, over a bare interpreter",
        ("over bare", "whole"),
        (f"medians of processes in turn; a bare one takes {took['bare'] * 1e3:.0f} ms",),
    )
    for label, (_, most) in PROGRAMS.items():
        table.add(
            label,
            Figure((took[label] - took["bare"]) * 1e3, " ms", most),
            Figure(took[label] * 1e3, " ms"),
        )
    return table


def _cold(lab: Lab, server: Server, where: str, most: float | None) -> Table:
    """Compare whole processes: ours imports, opens and loads, the bare script gets the same object."""
    name = lab.name()
    url = f"{server.url}/{name}"
    with cloudckpt.open(url, storage_options=server.storage_options()) as store:
        store.run(RUN).save(STATE)
    key = f"{name}/{keys.manifest_key(RUN)}"
    client = server.client()
    size = client.head_object(Bucket=server.bucket, Key=key)["ContentLength"]
    client.close()
    ours = {"url": url, "run": RUN, "state": STATE, "options": server.storage_options()}
    bare = {
        **{
            word: getattr(server, word)
            for word in ("endpoint", "region", "access_key", "secret_key", "bucket")
        },
        "key": key,
        "size": size,
    }
    programs = {"python": "pass"}
    for engine, script in GET.items():
        programs[engine] = LOAD.format(engine=engine, **ours)
        programs[f"bare {engine}"] = script.format(**bare)
    took = _processes(programs, lab.rounds(24))
    table = Table(
        f"cold start at {where}: import, open and load beside a script that gets the same object",
        ("load", "bare script", "load / bare"),
        (f"medians of whole processes in turn; python alone takes {took['python'] * 1e3:.0f} ms",),
    )
    for engine in GET:
        mine, other = took[engine], took[f"bare {engine}"]
        table.add(engine, milliseconds(mine), milliseconds(other), Figure(mine / other, "x", most))
    return table


def _processes(programs: Mapping[str, str], rounds: int) -> dict[str, float]:
    """Return the median seconds of each program in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled files, as an installed package has them

    def interpreter(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, check=True)

    return medians({name: partial(interpreter, program) for name, program in programs.items()}, rounds=rounds)
