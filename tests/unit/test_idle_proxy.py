"""The proxy whose connections die: a death that does not come, or comes otherwise, would prove nothing."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest

from tests.servers.base import free_ports
from tests.servers.canned import Canned
from tests.servers.idle_proxy import IdleProxy, Moment

FIN, RST = http.client.RemoteDisconnected, (ConnectionResetError, BrokenPipeError)

by_either = pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])


@pytest.fixture
def server() -> Iterator[Canned]:
    with Canned() as server:
        yield server


@pytest.fixture
def proxy(server: Canned) -> Iterator[IdleProxy]:
    with IdleProxy(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def kept(proxy: IdleProxy) -> Iterator[http.client.HTTPConnection]:
    """A connection that had one request."""
    connection = connect(proxy)
    assert put(connection) == 200
    yield connection
    connection.close()


def connect(proxy: IdleProxy) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=20)
    connection.connect()
    connection.auto_open = 0  # as it is, it would connect again by itself
    return connection


def put_on_a_dying(connection: http.client.HTTPConnection, size: int = 1000, *, reset: bool) -> None:
    """See a request fail as its connection's end says."""
    with pytest.raises(RST if reset else FIN) as caught:
        put(connection, size)
    assert isinstance(caught.value, FIN) != reset, "one by FIN counts as a reset for http.client"


def put(connection: http.client.HTTPConnection, size: int = 1000) -> int:
    connection.request("PUT", "/k", bytes(size))
    answer = connection.getresponse()
    answer.read()
    return answer.status


@by_either
def test_an_idle_one_has_ended_before_the_next_request(
    proxy: IdleProxy, kept: http.client.HTTPConnection, reset: bool
) -> None:
    proxy.retire(Moment.IDLE, reset=reset)
    assert (proxy.died, proxy.kept) == (1, 0)
    assert isinstance(kept.sock, socket.socket)
    if reset:
        with pytest.raises(ConnectionResetError):
            kept.sock.recv(1)
    else:
        assert kept.sock.recv(1) == b""


@by_either
@pytest.mark.parametrize("size", [1000, 3_000_000])
def test_what_ends_at_the_head_did_not_happen(
    proxy: IdleProxy, server: Canned, kept: http.client.HTTPConnection, reset: bool, size: int
) -> None:
    proxy.retire(Moment.AT_HEAD, reset=reset)
    assert proxy.died == 0
    put_on_a_dying(kept, size, reset=reset)
    assert proxy.died == 1
    assert len(server.requests) == 1
    assert len(proxy.requests) == 2


@by_either
def test_what_ends_at_the_answer_happened(
    proxy: IdleProxy, server: Canned, kept: http.client.HTTPConnection, reset: bool
) -> None:
    proxy.retire(Moment.ANSWERED, reset=reset)
    put_on_a_dying(kept, 3_000_000, reset=reset)
    assert proxy.died == 1
    assert [len(request.body) for request in server.requests] == [1000, 3_000_000]


@by_either
@pytest.mark.parametrize("moment", Moment)
def test_a_fresh_one_works(
    proxy: IdleProxy, kept: http.client.HTTPConnection, moment: Moment, reset: bool
) -> None:
    proxy.retire(moment, reset=reset)
    fresh = connect(proxy)
    assert [put(fresh) for _ in range(3)] == [200] * 3
    assert proxy.died == (moment is Moment.IDLE)
    assert proxy.opened == 2
    fresh.close()


@pytest.mark.parametrize("moment", [Moment.AT_HEAD, Moment.ANSWERED])
def test_as_many_as_are_spared_are_served_before(
    proxy: IdleProxy, kept: http.client.HTTPConnection, moment: Moment
) -> None:
    proxy.retire(moment, reset=False, spare=2)
    assert [put(kept) for _ in range(2)] == [200] * 2
    assert proxy.died == 0
    put_on_a_dying(kept, reset=False)
    assert proxy.died == 1


def test_a_server_that_is_not_there_is_a_connection_that_ends() -> None:
    with IdleProxy(f"http://127.0.0.1:{free_ports(1)[0]}") as proxy:
        connection = connect(proxy)
        with pytest.raises(RST):
            put(connection)
        connection.close()
