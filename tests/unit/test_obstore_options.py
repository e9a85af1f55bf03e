"""The words of s3fs, gcsfs and adlfs mean to obstore what they mean there, and none is dropped in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudckpt.errors import InvalidInputError, StorageError, UnsupportedStoreError
from cloudckpt.storage.obstore_engine import ObstoreStorage, _make
from cloudckpt.storage.obstore_options import Keys, Profile, Recipe, recipe_for

ACCOUNT_KEY = "a2V5"


def s3(options: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Recipe:
    return recipe_for("s3", "bucket", options, environ or {})


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    """At any depth: what is dropped in silence may be an encryption key."""
    for scheme, options, unknown in (
        ("s3", {"sercet": "x"}, "sercet"),
        ("s3", {"client_kwargs": {"region": "x"}}, "client_kwargs.region"),
        ("s3", {"config_kwargs": {"s3": {"adressing_style": "path"}}}, "config_kwargs.s3.adressing_style"),
        ("s3", {"s3_additional_kwargs": {"ACL": "private"}}, "s3_additional_kwargs.ACL"),
        ("gs", {"account_name": "x"}, "account_name"),
        ("az", {"key": "x"}, "key"),
    ):
        with pytest.raises(InvalidInputError) as raised:
            recipe_for(scheme, "bucket", options, {})
        assert raised.value.facts["unknown"] == [unknown]
    with pytest.raises(InvalidInputError, match=r"'endpoint_url', 'key', 'profile'"):
        s3({"sercet": "x"})


def test_a_word_that_is_none_is_as_if_it_was_not_there() -> None:
    assert s3({"key": None, "client_kwargs": None, "anything": None}) == s3({})


def test_an_option_of_another_shape_is_told() -> None:
    for options in (
        {"client_kwargs": "eu-west-1"},
        {"endpoint_url": "nonsense"},
        {"endpoint_url": "ftp://host"},
        {"endpoint_url": 5},
        {"client_kwargs": {"endpoint_url": "http://"}},
        {"key": "only"},
        {"config_kwargs": {"read_timeout": "long"}},
        {"config_kwargs": {"connect_timeout": 0}},
        {"config_kwargs": {"s3": {"addressing_style": "sideways"}}},
        {"client_kwargs": {"verify": "/nothing/here.pem"}},
    ):
        with pytest.raises(InvalidInputError):
            s3(options)
    with pytest.raises(InvalidInputError, match="AWS_ENDPOINT_URL"):
        s3({}, {"AWS_ENDPOINT_URL": "nonsense"})


def test_the_caller_wins_over_the_environment() -> None:
    environ = {
        "AWS_ENDPOINT_URL_S3": "http://env",
        "AWS_REGION": "env-1",
        "AWS_PROFILE": "env",
        "AWS_ACCESS_KEY_ID": "env",
    }
    named = s3(
        {"endpoint_url": "https://named/", "client_kwargs": {"region_name": "named-1"}, "profile": "named"},
        environ,
    )
    assert named.config["aws_endpoint_url_s3"] == "https://named"
    assert named.config["region"] == "named-1"
    assert named.login == Profile("named", named=True)
    left = s3({}, environ)
    assert (left.config["aws_endpoint_url_s3"], left.config["region"], left.login) == (
        "http://env",
        "env-1",
        None,
    )


def test_keys_are_known_by_either_name() -> None:
    flat = s3({"key": "K", "secret": "S", "token": "T"})
    deep = s3(
        {
            "client_kwargs": {
                "aws_access_key_id": "K",
                "aws_secret_access_key": "S",
                "aws_session_token": "T",
            }
        }
    )
    for login in (flat.login, deep.login):
        assert isinstance(login, Keys)
        assert login() == {
            "access_key_id": "K",
            "secret_access_key": "S",
            "token": "T",
            "expires_at": None,
        }


def test_secrets_are_not_shown() -> None:
    recipe = s3({"key": "the-key", "secret": "the-secret", "token": "the-token"})
    az = recipe_for("az", "c", {"account_name": "a", "account_key": "the-secret"}, {})
    assert not any(word in f"{recipe!r}{az!r}" for word in ("the-key", "the-secret", "the-token"))


def test_a_profile_is_looked_for_only_when_the_environment_has_no_keys(tmp_path: Path) -> None:
    """For botocore takes ten times as long to import as obstore."""
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "c"), "AWS_CONFIG_FILE": str(tmp_path / "d")}
    assert s3({}, files).login is None
    (tmp_path / "d").touch()
    assert s3({}, files).login == Profile(None, named=False)
    assert s3({}, {**files, "AWS_PROFILE": "p"}).login == Profile("p", named=True)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        assert s3({}, {**files, "AWS_PROFILE": "p", name: "x"}).login is None
    assert s3({"anon": True}, files).login is None


def test_a_virtual_host_has_the_bucket_in_its_name() -> None:
    style = {"config_kwargs": {"s3": {"addressing_style": "virtual"}}}
    assert s3(style).config["virtual_hosted_style_request"] is True
    config = s3({**style, "endpoint_url": "https://s3.host:9000"}).config
    assert config["aws_endpoint_url_s3"] == "https://bucket.s3.host:9000"


def test_a_checksum_is_sent_unless_the_caller_declines() -> None:
    """A bucket with object lock demands one, and without it SeaweedFS takes a torn write for a whole one."""
    elsewhere = {"endpoint_url": "https://minio"}
    asked = {"config_kwargs": {"request_checksum_calculation": "when_supported"}}
    declined = {"config_kwargs": {"request_checksum_calculation": "when_required"}}
    assert "checksum_algorithm" in s3({}).config
    assert "checksum_algorithm" in s3({"endpoint_url": "https://s3.eu-west-1.amazonaws.com"}).config
    assert "checksum_algorithm" in s3({**elsewhere, **asked}).config
    assert "checksum_algorithm" in s3(elsewhere).config
    assert "checksum_algorithm" not in s3({**elsewhere, **declined}).config
    assert "checksum_algorithm" not in s3(declined).config


def test_timeouts_are_seconds() -> None:
    client = s3({"config_kwargs": {"connect_timeout": 1, "read_timeout": 2.5}}).client
    assert (client["connect_timeout"], client["read_timeout"]) == (
        timedelta(seconds=1),
        timedelta(seconds=2.5),
    )


def test_without_tls_amazon_is_spoken_to_by_http() -> None:
    config = s3({"use_ssl": False, "client_kwargs": {"region_name": "eu-west-1"}}).config
    assert config["aws_endpoint_url_s3"] == "http://s3.eu-west-1.amazonaws.com"
    assert s3({"use_ssl": False, "endpoint_url": "https://h"}).config["aws_endpoint_url_s3"] == "https://h"


def test_googles_token_is_a_word_a_file_or_its_content(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_text("{}")

    def gs(token: Any) -> Mapping[str, Any]:
        return recipe_for("gs", "bucket", {"token": token, "project": "p"}, {}).config

    assert gs("anon")["skip_signature"] is True
    assert gs(None) == gs("google_default") == gs("cloud") == {"bucket": "bucket"}
    assert gs(file)["application_credentials"] == gs(str(file))["application_credentials"] == str(file)
    content = {"type": "service_account", "private_key": "x"}
    assert json.loads(gs(content)["service_account_key"]) == content
    for token in ("browser", str(tmp_path / "missing.json"), 5):
        with pytest.raises(InvalidInputError):
            gs(token)


def test_azures_connection_string_is_taken_apart() -> None:
    def az(text: str) -> Mapping[str, Any]:
        return recipe_for("az", "c", {"connection_string": text}, {}).config

    whole = f"DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={ACCOUNT_KEY}==;EndpointSuffix=x.net"
    assert az(whole) == {
        "container_name": "c",
        "endpoint": "https://acc.blob.x.net",
        "account_name": "acc",
        "account_key": f"{ACCOUNT_KEY}==",
        "credential_type": "access_key",
    }
    local = az(f"AccountName=acc;AccountKey={ACCOUNT_KEY};BlobEndpoint=http://127.0.0.1:1/acc;")
    assert local["endpoint"] == "http://127.0.0.1:1/acc"
    signed = az("BlobEndpoint=https://acc.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=a%3D")
    assert (signed["account_name"], signed["sas_key"]) == ("acc", "sv=1&sig=a%3D")
    assert az("UseDevelopmentStorage=true")["use_emulator"] is True


def test_azures_words_name_one_kind_of_credential() -> None:
    def az(**options: Any) -> Mapping[str, Any]:
        return recipe_for("az", "c", {"account_name": "acc", **options}, {}).config

    assert az(account_key=ACCOUNT_KEY)["credential_type"] == "access_key"
    assert az(sas_token="?sv=1&sig=x")["sas_key"] == "sv=1&sig=x"
    principal = az(tenant_id="t", client_id="i", client_secret="s")
    assert (principal["credential_type"], principal["client_secret"]) == ("client_secret", "s")
    assert az(anon=True)["skip_signature"] is True
    assert "skip_signature" not in az(anon=True, account_key=ACCOUNT_KEY)
    assert az(account_host="acc.blob.x.net")["endpoint"] == "https://acc.blob.x.net"


EVERYTHING: list[tuple[str, dict[str, Any]]] = [
    (
        "s3",
        {
            "key": "K",
            "secret": "S",
            "token": "T",
            "endpoint_url": "http://127.0.0.1:9",
            "requester_pays": True,
            "use_ssl": False,
            "client_kwargs": {"region_name": "eu-west-1", "verify": False},
            "config_kwargs": {
                "connect_timeout": 1,
                "read_timeout": 2,
                "request_checksum_calculation": "when_supported",
                "s3": {"addressing_style": "virtual"},
            },
            "s3_additional_kwargs": {
                "ServerSideEncryption": "aws:kms",
                "SSEKMSKeyId": "k",
                "BucketKeyEnabled": True,
                "ChecksumAlgorithm": "SHA256",
                "StorageClass": "STANDARD_IA",
                "Tagging": "a=b",
                "RequestPayer": "requester",
            },
        },
    ),
    ("gs", {"token": "anon", "endpoint_url": "http://127.0.0.1:9", "requests_timeout": 2, "project": "p"}),
    ("az", {"account_name": "a", "account_key": ACCOUNT_KEY, "connection_timeout": 1, "read_timeout": 2}),
    ("az", {"account_name": "a", "sas_token": "sv=1&sig=x", "account_host": "a.blob.x.net"}),
    ("az", {"account_name": "a", "tenant_id": "t", "client_id": "i", "client_secret": "s"}),
]


@pytest.mark.parametrize(("scheme", "options"), EVERYTHING)
def test_obstore_takes_all_that_is_made_for_it(scheme: str, options: dict[str, Any]) -> None:
    """A name that obstore does not know, or a value of a kind that it can't read, shows when it is made."""
    recipe = recipe_for(scheme, "bucket", options, {})
    assert _make(scheme, recipe, recipe.login) is not None


def test_what_obstore_refuses_is_told() -> None:
    recipe = recipe_for("az", "c", {"account_name": "a", "account_key": "***"}, {})
    with pytest.raises(StorageError, match="Invalid Access Key") as raised:
        _make("az", recipe, None)
    assert raised.value.kind == "bad-options"


def test_an_obstore_that_is_too_old_is_told() -> None:
    for recipe in (
        Recipe({"bucket": "b", "word_of_tomorrow": "x"}, {}),
        Recipe({"bucket": "b"}, {"word_of_tomorrow": "x"}),
    ):
        with pytest.raises(UnsupportedStoreError, match="-U"):
            _make("s3", recipe, None)


def test_a_store_that_obstore_can_not_serve_is_refused_at_once() -> None:
    """Its folder store has no conditional replace, a directory bucket no order, its paths no empty part."""
    with pytest.raises(UnsupportedStoreError):
        ObstoreStorage("file", "/tmp/x", "")
    with pytest.raises(InvalidInputError):
        ObstoreStorage("s3", "bucket--use1-az4--x-s3", "")
    for prefix in ("a//b", "a/../b", "."):
        with pytest.raises(InvalidInputError):
            ObstoreStorage("s3", "bucket", prefix)
