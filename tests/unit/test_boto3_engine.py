"""What is peculiar to botocore without boto3's and s3fs's help."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.storage import s3_boto3
from cloudckpt.storage.s3_boto3 import Boto3Storage, _connect
from cloudckpt.testing.driver import Client, Driver
from tests.servers.canned import Canned


@pytest.fixture
def store() -> Iterator[Canned]:
    with Canned() as canned:
        yield canned


@pytest.fixture
def options(store: Canned) -> dict[str, Any]:
    return {"key": "K", "secret": "S", "endpoint_url": store.endpoint}


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"'endpoint_url', 'key', 'profile'") as raised:
        Boto3Storage("bucket", "p", storage_options={"sercet": "x"})
    assert raised.value.facts["unknown"] == ["sercet"]


def test_a_session_of_either_library_is_taken(store: Canned) -> None:
    import boto3
    import botocore.session

    of_botocore = botocore.session.Session()
    of_botocore.set_credentials("GIVEN", "S")
    of_boto3 = boto3.Session(aws_access_key_id="GIVEN", aws_secret_access_key="S")
    for session in (of_botocore, of_boto3):
        named = {"session": session, "endpoint_url": store.endpoint}
        Client(Driver(), Boto3Storage("bucket", "p", storage_options=named)).create("k", b"x")
        assert "Credential=GIVEN/" in store.requests[-1].headers["Authorization"]


def test_threads_share_one_client(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of botocore's is safe for threads, and its making is not."""
    made = []

    def connect(*given: Any) -> Any:
        made.append(threading.get_ident())
        return _connect(*given)

    monkeypatch.setattr(s3_boto3, "_connect", connect)
    client = Client(Driver(), Boto3Storage("bucket", "p", storage_options=options))
    outcomes = client.together([partial(client.storage.put, f"{n}", b"x") for n in range(4)])
    assert outcomes == [None] * 4
    assert len(made) == 1


def test_a_closed_storage_can_be_used_again(options: dict[str, Any], store: Canned) -> None:
    client = Client(Driver(), Boto3Storage("bucket", "p", storage_options=options))
    client.create("k", b"x")
    client.close()
    client.create("k", b"x")
    assert len(store.requests) == 2


def test_a_botocore_that_would_drop_the_condition_is_refused(
    options: dict[str, Any], store: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model without `IfMatch` sends the PUT without it, and says nothing."""
    from botocore.model import OperationModel

    class Old:
        members = ("Body",)

    monkeypatch.setattr(OperationModel, "input_shape", Old)
    with pytest.raises(UnsupportedStoreError, match="would drop the condition"):
        Client(Driver(), Boto3Storage("bucket", "p", storage_options=options)).create("k", b"x")
    assert store.requests == []


def test_nothing_but_botocore_is_imported(store: Canned) -> None:
    """A function's runtime has no s3fs; and boto3 itself costs time that nothing here needs."""
    code = (
        "import sys\n"
        "from cloudckpt.storage.s3_boto3 import Boto3Storage\n"
        "from cloudckpt.testing.driver import by_hand\n"
        f"options = {{'key': 'K', 'secret': 'S', 'endpoint_url': {store.endpoint!r}}}\n"
        "by_hand(Boto3Storage('bucket', 'p', storage_options=options).create('k', b'x'))\n"
        "print([name for name in ('boto3', 's3fs', 'aiobotocore', 'aiohttp') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
