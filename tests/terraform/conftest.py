"""Terraform with a copy of the modules, and the server that the AWS module is applied to."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.servers.base import Server, Unavailable
from tests.terraform import judging
from tests.terraform.tools import SECONDS, Missing, Terraform, prepare


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Terraform:
    file = pytestconfig.stash[fault_handler_stderr_fd_key]

    def awake() -> None:
        """Start the watch for deadlocks anew: a command has a time of its own, which is longer."""
        faulthandler.dump_traceback_later(2 * SECONDS, exit=True, file=file)

    try:
        return prepare(tmp_path_factory.mktemp("terraform"), awake)
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def judging_server() -> Iterator[Server]:
    try:
        server = judging.start()
    except Unavailable as error:
        pytest.skip(f"judging: {error}")
    yield server
    server.stop()
