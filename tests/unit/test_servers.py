"""The tools of the tests themselves: the proxy, what it sees of HTTP, and how a server process ends.

What a proxy miscounts or reorders would be blamed on the product.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.servers.base import ROOT, Server, Unavailable, free_ports, new_folder, ready, spawn
from tests.servers.http_heads import Request, RequestHeads, split_interim
from tests.servers.proxy import Proxy, separate
from tests.servers.registry import STARTS, Servers
from tests.servers.wire_faults import Effect, Fault, made_up_answer
from tests.until import until

RTT = 0.06


class Store(BaseHTTPRequestHandler):
    """Keeps what is PUT, and answers GET with it."""

    protocol_version = "HTTP/1.1"
    values: dict[str, bytes]

    def do_PUT(self) -> None:
        self.values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"kept")

    def do_GET(self) -> None:
        self._answer(self.values.get(self.path, b""))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def web() -> Iterator[tuple[str, dict[str, bytes]]]:
    values: dict[str, bytes] = {}
    handler = type("Handler", (Store,), {"values": values})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", values
        finally:
            server.shutdown()
            thread.join()


def ask(
    endpoint: str, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def raw(endpoint: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2])), timeout=20)


def test_bytes_pass_in_order_and_whole_in_both_directions() -> None:
    """Chunks that are due at the same moment must not overtake each other."""
    value = secrets.token_bytes(5_000_000)
    with web() as (target, values), Proxy(target, rtt=0.004) as proxy:
        assert ask(proxy.endpoint, "PUT", "/k", value) == (200, b"kept")
        status, data = ask(proxy.endpoint, "GET", "/k")
    assert hashlib.sha256(values["/k"]).digest() == hashlib.sha256(value).digest()
    assert (status, hashlib.sha256(data).digest()) == (200, hashlib.sha256(value).digest())


def test_a_delay_is_of_the_way_and_not_of_each_chunk() -> None:
    """A proxy that sleeps before each chunk would make a big body cost one delay per chunk."""
    chunks = 10_000_000 / 2**18

    def seconds(method: str, body: bytes | None = None) -> float:
        started = time.monotonic()
        ask(proxy.endpoint, method, "/k", body)
        return time.monotonic() - started

    with web() as (target, _), Proxy(target, rtt=RTT) as proxy:
        assert seconds("GET") >= RTT
        big = [seconds("PUT", bytes(10_000_000))]
        while big[-1] >= chunks * RTT / 2 and len(big) < 20:  # the machine may stand still
            big.append(seconds("PUT", bytes(10_000_000)))
    assert RTT <= big[-1] < chunks * RTT / 2


def test_a_second_exchange_costs_a_second_round_trip() -> None:
    """``Expect: 100-continue`` is what a delay for each request would not show."""
    with web() as (target, _), Proxy(target, rtt=RTT) as proxy, raw(proxy.endpoint) as connection:
        started = time.monotonic()
        connection.sendall(b"PUT /k HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"ok")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - started >= 2 * RTT
    assert proxy.requests == [Request("PUT", "/k")]


def test_every_request_of_a_connection_is_counted() -> None:
    body = b"GET /not-a-request HTTP/1.1\r\n\r\n"
    with web() as (target, _), Proxy(target) as proxy:
        connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=20)
        for n in range(3):
            connection.request("PUT", f"/bucket/k?n={n}", body)
            connection.getresponse().read()
        connection.request("GET", "/bucket/k")
        connection.getresponse().read()
        connection.close()
    assert proxy.requests == [Request("PUT", f"/bucket/k?n={n}") for n in range(3)] + [
        Request("GET", "/bucket/k")
    ]
    assert (proxy.count("PUT"), proxy.count("PUT", "n=2"), proxy.count("HEAD")) == (3, 1, 0)


STREAM = (
    b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /"
    b"PUT /b?x=1 HTTP/1.1\r\nTransfer-Encoding: aws-chunked, chunked\r\n\r\n"
    b"5;chunk-signature=f\r\nDELET\r\n1a\r\nE /c HTTP/1.1\r\n\r\nabcdefg\r\n\r\n0\r\n"
    b"x-amz-checksum-crc32: AAAAAA==\r\n\r\n"
    b"GET /d HTTP/1.1\r\n\r\n"
    b"HEAD /e HTTP/1.1\r\ncontent-length:0\r\n\r\n"
)
EXPECTED = [Request("PUT", "/a"), Request("PUT", "/b?x=1"), Request("GET", "/d"), Request("HEAD", "/e")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30, 64, 10_000])
def test_requests_are_found_however_the_bytes_arrive(size: int) -> None:
    heads = RequestHeads()
    found = [x for at in range(0, len(STREAM), size) for x in heads.feed(STREAM[at : at + size])]
    assert found == EXPECTED


def test_a_body_that_was_not_asked_for_is_not_waited_for() -> None:
    """A server may answer 412 at once to ``Expect: 100-continue``; then the next request follows."""
    heads = RequestHeads()
    first = heads.feed(b"PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 90\r\n\r\n")
    assert first + heads.feed(b"GET /b HTTP/1.1\r\n\r\n") == [Request("PUT", "/a"), Request("GET", "/b")]


def test_a_body_is_not_taken_for_a_request_because_it_was_announced() -> None:
    """A client may send the body after ``Expect`` unasked, and the body may look like anything."""
    heads = RequestHeads()
    first = heads.feed(b"PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 90\r\n\r\nx")
    assert first + heads.feed(b"GET /b HTTP/1.1\r\n\r\n") == [Request("PUT", "/a")]


def test_what_is_not_http_passes_uncounted() -> None:
    heads = RequestHeads()
    assert heads.feed(b"\x16\x03\x01 hello\r\n\r\nGET / HTTP/1.1\r\n\r\n") == []
    assert heads.feed(bytes(200_000)) == []


def test_interim_answers_are_told_from_the_answer() -> None:
    interim, final = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n"
    assert split_interim(interim + interim + final) == (interim + interim, final)
    assert split_interim(interim[:-1]) == (b"", interim[:-1])
    assert split_interim(final) == (b"", final)


@pytest.mark.parametrize(
    ("effect", "happened"),
    [
        (Effect.DROP_REQUEST, False),
        (Effect.DROP_ANSWER, True),
        (Effect.ANSWER_500, True),
        (Effect.ANSWER_503, True),
    ],
)
@pytest.mark.parametrize("size", [3, 3_000_000])
def test_a_fault_happens_once_to_the_request_that_it_is_for(
    effect: Effect, happened: bool, size: int
) -> None:
    fault = Fault(effect, "PUT", "manifests/")
    value = secrets.token_bytes(size)
    with web() as (target, values), Proxy(target, rtt=0.002) as proxy:
        proxy.arm(fault)
        assert ask(proxy.endpoint, "PUT", "/objects/1", value) == (200, b"kept")
        assert ask(proxy.endpoint, "GET", "/manifests/1") == (200, b"")
        assert proxy.armed == (fault,)
        if effect in (Effect.DROP_REQUEST, Effect.DROP_ANSWER):
            with pytest.raises(ConnectionError):
                ask(proxy.endpoint, "PUT", "/manifests/1", value)
        else:
            status, body = ask(proxy.endpoint, "PUT", "/manifests/1", value)
            assert (status, b"<Code>" in body) == (int(effect.name[-3:]), True)
        assert not proxy.armed
        assert (values.get("/manifests/1") == value) is happened
        assert ask(proxy.endpoint, "PUT", "/manifests/1", b"again") == (200, b"kept")


def test_nothing_of_the_answer_follows_a_made_up_one() -> None:
    with web() as (target, values), Proxy(target) as proxy, raw(proxy.endpoint) as connection:
        values["/k"] = bytes(2_000_000)
        proxy.arm(Fault(Effect.ANSWER_503, "GET"))
        connection.sendall(b"GET /k HTTP/1.1\r\n\r\n")
        assert b"".join(iter(lambda: connection.recv(1000), b"")) == made_up_answer(Effect.ANSWER_503)


def test_a_lost_answer_keeps_the_interim_one() -> None:
    """The client sends the body only when it is asked to, so losing that too would lose the request."""
    with web() as (target, values), Proxy(target) as proxy:
        proxy.arm(Fault(Effect.DROP_ANSWER, "PUT"))
        with raw(proxy.endpoint) as connection:
            connection.sendall(b"PUT /k HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(b"ok")
            assert connection.recv(1000) == b""
    assert values == {"/k": b"ok"}


def test_a_proxy_without_its_server_breaks_the_connection() -> None:
    [port] = free_ports(1)
    with (
        Proxy(f"127.0.0.1:{port}") as proxy,
        pytest.raises(ConnectionError),
    ):
        ask(proxy.endpoint, "GET", "/")


def test_a_proxy_ends_quietly_with_connections_open(caplog: pytest.LogCaptureFixture) -> None:
    """Clients keep their connections; an error in the log of each such test would hide a real one."""
    with web() as (target, _):
        with Proxy(target) as proxy:
            connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=20)
            connection.request("GET", "/k")
            connection.getresponse().read()
        connection.close()
    assert caplog.records == []


def test_a_proxy_that_can_not_listen_says_so() -> None:
    with Proxy("127.0.0.1:1") as proxy:
        taken = int(proxy.endpoint.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"), Proxy("127.0.0.1:1", listen=taken):
            pass
    with pytest.raises(ValueError, match="HOST:PORT"):
        Proxy("127.0.0.1")


def test_a_proxy_in_a_process_of_its_own_delays_as_well() -> None:
    with web() as (target, _), separate(target, rtt=RTT) as endpoint:
        started = time.monotonic()
        assert ask(endpoint, "PUT", "/k", b"x") == (200, b"kept")
        assert time.monotonic() - started >= RTT


def test_a_client_that_holds_a_connection_does_not_block_moto(moto_server: Server) -> None:
    """It serves one request at a time, so a kept or a silent connection must not count as one."""
    host = moto_server.endpoint.removeprefix("http://")
    kept = http.client.HTTPConnection(host, timeout=20)
    kept.request("GET", "/", headers={"Connection": "keep-alive"})
    kept.getresponse().read()
    with raw(moto_server.endpoint):
        status, _ = ask(moto_server.endpoint, "GET", "/")
    kept.close()
    assert status == 200


def test_a_stopped_process_is_gone_with_its_folder() -> None:
    process = spawn([sys.executable, "-c", "import time; time.sleep(60)"], new_folder("test"))
    assert process.folder.is_dir()
    process.stop()
    process.stop()
    assert process.child.returncode == -signal.SIGKILL
    assert not process.folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_a_server_dies_with_the_test_run_that_started_it() -> None:
    """SIGKILL leaves the test run no time to end its servers."""
    code = (
        "import sys, time\n"
        "from tests.servers.base import new_folder, spawn\n"
        "program = 'import time; print(1, flush=True); time.sleep(60)'\n"
        "child = spawn([sys.executable, '-c', program], new_folder('test'))\n"
        "while child.last_words() != '1': time.sleep(0.01)\n"
        "print(child.child.pid, child.folder, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert _alive(int(pid))
        parent.kill()
    until(lambda: not _alive(int(pid)), "the server outlived its parent")
    (Path(folder) / "log").unlink()
    Path(folder).rmdir()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_server_that_ends_at_once_is_unavailable_with_its_last_words() -> None:
    process = spawn(
        [sys.executable, "-c", "print('starting', flush=True); raise SystemExit('no disk')"],
        new_folder("test"),
    )
    [port] = free_ports(1)
    server = Server("test", f"http://127.0.0.1:{port}", process=process)
    with pytest.raises(Unavailable, match="code 1: no disk"):
        ready(server, timeout=30, started=time.monotonic())
    assert not process.folder.exists()


def test_the_summary_tells_ran_skipped_and_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def start() -> Server:
        starts.append(1)
        return Server("moto", "http://127.0.0.1:1", start_seconds=1.25)

    monkeypatch.setitem(STARTS, "moto", start)
    servers = Servers()
    servers.refuse("minio", Unavailable("no program"))
    for _ in range(2):
        servers.get("moto")
        servers.count("moto")
    with pytest.raises(Unavailable, match="no program"):
        servers.get("minio")
    assert starts == [1]
    assert servers.lines()[:3] == [
        "moto       ran: 2 tests, ready after 1.2 s",
        "seaweedfs  not asked for",
        "minio      skipped: no program",
    ]


def test_a_server_that_lost_its_port_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port is free until somebody else's connection takes it, and a skip would hide a whole suite."""
    starts = []

    def start() -> Server:
        starts.append(1)
        code = "raise SystemExit('listen: bind: address already in use')"
        process = spawn([sys.executable, "-c", code], new_folder("test"))
        process.child.wait()
        try:
            if len(starts) < 3:
                process.check()
        finally:
            process.stop()
        return Server("moto", "http://127.0.0.1:1")

    monkeypatch.setitem(STARTS, "moto", start)
    assert Servers().get("moto").name == "moto"
    assert len(starts) == 3


def test_no_setting_of_the_user_reaches_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    process = spawn([sys.executable, "-c", "import os; print(sorted(os.environ))"], new_folder("test"))
    process.child.wait()
    words = process.last_words()
    process.stop()
    assert "AWS_PROFILE" not in words
    assert "AWS_PROFILE" in os.environ
