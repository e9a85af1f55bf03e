"""The permissions that the Google and Azure modules count with are those of the engines' requests."""

from __future__ import annotations

import asyncio
import secrets
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from cloudckpt.storage.engines import engine_for
from tests.servers.http_heads import Request
from tests.servers.proxy import Proxy
from tests.terraform.grants import BLOBS, CALLS, NEEDS

ENGINES = [("gcp", "fake_gcs", "gcsfs"), ("azure", "azurite", "adlfs"), ("azure", "azurite", "obstore")]


def _google(request: Request) -> set[str]:
    """As Google's table of methods and permissions has it; an upload that replaces takes two."""
    path, query = urlsplit(request.path).path, parse_qs(urlsplit(request.path).query)
    what = {
        "GET": "list" if path.endswith("/o") else "get",
        "POST": "create",
        "DELETE": "delete",
    }[request.method]
    found = {f"storage.objects.{what}"}
    if what == "create" and query["ifGenerationMatch"] != ["0"]:
        found.add("storage.objects.delete")
    return found


def _azure(request: Request) -> set[str]:
    """As Azure's table of operations and data actions has it; PUT is each way to write a blob.

    A batch is authorized by what is in it: obstore sends deletes so.
    """
    what = {"GET": "read", "HEAD": "read", "PUT": "write", "DELETE": "delete", "POST": "delete"}[
        request.method
    ]
    query = parse_qs(urlsplit(request.path).query)
    assert (request.method == "POST") == (query.get("comp") == ["batch"])
    assert set(query) <= {
        "restype",
        "comp",
        "prefix",
        "marker",
        "maxresults",
        "include",
        "blockid",
        "timeout",
    }
    return {f"{BLOBS}/{what}"}


async def _requests(url: str, engine: str, options: dict, proxy: Proxy) -> dict[str, list[Request]]:
    """Make each call once, and return its requests."""
    storage = engine_for(url, storage_options=options, engine=engine)()
    token = await storage.create("manifests/r.json", b"first")
    calls = {
        "get": lambda: storage.read("manifests/r.json"),
        "list": lambda: storage.list("manifests/"),
        "create": lambda: storage.create("manifests/s.json", b"other"),
        "put": lambda: storage.put("objects/r/1", b"payload"),
        "replace": lambda: storage.replace("manifests/r.json", b"second", token),
        "delete": lambda: storage.delete(["objects/r/1"]),
    }
    found = {}
    try:
        for call, make in calls.items():
            start = len(proxy.requests)
            await make()
            found[call] = list(proxy.requests[start:])
    finally:
        await storage.close()
    return found


@pytest.mark.parametrize(("cloud", "server", "engine"), ENGINES, ids=[one[2] for one in ENGINES])
def test_a_call_takes_the_permissions_of_its_requests(cloud, server, engine, request):
    """A request more, such as a HEAD of the bucket, would be denied in the cloud and by no test's server."""
    found = request.getfixturevalue(f"{server}_server")
    with Proxy(found.endpoint) as proxy:
        behind = found.through(proxy.endpoint)
        url = f"{found.url}/{secrets.token_hex(6)}"
        made = asyncio.run(_requests(url, engine, behind.storage_options(), proxy))
    takes = {"gcp": _google, "azure": _azure}[cloud]
    told = {call: sorted(set().union(*map(takes, requests))) for call, requests in made.items()}
    assert told == {call: sorted(NEEDS[cloud][call]) for call in CALLS}
    names = [unquote(one.path + one.part) for call in ("get", "put") for one in made[call]]
    assert all("manifests/r.json" in name or "objects/r/1" in name for name in names)
