"""Real processes, killed and stopped at random, on real stores: one order explains what all were told.

The short form; ``python -m tests.soak histories`` is the long one. A failure names its
seed and the folder in which the histories are kept.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from tests.protocol.processes import run_program
from tests.servers.base import Server

SECONDS = 10.0


def contest(url: str, options: dict[str, Any]) -> None:
    seed = secrets.randbelow(10**6)
    figures = run_program("tests.protocol.histories.contest", url, options, seed, SECONDS)
    print(figures)
    assert figures["kills"] >= 2
    assert figures["stops"] >= 4
    assert figures["takeovers"] >= 10
    assert figures["acknowledged"] >= 30
    assert figures["refused"] >= 10
    assert figures["loads"] >= 30


def test_one_order_explains_what_processes_were_told_on_a_folder(tmp_path: Path) -> None:
    contest(f"file://{tmp_path}", {})


def test_one_order_explains_what_processes_were_told_on_a_real_server(racing_server: Server) -> None:
    """Zombies included: each process may stop anywhere, and go on after others took over."""
    contest(f"{racing_server.url}/{secrets.token_hex(4)}", racing_server.storage_options())
