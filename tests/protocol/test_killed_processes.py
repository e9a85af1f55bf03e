"""Processes that are killed, not simulated: SIGKILL at each storage call of an agent's life."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path
from typing import Any

from tests.protocol.processes import run_program
from tests.servers.base import Server


def check(ended: dict[str, Any]) -> None:
    assert {"read", "replace", "put", "delete"} <= set(ended["calls"])
    killed = ended["codes"].count(-signal.SIGKILL)
    # What is put aside has no fixed number, so the last call of one life may be missing in another.
    assert killed >= len(ended["codes"]) - 4
    assert set(ended["codes"]) <= {0, -signal.SIGKILL}


def test_killed_at_any_call_on_a_folder(tmp_path: Path) -> None:
    check(run_program("tests.protocol.killed", f"file://{tmp_path}", {}))


def test_killed_at_any_call_on_a_real_server(minio_server: Server) -> None:
    url = f"{minio_server.url}/{secrets.token_hex(4)}"
    check(run_program("tests.protocol.killed", url, minio_server.storage_options()))
