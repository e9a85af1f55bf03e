"""A store on a server that says what Azure's Blob service would say, and calls of its methods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cloudckpt.storage.azure import AzureStorage
from tests.servers.azurite import ACCOUNT, KEY
from tests.servers.scripted import Answer

T = TypeVar("T")

WRITTEN = Answer(201, headers={"ETag": '"0x7"'})


def named(endpoint: str, key: str = KEY) -> str:
    return f"BlobEndpoint={endpoint}/{ACCOUNT};AccountName={ACCOUNT};AccountKey={key};"


def with_options(options: dict[str, Any], work: Callable[[AzureStorage], Awaitable[T]]) -> T:
    """Return what `work` returns on a storage with these options, which is closed then."""

    async def run() -> T:
        storage = AzureStorage("box", "pre fix", storage_options=options)
        try:
            return await work(storage)
        finally:
            await storage.close()

    return asyncio.run(run())


METHODS: dict[str, Callable[[AzureStorage], Awaitable[Any]]] = {
    "read": lambda storage: storage.read("k/1"),
    "create": lambda storage: storage.create("k/1", b"value"),
    "replace": lambda storage: storage.replace("k/1", b"value", '"0x6"'),
    "put": lambda storage: storage.put("k/1", b"value"),
    "list": lambda storage: storage.list("k/"),
    "delete": lambda storage: storage.delete(["k/1"]),
}
