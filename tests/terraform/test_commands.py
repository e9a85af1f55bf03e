"""docs/security.md says which role each command needs: each is called under that role, and one below."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cloudckpt
from cloudckpt.cli.commands import COMMANDS, cli
from cloudckpt.errors import WaitingError
from cloudckpt.storage import engines
from cloudckpt.storage.s3_boto3 import Boto3Storage
from tests.servers.base import ROOT, Server
from tests.terraform.lives import OTHER, RUN, Place, noise

PAGE = (ROOT / "docs" / "security.md").read_text()
LEVELS = ("reader", "writer", "maintainer")
OF_THEIR_OWN = {"completion", "demo", "gauntlet"}
"""Commands without a store, or with one that they make and remove."""

LEFT = f"objects/{RUN}/9-{'0' * 64}-{'0' * 16}"

CALLS = {
    "actions": f"actions {RUN}",
    "annotate": f"annotate {RUN} note=x",
    "answer": f"answer {RUN} yes",
    "cat": f"cat {RUN}",
    "collect": "collect",
    "copy": "copy {elsewhere} {url}",
    "delete": f"delete {RUN} --yes",
    "diff": f"diff {RUN}@1 {RUN}@2",
    "doctor": "doctor {url}",
    "export": "export -o {folder}/out.tar",
    "forget": f"forget {RUN} --why done --yes",
    "fork": f"fork {RUN} fork",
    "history": f"history {RUN}",
    "hold": f"hold {RUN} --why case",
    "import": "import {folder}/in.tar",
    "offer": f"offer {OTHER}",
    "release": f"release {RUN}@1",
    "repair": f"repair {RUN} --yes --drop-damaged",
    "restore": f"restore {RUN}@2",
    "retain": "retain --default --keep-last 2 --apply --yes",
    "rollback": f"rollback {RUN}@1 --yes",
    "runs": "runs --long",
    "show": f"show {RUN}",
    "size": f"size {RUN} --history",
    "submit": "submit job",
    "tag": f"tag {RUN} best",
    "verify": "verify --deep",
    "waiting": "waiting",
    "watch": f"watch {RUN} --once",
    "work": "work --once --prefix offered -- {python} -c pass",
}


CODES = {"diff": 1}
"""How a command ends that did its work, where not by 0: these two checkpoints differ."""


def prepared(server: Server, folder: Path, command: str) -> Place:
    """Return a store with runs as an agent leaves them, and what a command needs beside."""
    folder.mkdir()
    place = Place(server)
    with place.store() as store, store.run(RUN, keep_last=9) as run:
        for step in range(3):
            run.save({"step": step, "text": noise()})
        run.hold("a case", seq=1)
        store.run(OTHER).save({"step": 0})
        if command == "answer":
            with suppress(WaitingError):
                run.wait("go on?")
        store.submit("offered", {"step": 0})
    bucket = place.setting.bucket
    with cloudckpt.open(str(folder / "elsewhere")) as other:
        with other.run("from-elsewhere") as run:
            run.save({"text": noise()})
        with (folder / "in.tar").open("wb") as file:
            other.export(["from-elsewhere"], file)
    if command == "collect":
        place.client.put_object(Bucket=bucket, Key=place.setting.prefix + LEFT, Body=b"left by a crash")
    if command in ("delete", "forget"):
        with place.store() as store:
            store.run(RUN).release(seq=1)
    if command == "repair":
        place.client.delete_object(Bucket=bucket, Key=place.objects(RUN)[1])
    if command == "restore":
        place.freeze(place.objects(RUN)[1])
    return place


def is_enough(role: str, command: str, place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a command does all of its work under a role."""
    watch = place.watch(role)

    def make(bucket: str, prefix: str, **how: Any) -> Boto3Storage:
        return Boto3Storage(bucket, prefix, **{**how, "storage_options": watch.options})

    words = CALLS[command].format(
        url=place.url, folder=folder, elsewhere=folder / "elsewhere", python=sys.executable
    )
    with monkeypatch.context() as patch:
        patch.setitem(engines._ENGINES["s3"], "s3fs", make)
        done = CliRunner().invoke(cli, words.split(), env={"CLOUDCKPT_URL": place.url})
    assert watch.made or watch.denied, "it asked for nothing"
    assert watch.denied or done.exit_code == CODES.get(command, 0), done.stderr
    return not watch.denied


def named() -> list[tuple[str, str]]:
    """Return each command of the page's table, with the role that it needs."""
    table = PAGE.partition("<!-- table: commands -->\n")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.split("\n")[2:]]
    return [
        (command, role.strip()) for role, commands in rows for command in re.findall(r"`([^`]+)`", commands)
    ]


ROLE = dict(named())


@pytest.mark.parametrize("command", sorted(CALLS))
def test_a_command_needs_the_role_that_the_page_says_and_no_more(
    command: str, moto_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = ROLE[command]
    place = prepared(moto_server, tmp_path / "whole", command)
    for below in LEVELS[: LEVELS.index(role)][-1:]:
        # A reader changes nothing, whatever it tries; a writer may have done a half.
        tried = place if below == "reader" else prepared(moto_server, tmp_path / "half", command)
        assert not is_enough(below, command, tried, tmp_path / "whole", monkeypatch), f"a {below} is enough"
    assert is_enough(role, command, place, tmp_path / "whole", monkeypatch), f"a {role} is not enough"


def test_the_page_has_every_command_once() -> None:
    assert ROLE.keys() == CALLS.keys() == COMMANDS.keys() - OF_THEIR_OWN
    assert len(named()) == len(ROLE), "each in one row"
