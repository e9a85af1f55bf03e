"""What a user gets wrong, and what an environment does to them: a clear error, and nothing is lost.

Unusable ids, states, arguments and types are laws of `RunConformance`; URLs are
in `test_engines.py`, damaged and newer documents in `test_damage.py` and
`test_probe.py`. Here are credentials, rights, servers, disks and stores.
"""

from __future__ import annotations

import errno
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import cloudckpt
from cloudckpt.errors import (
    AmbiguousError,
    ArchivedError,
    CloudckptError,
    PermissionDeniedError,
    StorageError,
    ThrottledError,
    UnsupportedStoreError,
)
from cloudckpt.run import Run
from cloudckpt.storage import retry
from cloudckpt.store import Store
from tests.servers.base import Server, free_ports

LARGE = secrets.token_bytes(40_000)

USES: list[Callable[[Store], Any]] = [
    lambda store: store.run("r").load(),
    lambda store: store.run("r").save({"n": 1}),
    lambda store: list(store.runs()),
]


def failure(store: Store, use: Callable[[Store], Any]) -> CloudckptError:
    with store, pytest.raises(CloudckptError) as caught:
        use(store)
    return caught.value


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is slow to answer is none of what is tried here; nothing here is tried again."""
    monkeypatch.setattr(retry, "LEAST_PATIENCE", retry.MOST_PATIENCE)


# Credentials and places, on real servers.


@pytest.fixture(params=["minio_server", "seaweedfs_server"])
def checking_server(request: pytest.FixtureRequest) -> Any:
    """A server that looks at credentials, which moto does not."""
    return request.getfixturevalue(request.param)


def opened(server: Server, url: str | None = None, **changed: Any) -> Store:
    options = {**server.storage_options(), **changed}
    given = {name: value for name, value in options.items() if value is not None}
    return cloudckpt.open(url or f"{server.url}/bad-input", storage_options=given, timeout=0.1)


@pytest.mark.parametrize("use", USES)
def test_no_such_bucket(s3_server: Server, use: Callable[[Store], Any]) -> None:
    """Not taken for a run that does not exist, which would silently start over."""
    error = failure(opened(s3_server, "s3://no-such-bucket-here/x"), use)
    assert (type(error), error.kind) == (StorageError, "no-such-bucket")
    assert "create it or correct the URL" in str(error)


@pytest.mark.parametrize("use", USES)
def test_no_credentials(minio_server: Server, use: Callable[[Store], Any]) -> None:
    error = failure(opened(minio_server, key=None, secret=None), use)
    assert (type(error), error.kind) == (PermissionDeniedError, "no-credentials")
    assert "AWS_ACCESS_KEY_ID" in str(error)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_wrong_credentials(checking_server: Server, wrong: str, use: Callable[[Store], Any]) -> None:
    error = failure(opened(checking_server, **{wrong: "wrong-" * 4}), use)
    assert (type(error), error.kind) == (PermissionDeniedError, "credentials")
    assert "wrong-" not in str(error), "what was given must not end up in a log"


@pytest.mark.parametrize(
    "options",
    [{"endpoint_url": "nonsense"}, {"nonsense": 1}, {"profile": "nobody", "key": None, "secret": None}],
)
def test_unusable_options(moto_server: Server, options: dict[str, Any]) -> None:
    error = failure(opened(moto_server, **options), USES[0])
    assert error.kind == "bad-options"
    assert error.facts["why"]


def test_an_endpoint_where_nobody_is(moto_server: Server) -> None:
    error = failure(opened(moto_server, endpoint_url=f"http://127.0.0.1:{free_ports(1)[0]}"), USES[1])
    assert (type(error), error.kind) == (AmbiguousError, "unreachable")
    assert "check the endpoint and the network" in str(error)


# Answers of S3, from a server that gives nothing else.


class Answering(BaseHTTPRequestHandler):
    """Gives every request the answer that its server holds."""

    def answer(self) -> None:
        status, code = self.server.told  # type: ignore[attr-defined]
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>".encode()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("x-amz-bucket-region", "eu-west-1")  # as S3 says it beside a redirect
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def answering() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("status", "code", "error", "kind", "advice"),
    [
        (403, "AccessDenied", PermissionDeniedError, "denied", "s3:ListBucket"),
        (400, "ExpiredToken", PermissionDeniedError, "credentials-expired", "renew"),
        (400, "InvalidToken", PermissionDeniedError, "credentials", "renew"),
        (403, "RequestTimeTooSkewed", PermissionDeniedError, "clock", "set the clock"),
        (400, "AuthorizationHeaderMalformed", StorageError, "wrong-region", "AWS_DEFAULT_REGION"),
        (301, "PermanentRedirect", StorageError, "wrong-region", "AWS_DEFAULT_REGION"),
        (403, "InvalidObjectState", ArchivedError, None, "restore it"),
        (503, "SlowDown", ThrottledError, None, "slow down"),
        (500, "InternalError", AmbiguousError, None, ""),
        (501, "NotImplemented", UnsupportedStoreError, "not-implemented", "conditional"),
        (418, "Teapot", StorageError, "refused", "refused"),
    ],
)
def test_each_answer_of_s3_has_its_error(
    answering: ThreadingHTTPServer, status: int, code: str, error: type[Exception], kind: str, advice: str
) -> None:
    """403 above all: without s3:ListBucket a missing key is answered so, and must not look like no run."""
    answering.told = (status, code)  # type: ignore[attr-defined]
    host, port = answering.server_address[:2]
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host!s}:{port}"}
    found = failure(cloudckpt.open("s3://bucket/x", storage_options=options, timeout=0), USES[0])
    assert (type(found), found.kind) == (error, kind)
    assert advice in str(found)
    assert found.__cause__ is not None


# A folder.


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        error = failure(cloudckpt.open(place), USES[1])
        assert (type(error), error.kind) == (StorageError, "not-a-folder")
    assert (tmp_path / "taken").read_text() == "mine"


def files(folder: Path) -> dict[str, bytes]:
    """Return every file but the locks, which stay and hold nothing."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture
def saved(tmp_path: Path) -> Run:
    """A run in a folder, with one checkpoint, whose writer this is."""
    run = cloudckpt.open(tmp_path).run("r")
    run.save({"n": 1})
    return run


@pytest.mark.parametrize(
    ("number", "error", "kind"),
    [
        (errno.EROFS, PermissionDeniedError, "read-only"),
        (errno.EACCES, PermissionDeniedError, "no-permission"),
        (errno.EPERM, PermissionDeniedError, "no-permission"),
        (errno.ENOSPC, StorageError, "disk-full"),
        (errno.EDQUOT, StorageError, "disk-full"),
        (errno.EIO, StorageError, "io"),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_disk_that_refuses_changes_nothing_and_leaves_nothing(
    saved: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: Any, kind: str
) -> None:
    """At whatever step of the write, of a small state and of a large one. Afterwards saving goes on."""
    before = files(tmp_path)
    right = getattr(os, call)

    def refusing(*arguments: Any, **options: Any) -> Any:
        reads = call == "open" and not arguments[1] & (os.O_WRONLY | os.O_CREAT)
        if reads or threading.current_thread() is not threading.main_thread():
            return right(*arguments, **options)
        raise OSError(number, os.strerror(number))

    for state in ({"n": 2}, LARGE):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, refusing)
            with pytest.raises(error) as caught:
                saved.save(state)
        assert (type(caught.value), caught.value.kind) == (error, kind)
        assert str(tmp_path) in str(caught.value)
        assert files(tmp_path) == before
    assert saved.load() == {"n": 1}
    assert saved.save({"n": 2}).seq == 2


def test_a_short_write_is_not_a_whole_one(
    saved: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """write(2) may take less than it is given, as it does just before the disk is full."""
    right = os.write
    monkeypatch.setattr(
        os, "write", lambda descriptor, data: right(descriptor, data[: max(1, len(data) // 3)])
    )
    saved.save(LARGE)
    monkeypatch.undo()
    assert cloudckpt.open(tmp_path).run("r").load() == LARGE


# Another fsspec protocol.


class Plain(MemoryFileSystem):
    """A file system without conditions, under a name that no engine serves."""

    protocol = "plain"
    store: dict[str, Any] = {}  # noqa: RUF012 - as fsspec has it
    pseudo_dirs = [""]  # noqa: RUF012


@pytest.fixture
def plain() -> Iterator[str]:
    fsspec.register_implementation("plain", Plain, clobber=True)
    yield "plain://some/place"
    Plain.store.clear()


def test_a_protocol_without_conditions_needs_a_promise(plain: str) -> None:
    with pytest.raises(UnsupportedStoreError, match="unsafe_single_writer=True"):
        cloudckpt.open(plain)
    store = cloudckpt.open(plain, unsafe_single_writer=True)
    with store.run("a b", keep_last=2) as run:
        for n in range(5):
            run.save({"n": n, "blob": LARGE})
    late = cloudckpt.open(plain, unsafe_single_writer=True)
    assert late.run("a b").load()["n"] == 4
    assert [info.id for info in late.runs()] == ["a b"]
    assert len([path for path in Plain.store if "/objects/" in path]) == 2
    assert late.run("never").load() is None


def test_the_promise_does_not_unlock_an_unknown_scheme() -> None:
    with pytest.raises(UnsupportedStoreError, match="unknown kind of store"):
        cloudckpt.open("nonsense://x", unsafe_single_writer=True)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fsspec knows the protocol, and its package is not installed."""
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(UnsupportedStoreError, match="needs another package") as caught:
        cloudckpt.open("sftp://host/x", unsafe_single_writer=True)
    assert caught.value.facts["why"]
