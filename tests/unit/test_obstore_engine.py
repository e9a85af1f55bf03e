"""What is peculiar to obstore: its tokens, its listings, its deletes, and what a fork does to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    PermissionDeniedError,
    PreconditionFailedError,
    StorageError,
    ThrottledError,
)
from cloudckpt.storage.answers import UNSENT
from cloudckpt.storage.obstore_engine import ObstoreStorage, _before, _is_past
from cloudckpt.testing.driver import Client, Driver
from tests.servers.canned import Canned

Connect = Callable[..., Client]


@pytest.fixture
def store() -> Iterator[Canned]:
    with Canned() as canned:
        yield canned


@pytest.fixture
def connect(store: Canned) -> Connect:
    """Return what makes a client of one of the three clouds."""
    account = f"AccountName=acc;AccountKey=a2V5;BlobEndpoint={store.endpoint}/acc;"
    options: dict[str, dict[str, Any]] = {
        "s3": {"key": "K", "secret": "S", "endpoint_url": store.endpoint},
        "gs": {"token": "anon", "endpoint_url": store.endpoint},
        "az": {"connection_string": account},
    }

    def one(scheme: str) -> Client:
        return Client(Driver(), ObstoreStorage(scheme, "bucket", "p", storage_options=options[scheme]))

    return one


def test_what_is_written_on_google_is_kept_by_no_cache(connect: Connect, store: Canned) -> None:
    """What everybody may read Google lets caches keep for an hour: a reader would find an old pointer."""
    client = connect("gs")
    client.create("k", b"x")
    client.replace("k", b"y", "7")
    client.put("l", b"z")
    assert [asked.headers["Cache-Control"] for asked in store.requests] == ["no-store"] * 3


def test_googles_token_is_a_generation(connect: Connect, store: Canned) -> None:
    """An ETag there is no condition that a PUT knows."""
    client = connect("gs")
    assert client.create("k", b"x") == "7"
    client.replace("k", b"y", "7")
    create, replace = (asked.headers["x-goog-if-generation-match"] for asked in store.requests)
    assert (create, replace) == ("0", "7")
    stored = client.read("k")
    assert stored is not None
    assert stored.token == "7"


def test_azures_token_is_an_etag(connect: Connect, store: Canned) -> None:
    client = connect("az")
    token = client.create("k", b"x")
    client.replace("k", b"y", token)
    create, replace = store.requests
    assert (create.headers["If-None-Match"], replace.headers["If-Match"]) == ("*", '"fine"')


MEANINGS: list[tuple[str, int, str, type[CloudckptError], str | None]] = [
    ("az", 409, "BlobAlreadyExists", PreconditionFailedError, None),
    ("az", 412, "ConditionNotMet", PreconditionFailedError, None),
    ("az", 412, "LeaseIdMissing", StorageError, "leased"),
    ("az", 404, "ContainerNotFound", StorageError, "no-such-bucket"),
    ("az", 403, "AuthorizationPermissionMismatch", PermissionDeniedError, "denied"),
    ("az", 403, "AuthenticationFailed", PermissionDeniedError, "credentials"),
    ("az", 503, "ServerBusy", ThrottledError, None),
    ("az", 500, "InternalError", AmbiguousError, None),
    ("az", 400, "InvalidInput", StorageError, "refused"),
    ("gs", 412, "PreconditionFailed", PreconditionFailedError, None),
    ("gs", 404, "NoSuchBucket", StorageError, "no-such-bucket"),
    ("gs", 429, "SlowDown", ThrottledError, None),
    ("gs", 503, "SlowDown", ThrottledError, None),
    ("gs", 500, "InternalError", AmbiguousError, None),
    ("gs", 409, "OperationAborted", AmbiguousError, None),
    ("gs", 403, "AccessDenied", PermissionDeniedError, "denied"),
    ("gs", 401, "AuthenticationRequired", PermissionDeniedError, "credentials"),
]


@pytest.mark.parametrize("method", ["create", "replace"])
@pytest.mark.parametrize("scheme", ["az", "gs"])
def test_an_answer_of_another_cloud_means_what_it_says(
    connect: Connect, store: Canned, scheme: str, method: str
) -> None:
    """On Azure a 409 is a lost race and some 412 are none; obstore's own classes say neither."""
    client = connect(scheme)
    calls = {
        "create": lambda: client.create("k", b"x"),
        "replace": lambda: client.replace("k", b"x", "7"),
    }
    expected = [meaning for meaning in MEANINGS if meaning[0] == scheme]
    found = []
    for _, status, code, _, _ in expected:
        store.say(status, code)
        with pytest.raises(CloudckptError) as raised:
            calls[method]()
        found.append((scheme, status, code, type(raised.value), raised.value.kind))
    assert found == expected
    assert len(store.requests) == len(expected)


def test_a_missing_key_does_not_keep_the_others_from_being_deleted(connect: Connect, store: Canned) -> None:
    """Google answers 404 for it, and obstore stops there."""
    store.say(404, "NoSuchKey")
    connect("gs").delete("a", "b", "c")
    asked = [asked.path for asked in store.requests]
    assert set(asked) == {f"/bucket/p%2F{name}" for name in "abc"}
    assert len(asked) > 3, "what was under way when obstore stopped is asked for again"


def test_a_delete_in_a_bucket_that_is_missing_is_told(connect: Connect, store: Canned) -> None:
    for scheme in ("s3", "gs"):
        store.say(404, "NoSuchBucket")
        with pytest.raises(StorageError) as raised:
            connect(scheme).delete("a")
        assert raised.value.kind == "no-such-bucket"


def test_credentials_that_can_not_be_renewed_are_a_passing_fault(connect: Connect) -> None:
    """At the first request there are none; later a metadata service was busy for a moment."""

    class Renewed:
        fails = True

        def __call__(self) -> dict[str, Any]:
            if self.fails:
                raise OSError("the metadata service is busy")
            from datetime import UTC, datetime

            return {"access_key_id": "K", "secret_access_key": "S", "expires_at": datetime.now(UTC)}

    client = connect("s3")
    storage: Any = client.storage
    login = Renewed()
    storage._logged = lambda recipe: (recipe, login)
    with pytest.raises(PermissionDeniedError) as raised:
        client.create("k", b"x")
    assert raised.value.kind == "no-credentials"
    login.fails = False
    client.create("k", b"x")
    login.fails = True
    with pytest.raises(PermissionDeniedError) as raised:
        client.create("k", b"x")
    assert raised.value.kind == UNSENT


# Listings: obstore's are by folder.

NAMES = st.text("!-./0ab", min_size=1, max_size=6).filter(
    lambda name: all(part.strip(".") for part in name.split("/"))
)


@given(st.sets(NAMES, max_size=30), NAMES)
@example({"a/1", "a-b/1"}, "a-b")
@example({"a", "a/0"}, "a/0")
def test_what_is_left_out_of_a_listing_is_not_of_the_prefix(names: set[str], prefix: str) -> None:
    """In order of whole names, as S3 lists, and folder by folder, as SeaweedFS does."""
    start = _before(prefix)
    wanted = {name for name in names if name.startswith(prefix)}
    if start is not None:
        assert "" not in start.split("/"), "obstore takes no such path"
        assert all(start < name for name in wanted)
        assert all(start.split("/") < name.split("/") for name in wanted)
    folder = prefix.rpartition("/")[0]
    inside = [name for name in names if not folder or name.startswith(f"{folder}/")]
    for ordered in (sorted(inside), sorted(inside, key=lambda name: name.split("/"))):
        end = next((n for n, name in enumerate(ordered) if _is_past(name, prefix)), len(ordered))
        assert wanted == {name for name in ordered[:end] if name.startswith(prefix)}


def test_a_listing_begins_at_its_prefix(connect: Connect, store: Canned) -> None:
    """Else a store of a hundred thousand runs is read whole for one of them."""
    store.say(200, body="<ListBucketResult></ListBucketResult>")
    assert connect("s3").keys("manifests/nightly") == []
    assert "prefix=p%2Fmanifests%2F&" in f"{store.requests[0].path}&"
    assert "start-after=p%2Fmanifests%2Fnightlx%7E" in store.requests[0].path


# Forks.

FORKED = """
import os, signal
from cloudckpt.errors import UnsupportedStoreError
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.testing.driver import by_hand

def store():
    return ObstoreStorage("s3", "bucket", "p", storage_options={
        "key": "K", "secret": "S", "endpoint_url": ENDPOINT})

def child():
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            by_hand(store().create("k", b"x"))
        except UnsupportedStoreError as error:
            os._exit(3 if "spawn" in error.message else 4)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

unused = store()
before = child()
by_hand(unused.create("k", b"x"))
print(before, child())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_process_that_used_obstore_is_refused(store: Canned) -> None:
    """Its threads stay in the parent, and the child would wait for them for ever."""
    code = f"ENDPOINT = {store.endpoint!r}\n{FORKED}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("0 3", 0), done.stderr
