"""Terraform with a copy of the modules, and the server that the AWS module is applied to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.base import Server, Unavailable
from tests.terraform import judging, waiting
from tests.terraform.tools import SECONDS, Missing, Terraform, prepare


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Terraform:
    try:
        return prepare(tmp_path_factory.mktemp("terraform"), lambda: waiting.allow(pytestconfig, 2 * SECONDS))
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
