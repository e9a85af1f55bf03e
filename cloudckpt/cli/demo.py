"""``cloudckpt demo``."""

from __future__ import annotations

import sys

import click

from cloudckpt.demo.gauntlet import KILLS
from cloudckpt.demo.show import run_and_show
from cloudckpt.demo.survey import MODULES


@click.command("demo")
@click.argument("url", required=False, envvar="CLOUDCKPT_URL")
@click.option("--kills", default=KILLS, show_default=True, help="How often the agent is killed.")
@click.option(
    "--seed", type=int, help="Decides where the kills fall, as far as timing lets it. [default: a new one]"
)
@click.option(
    "--modules", default=MODULES, show_default=True, help="Size of the job: one module is one step."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document at the end, and nothing before."
)
def command(url: str | None, kills: int, seed: int | None, modules: int, as_json: bool) -> None:  # noqa: FBT001
    """Kill an agent at random moments, resume it elsewhere, compare.

    The agent writes a report on modules of the Python standard library, one a
    step; the model is scripted, its tools are real. It runs in a process of its
    own, is killed with SIGKILL, and goes on in a new process on an empty disk.
    In the end the report must equal, byte for byte, that of a run nobody
    killed, and no kill may have cost more than one step. Exit code 1 if not.

    URL is the store, such as s3://bucket/prefix: both runs stay in it. Without
    one it is what CLOUDCKPT_URL names, and without that a temporary folder,
    removed at the end.
    """
    sys.exit(0 if run_and_show(url, kills=kills, seed=seed, modules=modules, as_json=as_json) else 1)
