"""What a user writes to open a store: what is misspelt is told, and no secret is."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import fsspec
import pytest
import requests
from fsspec.implementations.memory import MemoryFileSystem

import cloudckpt
from cloudckpt.errors import (
    AmbiguousError,
    CloudckptError,
    InvalidInputError,
    PermissionDeniedError,
    StorageError,
)
from cloudckpt.storage.answers import UNSENT, shown
from cloudckpt.storage.azure import AzureStorage
from cloudckpt.storage.contract import Storage
from cloudckpt.storage.engines import engine_for
from cloudckpt.storage.gcs import GCSStorage
from cloudckpt.storage.obstore_engine import ObstoreStorage
from cloudckpt.storage.s3 import S3Storage
from cloudckpt.storage.s3_boto3 import Boto3Storage
from cloudckpt.storage.unsafe import UnsafeStorage
from cloudckpt.testing.driver import Client, Driver
from tests.servers.azurite import ACCOUNT, KEY
from tests.servers.canned import Canned

SECRET = "TOPSECRET"

AMAZONS: dict[str, Callable[[dict[str, Any]], Storage]] = {
    "s3fs": lambda options: S3Storage("bucket", "p", storage_options=options),
    "boto3": lambda options: Boto3Storage("bucket", "p", storage_options=options),
    "obstore": lambda options: ObstoreStorage("s3", "bucket", "p", storage_options=options),
}


@pytest.fixture
def store() -> Iterator[Canned]:
    with Canned() as canned:
        yield canned


def told(make: Callable[[], Storage]) -> CloudckptError:
    """Return what a write raises in a storage that is made of unusable words, or the making of it."""
    driver = Driver()

    def use() -> None:
        client = Client(driver, make())
        try:
            client.create("k", b"x")
        finally:
            client.close()

    try:
        with pytest.raises(CloudckptError) as caught:
            use()
    finally:
        driver.close()
    return caught.value


def everything(error: BaseException) -> str:
    """Return all that a log shows of an error."""
    return "".join(traceback.format_exception(error)) + repr(error)


# ---- what is misspelt


@pytest.mark.parametrize("word", ["endpoint", "requester_pay"])
def test_a_word_that_gcsfs_would_drop_is_told(store: Canned, word: str) -> None:
    """`endpoint` for `endpoint_url`: the states would go to Google, and not to where they belong."""
    options = {"token": "anon", "endpoint_url": store.endpoint, word: "http://127.0.0.1:9"}
    error = told(lambda: GCSStorage("bucket", "p", storage_options=options))
    assert isinstance(error, InvalidInputError)
    assert error.facts["unknown"] == [word]
    assert "endpoint_url" in error.facts["known"]
    assert store.requests == []


def test_a_word_that_adlfs_would_drop_is_told_and_those_for_its_login_are_not(store: Canned) -> None:
    named = f"BlobEndpoint={store.endpoint}/{ACCOUNT};AccountName={ACCOUNT};AccountKey={KEY};"
    options = {"connection_string": named, "read_timeot": 3}
    error = told(lambda: AzureStorage("box", "p", storage_options=options))
    assert isinstance(error, InvalidInputError)
    assert error.facts["unknown"] == ["read_timeot"]
    login = {"managed_identity_client_id": "id", "exclude_cli_credential": True}
    AzureStorage("box", "p", storage_options={"account_name": "a", **login})


@pytest.mark.parametrize("engine", AMAZONS)
def test_a_word_for_requests_that_none_of_them_knows_is_told(store: Canned, engine: str) -> None:
    """Encryption that is misspelt was left out of every write."""
    wanted = {"ServerSideEncrypton": "aws:kms"}
    options = {"key": "k", "secret": "s", "endpoint_url": store.endpoint, "s3_additional_kwargs": wanted}
    error = told(lambda: AMAZONS[engine](options))
    assert isinstance(error, InvalidInputError)
    assert error.facts["unknown"] == ["s3_additional_kwargs.ServerSideEncrypton"]
    assert store.requests == []


@pytest.mark.parametrize(
    "options",
    [
        {"account_name": "a", "client_id": "x"},
        {"account_name": "a", "client_id": "x", "tenant_id": "y"},
        {"connection_string": SECRET},
        {"connection_string": f"AccountKey={SECRET}"},
    ],
)
def test_half_a_login_is_told(options: dict[str, str]) -> None:
    """Else obstore would log in as whom the environment names, and to the account "None"."""
    error = told(lambda: ObstoreStorage("az", "box", "p", storage_options=options))
    assert isinstance(error, InvalidInputError)
    assert SECRET not in everything(error)


@pytest.mark.parametrize("endpoint", ["localhost:9000", "htp://localhost:9000"])
@pytest.mark.parametrize("engine", ["s3fs", "boto3", "gcsfs"])
def test_an_endpoint_that_is_none_is_told_at_once(engine: str, endpoint: str) -> None:
    """As a passing failure it would be asked for a minute."""
    if engine == "gcsfs":
        options = {"token": "anon", "endpoint_url": endpoint}
        error = told(lambda: GCSStorage("bucket", "p", storage_options=options))
    else:
        named = {"key": "k", "secret": "s", "endpoint_url": endpoint}
        error = told(lambda: AMAZONS[engine](named))
    assert error.kind == "bad-options"


@pytest.mark.parametrize("engine", [None, "obstore"])
@pytest.mark.parametrize("prefix", ["a\\b", "a./b", "a."])
def test_a_prefix_that_azure_would_change_is_refused(prefix: str, engine: str | None) -> None:
    r"""What is written below `a\b` is read there, and is listed below `a/b` alone."""
    with pytest.raises(InvalidInputError, match="prefix"):
        cloudckpt.open(f"az://box/{prefix}", engine=engine)


# ---- secrets


@pytest.mark.parametrize("engine", AMAZONS)
def test_a_token_with_a_line_break_is_told_and_not_shown(store: Canned, engine: str) -> None:
    """As of a file that was read whole. urllib3 shows it, and it was taken for a passing failure."""
    options = {"key": "k", "secret": "s", "token": f"{SECRET}\n", "endpoint_url": store.endpoint}
    error = told(lambda: AMAZONS[engine](options))
    assert isinstance(error, PermissionDeniedError)
    assert error.kind == "credentials"
    assert SECRET not in everything(error)


@pytest.mark.parametrize(
    "url", ["s3://key:{}@bucket/x", "gs://{}@bucket", "az://box@{}.dfs.core.windows.net/x"]
)
@pytest.mark.parametrize("engine", [None, "obstore"])
def test_a_url_with_credentials_is_refused_and_not_shown(url: str, engine: str | None) -> None:
    with pytest.raises(InvalidInputError, match="storage_options") as caught:
        cloudckpt.open(url.format(SECRET), engine=engine)
    assert SECRET not in everything(caught.value)


def test_an_endpoint_is_shown_without_its_secrets() -> None:
    for options in (
        {"connection_string": f"BlobEndpoint=a.blob.core.windows.net/?sv=1&sig={SECRET}"},
        {"connection_string": f"BlobEndpoint=ftp://a/;SharedAccessSignature=sv=1&sig={SECRET}"},
    ):
        error = told(partial(ObstoreStorage, "az", "box", "", storage_options=options))
        assert isinstance(error, InvalidInputError)
        assert SECRET not in everything(error)
    odd = {"key": "k", "secret": "s", "endpoint_url": f"ftp://me:{SECRET}@host"}
    for make in AMAZONS.values():
        assert SECRET not in everything(told(partial(make, odd)))


def test_what_is_shown_says_the_rest() -> None:
    assert (
        shown("no http://me:pass@host/a?sv=1&sig=abc&x=1 there")
        == "no http://***@host/a?sv=1&sig=***&x=1 there"
    )
    assert shown("host with url: /tokeninfo?access_token=abc (Caused") == (
        "host with url: /tokeninfo?access_token=*** (Caused"
    )
    assert shown("a plain word, a=b and c@d") == "a plain word, a=b and c@d"


def test_a_token_that_google_could_not_be_asked_about_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gcsfs asks by a URL with the token in it, and requests shows the URL."""

    def get(url: str, params: dict[str, str], **_: Any) -> None:
        raise requests.ConnectionError(
            f"Max retries exceeded with url: {url}?access_token={params['access_token']}"
        )

    monkeypatch.setattr(requests, "get", get)
    error = told(lambda: GCSStorage("bucket", "p", storage_options={"token": SECRET}))
    assert error.kind == UNSENT
    assert SECRET not in everything(error)


class Named(MemoryFileSystem):  # type: ignore[misc]
    """A file system that takes its host and password from the URL, as FTP's does."""

    protocol = "named"

    def __init__(self, host: str, password: str = "", **options: Any) -> None:
        if password != SECRET:
            raise ValueError(f"wrong password: ftp://me:{password}@{host}")
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.partition("://")[2].partition("/")[2]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        login, _, host = path.partition("://")[2].partition("/")[0].rpartition("@")
        return {"host": host, "password": login.partition(":")[2]}


def test_another_file_system_gets_its_words_from_the_url_and_shows_no_password() -> None:
    fsspec.register_implementation("named", Named, clobber=True)
    storage = UnsafeStorage("named", f"me:{SECRET}@host/folder")
    assert storage.url == "named://***@host/folder"
    with pytest.raises(StorageError) as caught:
        UnsafeStorage("named", "me:other@host/folder")
    assert caught.value.kind == "bad-options"
    assert "other" not in str(caught.value)
    with pytest.raises(StorageError) as caught:
        UnsafeStorage("named", "host/folder", storage_options={"hots": "x", "host": None})
    assert caught.value.kind == "bad-options"


def test_another_file_system_that_can_not_be_reached_is_no_traceback() -> None:
    """FTP's connects when it is made."""
    with pytest.raises(AmbiguousError):
        engine_for("ftp://127.0.0.1:9/x", unsafe_single_writer=True)()
