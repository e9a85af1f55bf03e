"""Fixtures that every suite shares: the real servers, and the list of them at the end of a run.

`moto_server`, `seaweedfs_server`, `minio_server`, `fake_gcs_server` and
`azurite_server` are the one each; `gcs_xml_server` is fake-gcs-server for clients
that speak Google's XML. `s3_server` runs a test on each of the three that speak S3,
`racing_server` on those of them whose conditional writes hold when they race. One
that can't run skips its tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.base import Server, Unavailable
from tests.servers.gcs_xml_proxy import XMLProxy
from tests.servers.registry import PREPARES, STARTS, Servers

SERVERS = pytest.StashKey[Servers]()
SEVERAL = ("s3_server", "racing_server")
ACCOUNTS = ("AWS_", "AZURE_", "GOOGLE_", "GCSFS_", "STORAGE_EMULATOR_HOST", "CLOUDCKPT_URL")


# How long an example takes, or its making, is the machine's affair, which may stand still for a while.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("any machine")
    config.stash[SERVERS] = Servers()
    _isolate()


def _isolate() -> None:
    """Keep the user's accounts, stores and proxies out of the tests and of every process they start."""
    for name in list(os.environ):
        if name.startswith(ACCOUNTS):
            del os.environ[name]
    os.environ |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CLOUDSDK_CONFIG": os.devnull,
        "NO_GCE_CHECK": "true",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what must be built before the first test, whose time-out would end the build."""
    config = session.config
    if config.option.collectonly:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    asked = {name for item in session.items for name in _asked(item)}
    for name in asked & PREPARES.keys():
        try:
            PREPARES[name](reporter.write_line if reporter else print)
        except Unavailable as error:
            config.stash[SERVERS].refuse(name, error)


def pytest_runtest_call(item: pytest.Item) -> None:
    for name in _asked(item):
        item.config.stash[SERVERS].count(name)


def _asked(item: pytest.Item) -> set[str]:
    """Return the names of the servers that this test runs on."""
    names = {name.removesuffix("_server") for name in getattr(item, "fixturenames", ())}
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return (names | {params[name] for name in SEVERAL if name in params}) & STARTS.keys()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("servers")
    for line in config.stash[SERVERS].lines():
        terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[SERVERS].stop()


def _get(request: pytest.FixtureRequest, name: str) -> Server:
    try:
        return request.config.stash[SERVERS].get(name)
    except Unavailable as error:
        pytest.skip(f"{name}: {error}")


@pytest.fixture(scope="session")
def moto_server(request: pytest.FixtureRequest) -> Server:
    return _get(request, "moto")


@pytest.fixture(scope="session")
def seaweedfs_server(request: pytest.FixtureRequest) -> Server:
    return _get(request, "seaweedfs")


@pytest.fixture(scope="session")
def minio_server(request: pytest.FixtureRequest) -> Server:
    return _get(request, "minio")


@pytest.fixture(scope="session")
def fake_gcs_server(request: pytest.FixtureRequest) -> Server:
    return _get(request, "fake_gcs")


@pytest.fixture(scope="session")
def gcs_xml_server(fake_gcs_server: Server) -> Iterator[Server]:
    with XMLProxy(fake_gcs_server.endpoint) as proxy:
        yield fake_gcs_server.through(proxy.endpoint)


@pytest.fixture(scope="session")
def azurite_server(request: pytest.FixtureRequest) -> Server:
    return _get(request, "azurite")


@pytest.fixture(scope="session", params=["moto", "seaweedfs", "minio"])
def s3_server(request: pytest.FixtureRequest) -> Server:
    return _get(request, request.param)


@pytest.fixture(scope="session", params=["seaweedfs", "minio"])
def racing_server(request: pytest.FixtureRequest) -> Server:
    return _get(request, request.param)
