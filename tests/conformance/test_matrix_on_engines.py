"""Every row of the type matrix, saved and loaded through every engine, memory and folder included."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

import cloudckpt
from cloudckpt.run import Run
from tests.servers.base import Server
from tests.unit.facts import facts
from tests.unit.matrix import HASHABLE, ROWS

SERVERS = {
    "s3fs": "minio_server",
    "boto3": "minio_server",
    "obstore": "minio_server",
    "gcsfs": "fake_gcs_server",
    "obstore on gs": "gcs_xml_server",
    "adlfs": "azurite_server",
}


@pytest.fixture(scope="module", params=["memory", "file", *SERVERS])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Run, Run]]:
    """Give a run's writer, and a reader that knows nothing of what the writer keeps in mind."""
    engine = request.param.partition(" ")[0]
    options = {}
    if engine in SERVERS:
        server: Server = request.getfixturevalue(SERVERS[request.param])
        url, options = f"{server.url}/matrix-{engine}", server.storage_options()
    else:
        url = {"memory": "memory://matrix", "file": str(tmp_path_factory.mktemp("matrix"))}[engine]
    writing, reading = (cloudckpt.open(url, storage_options=options, engine=engine) for _ in range(2))
    run_id = secrets.token_hex(4)
    with writing, reading, writing.run(run_id) as writer:
        yield writer, reading.run(run_id)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_comes_back_equal_in_type_and_value(pair: tuple[Run, Run], name: str) -> None:
    """An engine that cuts, re-encodes or decompresses on the way would show here first."""
    writer, reader = pair
    state = {"value": ROWS[name], "deep": [({"again": ROWS[name]},)]}
    if name in HASHABLE:
        state["keys"] = {ROWS[name]: "as a key"}
    writer.save(state)
    assert facts(reader.load()) == facts(state)
