"""Real processes that save to one run at the same time, on real servers whose conditions hold in races."""

from __future__ import annotations

import secrets
from typing import Any

from tests.protocol.processes import run_program
from tests.protocol.racing import RACERS, SAVES
from tests.servers.base import Server


def contest(what: str, server: Server) -> list[dict[str, Any]]:
    url = f"{server.url}/{secrets.token_hex(4)}"
    told: list[dict[str, Any]] = run_program("tests.protocol.racing", what, url, server.storage_options())
    return told


def test_the_second_writer_goes_on_and_the_first_is_fenced(racing_server: Server) -> None:
    """And no save of either is missing: the first learns of it at its next save, not later."""
    first, second = contest("takeover", racing_server)
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert first["fenced_by"] == second["pid"], "the error names who took over"
    assert second["fenced_by"] is None
    assert len(second["saved"]) == SAVES
    assert second["saved"][0] == first["saved"][-1] + 1 == second["found"] + 1


def test_of_four_that_begin_a_run_at_once_the_last_to_become_the_writer_goes_on(
    racing_server: Server,
) -> None:
    """Each becomes the writer in turn; whoever is overtaken stops, and no save is lost."""
    told = contest("start", racing_server)
    assert [each["epoch"] for each in told] == list(range(1, RACERS + 1))
    *others, last = told
    assert len(last["saved"]) == SAVES
    assert last["fenced_by"] is None
    pids = {each["pid"] for each in told}
    for each in others:
        assert len(each["saved"]) == SAVES or each["fenced_by"] in pids - {each["pid"]}
