"""The documented loop, exactly as it stands, killed between any two of its lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.loop_process import LOOP, STEPS
from tests.servers.base import ROOT, Server


def killed_everywhere(environment: dict[str, str], *imports: str) -> dict[str, Any]:
    done = subprocess.run(  # noqa: PLW1510 - checked below, with what it said
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.e2e.loop_process",
            uuid.uuid4().hex,
            "cloudckpt.state",
            *imports,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture
def on_a_folder(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    return lambda: killed_everywhere({"CLOUDCKPT_URL": str(tmp_path)})


@pytest.fixture
def on_minio(minio_server: Server) -> Callable[[], dict[str, Any]]:
    url = f"{minio_server.url}/loop-{uuid.uuid4().hex}"
    return lambda: killed_everywhere({"CLOUDCKPT_URL": url, **minio_server.environment()}, "s3fs")


def check(told: dict[str, Any]) -> None:
    expected = "the sum of [0, 1, 100, 121] is 222"
    assert told["undisturbed"] == {"result": expected, "turns": [0, 1, 2], "status": 0}
    lines = {pair["killed"]["line"] for pair in told["pairs"]}
    code = LOOP.splitlines()
    assert lines == {n for n, line in enumerate(code, 1) if n > 3 and line.strip()}, (
        "not every line was tried"
    )
    assert len(told["pairs"]) >= STEPS * 8
    for n, pair in enumerate(told["pairs"]):
        killed, resumed = pair["killed"], pair["resumed"]
        assert (n, killed["status"], resumed["status"]) == (n, -9, 0)
        assert (n, resumed["result"]) == (n, expected)
        assert sorted({*killed["turns"], *resumed["turns"]}) == [0, 1, 2]
        again = [turn for turn in resumed["turns"] if turn in killed["turns"]]
        assert (n, len(again) <= 1) == (n, True), f"steps {again} were done again"


def test_a_kill_between_any_two_lines_on_a_folder_costs_at_most_a_step(
    on_a_folder: Callable[[], dict[str, Any]],
) -> None:
    check(on_a_folder())


def test_a_kill_between_any_two_lines_on_minio_costs_at_most_a_step(
    on_minio: Callable[[], dict[str, Any]],
) -> None:
    check(on_minio())


def test_the_loop_is_the_one_in_the_readme() -> None:
    """A reader copies it from there."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    body = LOOP.split("\n\n")[1].strip()
    assert body in readme
