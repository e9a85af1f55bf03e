"""Real processes, killed and stopped at random, on real stores: one order explains what all were told.

The short form; ``python -m tests.soak histories`` is the long one. A failure names its
seed and the folder in which the histories are kept.
"""

from __future__ import annotations

import secrets
from collections import Counter
from pathlib import Path
from typing import Any

from tests.protocol.processes import run_program
from tests.servers.base import Server

SECONDS = 10.0
CONTESTS = 5
ENOUGH = {"kills": 2, "stops": 4, "takeovers": 10, "acknowledged": 30, "refused": 10, "loads": 30}
"""What must have happened; a machine that is slow takes several contests for it."""


def contest(url: str, options: dict[str, Any]) -> None:
    figures: Counter[str] = Counter()
    for number in range(CONTESTS):
        seed = secrets.randbelow(10**6)
        figures += Counter(
            run_program("tests.protocol.histories.contest", f"{url}/{number}", options, seed, SECONDS)
        )
        print(figures)
        if figures >= Counter(ENOUGH):
            return
    raise AssertionError(f"too little happened to prove anything: {figures}")


def test_one_order_explains_what_processes_were_told_on_a_folder(tmp_path: Path) -> None:
    contest(f"file://{tmp_path}", {})


def test_one_order_explains_what_processes_were_told_on_a_real_server(racing_server: Server) -> None:
    """Zombies included: each process may stop anywhere, and go on after others took over."""
    contest(f"{racing_server.url}/{secrets.token_hex(4)}", racing_server.storage_options())
