"""A write that breaks off in mid-request, as when its client is killed, changes nothing.

A server that takes what it has for the whole would leave an empty pointer, and all of
the run's checkpoints would be lost: SeaweedFS 4.48 does that when nothing of the body
arrives, unless the request says what the body's checksum is.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cloudckpt.errors import StorageError
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.s3 import S3Storage
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.testing.driver import Client, Driver
from tests.servers.base import Server

HEAD_END = b"\r\n\r\n"
BODY = secrets.token_bytes(3000)


class Tearing:
    """A relay that passes on the head of a PUT and so many bytes of its body, and hangs up.

    Attributes:
        endpoint: Its own.
        torn: How many requests it tore.
    """

    def __init__(self, target: str, bytes_of_body: int) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._bytes = bytes_of_body
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.torn = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._tear(client)

    def _tear(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            data = b""
            while HEAD_END not in data or len(data) < data.index(HEAD_END) + 4 + self._bytes:
                more = client.recv(65536)
                if not more:
                    return
                data += more
            server.sendall(data[: data.index(HEAD_END) + 4 + self._bytes])
            self.torn += 1
            time.sleep(0.05)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing it alone does not wake who accepts
        self._thread.join(20)
        self._listener.close()


def engine(name: str, server: Server, prefix: str) -> Any:
    options = server.storage_options()
    if name == "obstore":
        return ObstoreStorage("s3", server.bucket, prefix, storage_options=options)
    return {"s3fs": S3Storage, "boto3": Boto3Storage}[name](server.bucket, prefix, storage_options=options)


@pytest.fixture(params=["s3fs", "boto3", "obstore"])
def clients(
    request: pytest.FixtureRequest, racing_server: Server, torn_after: int
) -> Iterator[tuple[Client, Client, Tearing]]:
    """Return a client that reaches the server, one whose writes are torn, and what tears them."""
    tearing = Tearing(racing_server.endpoint, torn_after)
    driver, prefix = Driver(), secrets.token_hex(4)
    whole, torn = (
        Client(driver, engine(request.param, server, prefix))
        for server in (racing_server, racing_server.through(tearing.endpoint))
    )
    yield whole, torn, tearing
    for client in (whole, torn):
        client.close()
    driver.close()
    tearing.close()


@pytest.mark.parametrize("torn_after", [0, 1500])
def test_a_torn_write_changes_nothing(clients: tuple[Client, Client, Tearing]) -> None:
    """Neither the pointer, nor a key that is written once: a later try would take the stump for its own."""
    whole, torn, tearing = clients
    token = whole.create("pointer", b"what stands")
    for write in (
        lambda: torn.replace("pointer", BODY, token),
        lambda: torn.create("new", BODY),
        lambda: torn.put("object", BODY),
    ):
        with pytest.raises(StorageError):
            write()
    assert tearing.torn >= 3
    time.sleep(0.3)  # the server may still be at it
    assert whole.value("pointer") == b"what stands"
    assert whole.read("new") is None
    whole.put("object", BODY)
    assert whole.value("object") == BODY
