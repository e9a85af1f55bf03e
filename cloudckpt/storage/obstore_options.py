"""From the `storage_options` of s3fs, gcsfs and adlfs to a store of obstore's.

Owns: which words are known, and what each means to obstore. Invariant: no word
is dropped in silence, and what the caller names wins over the environment, of
which obstore reads its own variables besides. It makes nothing and asks
nobody: a profile of AWS's is looked up later, by `obstore_login.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from cloudckpt.errors import InvalidInputError
from cloudckpt.storage import idle
from cloudckpt.storage.answers import shown

_NO_BOUND = timedelta(days=7)
_ENDPOINT = re.compile(r"https?://([^/?#@]*@)?[^/?#@:\s]", re.IGNORECASE)


class Keys:
    """Credentials of AWS's that the caller names, as obstore asks for them. Its repr shows none."""

    def __init__(self, key: str, secret: str, token: str | None) -> None:
        self._found = {
            "access_key_id": key,
            "secret_access_key": secret,
            "token": token,
            "expires_at": None,
        }

    def __call__(self) -> dict[str, Any]:
        return self._found


def nobody() -> dict[str, Any]:
    """Return no credentials of Google's: obstore signs a write even where it is told not to."""
    return {"token": "", "expires_at": None}


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile in AWS's shared files.

    Attributes:
        name: None for the default one.
        named: Whether it was asked for, so that its absence is an error.
    """

    name: str | None
    named: bool


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one store of obstore's.

    Attributes:
        config: The store's own configuration; has secrets in it.
        client: Of its HTTP client; the time-outs only where the caller names them.
        login: Where the credentials come from, unless from `config` or obstore's own chain.
        put: Given to every write.
    """

    config: Mapping[str, Any] = field(repr=False)
    client: Mapping[str, Any]
    login: Callable[[], dict[str, Any]] | Profile | None = None
    put: Mapping[str, Any] = field(default_factory=dict)


def recipe_for(
    scheme: str, bucket: str, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> Recipe:
    """Return how to make the store.

    Args:
        scheme: ``s3``, ``gs`` or ``az``.
        bucket: The bucket or container.
        options: The caller's `storage_options`.
        environ: What AWS's own variables are looked up in.

    Raises:
        InvalidInputError: A word or a value is not usable; the message lists the known words.
    """
    words = _Words(options, environ)
    recipe = {"s3": _s3, "gs": _gs, "az": _az}[scheme](bucket, words)
    words.check()
    return recipe


class _Words:
    """Options that are taken one by one; what nobody took is unknown."""

    def __init__(self, options: Any, environ: Mapping[str, str], where: str = "") -> None:
        if not isinstance(options, Mapping):
            raise InvalidInputError("this storage option must be a mapping", option=where.rstrip("."))
        self._options = {word: value for word, value in options.items() if value is not None}
        self.environ = environ
        self._where = where
        self._taken: dict[str, _Words | None] = {}

    def take(self, word: str) -> Any:
        """Return the option, or None."""
        self._taken[word] = None
        return self._options.get(word)

    def inside(self, word: str) -> _Words:
        """Return the options below this word."""
        inner = self._taken[word] = _Words(self._options.get(word, {}), self.environ, f"{self._where}{word}.")
        return inner

    def check(self) -> None:
        """Raise unless every word was taken."""
        unknown = sorted(str(word) for word in set(self._options) - set(self._taken))
        if unknown:
            raise InvalidInputError(
                "engine='obstore' does not know these storage_options; leave them out, "
                "or use the engine that they come from",
                unknown=[f"{self._where}{word}" for word in unknown],
                known=[f"{self._where}{word}" for word in sorted(self._taken)],
            )
        for inner in self._taken.values():
            if inner is not None:
                inner.check()


# ---- s3: the words of s3fs


def _s3(bucket: str, words: _Words) -> Recipe:
    if bucket.endswith("--x-s3"):
        raise InvalidInputError(
            "a directory bucket lists in no order; use the engine 's3fs' for it", bucket=bucket
        )
    client, config = words.inside("client_kwargs"), words.inside("config_kwargs")
    region = client.take("region_name") or config.take("region_name")
    region = region or words.environ.get("AWS_REGION") or words.environ.get("AWS_DEFAULT_REGION")
    made: dict[str, Any] = {"bucket": bucket, "conditional_put": "etag"}
    if region:
        made["region"] = region
    if words.take("requester_pays"):
        made["request_payer"] = True
    endpoint = _s3_endpoint(words, client)
    if False in (words.take("use_ssl"), client.take("use_ssl")) and endpoint is None:
        endpoint = f"http://s3.{region or 'us-east-1'}.amazonaws.com"
    made |= _address(bucket, endpoint, config.inside("s3").take("addressing_style"))
    # In the head, which even stores take that refuse a trailer: see `S3Requests._put` for why.
    if (config.take("request_checksum_calculation") or "when_supported") == "when_supported":
        made["checksum_algorithm"] = "SHA256"
    put = _s3_put(words.inside("s3_additional_kwargs"), made)
    login = _s3_login(words, client)
    if words.take("anon"):
        made["skip_signature"], login = True, None
    http = _http(config.take("connect_timeout"), config.take("read_timeout"), client.take("verify"))
    return Recipe(made, http, login, put)


def _s3_endpoint(words: _Words, client: _Words) -> str | None:
    given = {
        "endpoint_url": words.take("endpoint_url"),
        "client_kwargs.endpoint_url": client.take("endpoint_url"),
        **{name: words.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")},
    }
    for name, url in given.items():
        if url:
            return _url(name, url)
    return None


def _address(bucket: str, endpoint: str | None, style: str | None) -> dict[str, Any]:
    """Return how the bucket is addressed: in the path, unless the caller wants it in the host name."""
    made: dict[str, Any] = {}
    if style == "virtual":
        made["virtual_hosted_style_request"] = True
        endpoint = endpoint and endpoint.replace("://", f"://{bucket}.", 1)
    elif style not in (None, "auto", "path"):
        raise InvalidInputError("an addressing_style is 'auto', 'path' or 'virtual'", got=style)
    if endpoint:
        made["aws_endpoint_url_s3"] = endpoint  # the one that obstore puts above all others
    return made


def _s3_put(words: _Words, made: dict[str, Any]) -> dict[str, Any]:
    """Return what each write is given; what obstore keeps in the store's configuration goes there."""
    for word, name in {
        "ServerSideEncryption": "server_side_encryption",
        "SSEKMSKeyId": "sse_kms_key_id",
        "BucketKeyEnabled": "sse_bucket_key_enabled",
        "ChecksumAlgorithm": "checksum_algorithm",
    }.items():
        value = words.take(word)
        if value is not None:
            made[name] = value
    if words.take("RequestPayer"):
        made["request_payer"] = True
    put: dict[str, Any] = {}
    storage_class, tagging = words.take("StorageClass"), words.take("Tagging")
    if storage_class:
        put["attributes"] = {"Storage-Class": storage_class}
    if tagging:
        from urllib.parse import parse_qsl

        put["tags"] = dict(parse_qsl(tagging, keep_blank_values=True))
    return put


_OWN_SOURCES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Where obstore looks for credentials by itself, besides the instance's metadata."""


def _s3_login(words: _Words, client: _Words) -> Keys | Profile | None:
    environ = words.environ
    key = words.take("key") or client.take("aws_access_key_id")
    secret = words.take("secret") or client.take("aws_secret_access_key")
    token = words.take("token") or client.take("aws_session_token")
    profile = words.take("profile")
    if bool(key) != bool(secret):
        raise InvalidInputError("an access key needs both `key` and `secret`")
    if key:
        # Not by the configuration: a session token in the environment would be mixed with these.
        return Keys(str(key), str(secret), token)
    if profile:
        return Profile(profile, named=True)
    if any(environ.get(name) for name in _OWN_SOURCES):
        return None
    if environ.get("AWS_PROFILE"):
        return Profile(environ["AWS_PROFILE"], named=True)
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    if any(_is_file(environ.get(name, usual)) for name, usual in files.items()):
        return Profile(None, named=False)
    return None


# ---- gs: the words of gcsfs


def _gs(bucket: str, words: _Words) -> Recipe:
    made: dict[str, Any] = {"bucket": bucket}
    words.take("project")  # matters to what is done with buckets, which is nothing here
    endpoint, login = words.take("endpoint_url"), words.take("token")
    if endpoint:
        made["base_url"] = _url("endpoint_url", endpoint)
    if login == "anon":
        made["skip_signature"] = True
    elif isinstance(login, Mapping):
        import json

        made["service_account_key"] = json.dumps(dict(login))
    elif isinstance(login, str | os.PathLike) and _is_file(login):
        made["application_credentials"] = os.path.expanduser(os.fspath(login))
    elif login not in (None, "google_default", "cloud"):
        raise InvalidInputError(
            "a token is 'google_default', 'cloud', 'anon', the path of a credentials file that exists, "
            "or the content of a service account's file"
        )
    # What everybody may read Google lets caches keep for an hour; a pointer's reader needs the newest.
    put = {"attributes": {"Cache-Control": "no-store"}}
    http = _http(None, words.take("requests_timeout"))
    return Recipe(made, http, nobody if login == "anon" else None, put)


# ---- az: the words of adlfs


def _az(container: str, words: _Words) -> Recipe:
    made: dict[str, Any] = {"container_name": container}
    made |= _connection(words.take("connection_string"))
    account, host = words.take("account_name"), words.take("account_host")
    if account:
        made["account_name"] = account
    if host:
        made["endpoint"] = _url("account_host", f"https://{host}")
    credentials = {
        "access_key": {"account_key": words.take("account_key")},
        "sas_token": {"sas_key": words.take("sas_token")},
        "client_secret": {name: words.take(name) for name in ("tenant_id", "client_id", "client_secret")},
    }
    for kind, given in credentials.items():
        if all(given.values()):
            made |= {"credential_type": kind, **given}  # so that the environment's is not tried first
            break
    partly = [name for name, value in credentials["client_secret"].items() if value]
    if partly and "credential_type" not in made:  # else obstore would log in as somebody else
        raise InvalidInputError(
            "a service principal needs all of tenant_id, client_id and client_secret", got=partly
        )
    if words.take("anon") and "credential_type" not in made:
        made["skip_signature"] = True
    if "sas_key" in made:
        made["sas_key"] = made["sas_key"].lstrip("?")
    return Recipe(made, _http(words.take("connection_timeout"), words.take("read_timeout")))


def _connection(text: str | None) -> dict[str, Any]:
    """Return what a connection string of Azure's says."""
    if not text:
        return {}
    said = dict(part.strip().split("=", 1) for part in text.split(";") if "=" in part)
    if said.get("UseDevelopmentStorage") == "true":
        return {"use_emulator": True}
    account = said.get("AccountName")
    endpoint = said.get("BlobEndpoint")
    if not endpoint and not account:
        raise InvalidInputError("a connection_string needs an AccountName or a BlobEndpoint")
    if not endpoint:
        suffix = said.get("EndpointSuffix", "core.windows.net")
        endpoint = f"{said.get('DefaultEndpointsProtocol', 'https')}://{account}.blob.{suffix}"
    made = {"endpoint": _url("connection_string", endpoint)}
    # A string with a signature names no account, but its endpoint does.
    made["account_name"] = account or endpoint.partition("://")[2].partition(".")[0]
    if "AccountKey" in said:
        made |= {"account_key": said["AccountKey"], "credential_type": "access_key"}
    elif "SharedAccessSignature" in said:
        made |= {"sas_key": said["SharedAccessSignature"], "credential_type": "sas_token"}
    return made


# ---- all of them


def _url(name: str, url: Any) -> str:
    if isinstance(url, str) and _ENDPOINT.match(url):
        return url.rstrip("/")
    raise InvalidInputError("an endpoint is http://HOST or https://HOST", option=name, got=shown(str(url)))


def _http(connect: Any, answer: Any, verify: Any = None) -> dict[str, Any]:
    timeouts = {"connect_timeout": _seconds(connect), "read_timeout": _seconds(answer)}
    made: dict[str, Any] = {
        **{name: seconds for name, seconds in timeouts.items() if seconds is not None},
        "allow_http": True,  # an endpoint is http only where somebody wrote so
        "pool_idle_timeout": timedelta(seconds=idle.IDLE_SECONDS),
        "timeout": _NO_BOUND,  # of a whole answer: a big object may take its time, as long as it comes
    }
    if verify is False:
        made["allow_invalid_certificates"] = True
    elif isinstance(verify, str | os.PathLike):
        try:
            with open(verify, "rb") as file:
                made["root_certificate"] = file.read()
        except OSError as error:
            raise InvalidInputError("the certificates can't be read", verify=str(verify)) from error
    return made


def _is_file(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(os.path.expanduser(path))


def _seconds(given: Any) -> timedelta | None:
    if given is None:
        return None
    if isinstance(given, int | float) and given > 0:
        return timedelta(seconds=given)
    raise InvalidInputError("a timeout is a number of seconds above 0", got=given)
