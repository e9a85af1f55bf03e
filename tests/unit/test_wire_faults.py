"""The proxy's faults that take time: what comes late, what never comes, and what happens meanwhile."""

from __future__ import annotations

import gc
import secrets
import socket
import threading
import time

import pytest

from tests.servers.http_heads import Request, RequestHeads
from tests.servers.proxy import Proxy
from tests.servers.wire_faults import Effect, Fault
from tests.unit.test_servers import ask, raw, web
from tests.until import until

UPLOAD_BODY = (
    b'--b\r\nContent-Type: application/json\r\n\r\n{"name": "place/manifests/r.json"}\r\n'
    b"--b\r\nContent-Type: application/octet-stream\r\n\r\nGET /objects/1 HTTP/1.1\r\n\r\n--b--"
)
UPLOAD = (
    b'POST /upload?ifGenerationMatch=0 HTTP/1.1\r\nContent-Type: multipart/related; boundary="b"\r\n'
    b"Content-Length: " + str(len(UPLOAD_BODY)).encode() + b"\r\n\r\n" + UPLOAD_BODY
)
GET = b"GET /place%2Fmanifests%2Fr.json HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("size", [1, 3, 50, 120, 1000])
def test_an_upload_is_for_the_object_that_its_first_part_names(size: int) -> None:
    """Google's uploads have no name in their path, and their data may hold any text."""
    heads, stream = RequestHeads(), UPLOAD + GET
    found = [x for at in range(0, len(stream), size) for x in heads.feed(stream[at : at + size])]
    assert found == [Request("POST", "/upload?ifGenerationMatch=0"), Request("GET", GET.split()[1].decode())]
    for request in found:
        assert Fault(Effect.DROP_ANSWER, request.method, "/manifests/r").matches(request)
        assert not Fault(Effect.DROP_ANSWER, request.method, "objects/").matches(request)


def test_a_request_is_undecided_until_what_names_it_is_here_and_whole_at_its_last_byte() -> None:
    heads = RequestHeads()
    named = len(UPLOAD) - len(b"GET /objects/1 HTTP/1.1\r\n\r\n--b--")
    for at in range(len(UPLOAD)):
        heads.feed(UPLOAD[at : at + 1])
        assert (heads.undecided, heads.whole) == (at + 1 < named, at + 1 == len(UPLOAD)), at


@pytest.mark.parametrize("size", [3, 3_000_000])
@pytest.mark.parametrize(
    ("effect", "kept"), [(Effect.LATE_BEFORE_RETRY, "retry"), (Effect.LATE_AFTER_RETRY, "late")]
)
def test_a_late_request_arrives_whole_on_its_side_of_the_retry(effect: Effect, kept: str, size: int) -> None:
    """The store keeps what came last; a request for something else is no retry."""
    sent = {"late": secrets.token_bytes(size), "retry": secrets.token_bytes(size)}
    with web() as (target, values), Proxy(target) as proxy:
        proxy.arm(Fault(effect, "PUT", "manifests/"))
        with pytest.raises(ConnectionError):
            ask(proxy.endpoint, "PUT", "/manifests/1", sent["late"])
        assert ask(proxy.endpoint, "PUT", "/objects/1", b"x") == (200, b"kept")
        assert ask(proxy.endpoint, "GET", "/manifests/1") == (200, b"")
        assert ask(proxy.endpoint, "PUT", "/manifests/1", sent["retry"]) == (200, b"kept")
        until(lambda: values["/manifests/1"] == sent[kept])
        assert proxy.deliver_late() == [200]
        assert proxy.deliver_late() == []


@pytest.mark.parametrize("effect", [Effect.LATE_BEFORE_RETRY, Effect.LATE_AFTER_RETRY])
def test_a_late_request_without_a_retry_arrives_when_it_is_told_to(effect: Effect) -> None:
    with web() as (target, values), Proxy(target) as proxy:
        proxy.arm(Fault(effect, "PUT"))
        with pytest.raises(ConnectionError):
            ask(proxy.endpoint, "PUT", "/k", b"late")
        assert values == {}
        assert proxy.deliver_late() == [200]
        assert values == {"/k": b"late"}


def test_an_answer_that_never_comes_leaves_the_connection_open() -> None:
    with web() as (target, values), Proxy(target) as proxy:
        done = threading.Event()
        proxy.arm(Fault(Effect.NO_ANSWER, "PUT", meanwhile=done.set))
        with raw(proxy.endpoint) as connection:
            connection.sendall(b"PUT /k HTTP/1.1\r\nContent-Length: 2\r\n\r\nok")
            assert done.wait(20)
            connection.settimeout(0.1)
            with pytest.raises(TimeoutError):
                connection.recv(1)
        assert values == {"/k": b"ok"}
        assert ask(proxy.endpoint, "GET", "/k") == (200, b"ok")


def test_a_request_is_seen_through_although_its_client_has_gone() -> None:
    """Servers drop requests that nobody waits for, and the fault says that it happened."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dropped = []

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.settimeout(0.2)
                try:
                    dropped.append(connection.recv(1) == b"")
                except TimeoutError:
                    dropped.append(False)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        server = threading.Thread(target=serve)
        server.start()
        answered = threading.Event()
        with Proxy(f"127.0.0.1:{listener.getsockname()[1]}") as proxy:
            proxy.arm(Fault(Effect.NO_ANSWER, "PUT", meanwhile=answered.set))
            with raw(proxy.endpoint) as connection:
                connection.sendall(b"PUT /k HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
            assert answered.wait(20)
        server.join(20)
    assert dropped == [False]


@pytest.mark.parametrize("effect", Effect)
def test_what_happens_meanwhile_comes_between_the_server_and_the_client(effect: Effect) -> None:
    """Another writer that commits then has not yet been overtaken by the client's read-back."""
    with web() as (target, values), Proxy(target) as proxy:
        seen: list[bytes | None] = []
        reading = threading.Thread(target=ask, args=(proxy.endpoint, "GET", "/k"))
        over = threading.Event()

        def meanwhile() -> None:
            seen.append(values.get("/k"))
            reading.start()
            reading.join(0.2)
            over.set()
            assert reading.is_alive(), "somebody's next request came in between"

        proxy.arm(Fault(effect, "PUT", meanwhile=meanwhile))
        with raw(proxy.endpoint) as connection:
            connection.sendall(b"PUT /k HTTP/1.1\r\nContent-Length: 2\r\n\r\nok")
            if effect is not Effect.NO_ANSWER:
                assert connection.recv(1000)[:10] in (b"", b"HTTP/1.1 5")
                assert over.is_set()
            assert over.wait(20)
            assert seen == [b"ok" if effect.is_answered else None]
        reading.join(20)
        assert not reading.is_alive()


def test_what_breaks_meanwhile_is_told_at_the_end() -> None:
    def breaks() -> None:
        raise ValueError("broken on purpose")

    def use(target: str) -> None:
        with Proxy(target) as proxy:
            proxy.arm(Fault(Effect.ANSWER_503, "GET", meanwhile=breaks))
            with pytest.raises(ConnectionError):
                ask(proxy.endpoint, "GET", "/k")

    with web() as (target, _), pytest.raises(ValueError, match="on purpose"):
        use(target)


def test_a_request_whose_client_has_sent_its_end_is_no_garbage() -> None:
    """A loop forgets such a connection, so that a collection in the midst would break it off."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        with (
            Proxy(f"127.0.0.1:{listener.getsockname()[1]}") as proxy,
            raw(proxy.endpoint) as client,
        ):
            client.sendall(b"GET /k HTTP/1.1\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            with listener.accept()[0] as server:
                while server.recv(1000):
                    pass
                for _ in range(5):  # the proxy may be still on its way to rest
                    gc.collect()
                    time.sleep(0.02)
                server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_fault_that_is_disarmed_does_not_happen() -> None:
    with web() as (target, _), Proxy(target) as proxy:
        proxy.arm(Fault(Effect.DROP_REQUEST, "GET"))
        proxy.disarm()
        assert ask(proxy.endpoint, "GET", "/k") == (200, b"")
