"""`s3://bucket/prefix` through botocore alone, which boto3 brings, on the caller's own thread.

Owns: the client, and what s3fs's `storage_options` mean to it. It is for
functions whose runtime already carries boto3 and nothing else, so it takes no
package beside it. Invariant: its coroutines never suspend. A client of
botocore's is safe for threads; it is made on the first request, once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from cloudckpt.errors import InvalidInputError, UnsupportedStoreError
from cloudckpt.storage import idle
from cloudckpt.storage.placing import NOWHERE, Placing
from cloudckpt.storage.retry import PATIENCE
from cloudckpt.storage.s3_requests import S3Requests, make_fit, with_defaults

INSTALL = 'pip install "cloudckpt[boto3]"'

_CREDENTIALS = {"key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token"}
_WORDS = (
    *_CREDENTIALS,
    "anon",
    "client_kwargs",
    "config_kwargs",
    "endpoint_url",
    "profile",
    "requester_pays",
    "s3_additional_kwargs",
    "session",
    "use_ssl",
)


class Boto3Storage(S3Requests):
    """One bucket, or a prefix of it.

    Args:
        bucket: The bucket's name.
        prefix: Key prefix without a trailing slash, or "" for the whole bucket.
        storage_options: The words of `s3fs.S3FileSystem`; `session` is one of boto3's or botocore's.
        patience: Seconds without a sign of life after which a request is given up, where the
            options don't say.
        placing: What objects are written with.
    """

    blocking = True

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        patience: float = PATIENCE,
        placing: Placing = NOWHERE,
    ) -> None:
        super().__init__(bucket, prefix, storage_options or {}, placing)
        try:
            import botocore.session  # noqa: F401 - a missing one is told when the store is opened
        except ImportError as error:
            raise UnsupportedStoreError(f"engine='boto3' needs boto3; {INSTALL}") from error
        self._options = _known(storage_options or {})
        self._config = with_defaults(self._options.get("config_kwargs"), patience)
        always = dict(self._options.get("s3_additional_kwargs") or {})
        if self._options.get("requester_pays"):
            always["RequestPayer"] = "requester"
        self._always = always
        self._client: Any = None
        self._opening = threading.Lock()
        self._used = 0.0

    async def close(self) -> None:
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _connected(self) -> Any:
        return self._opened()

    async def _send(self, method: str, **parameters: Any) -> Any:
        client = self._opened()
        if self._always:
            operation = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method])
            taken = operation.input_shape.members
            parameters = {**{k: v for k, v in self._always.items() if k in taken}, **parameters}
        try:
            return getattr(client, method)(**parameters)
        finally:
            self._used = time.monotonic()

    async def _body(self, answer: Any) -> bytes:
        with answer["Body"] as body:
            data: bytes = body.read()
        return data

    def _opened(self) -> Any:
        """Return the client, without connections when they have been idle for too long."""
        with self._opening:
            before, self._used = self._used, time.monotonic()
            if self._client is None:
                client = _connect(self._options, self._config)
                make_fit(client, self._config, self._always, INSTALL)
                self._client = client
            elif self._used - before >= idle.IDLE_SECONDS:
                # All of them, since urllib3 knows no age of one. The client goes on with new ones.
                self._client.close()
            return self._client


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(options) - set(_WORDS))
    if unknown:
        raise InvalidInputError(
            "engine='boto3' does not know these storage_options; leave them out, or use the engine 's3fs'",
            unknown=unknown,
            known=sorted(_WORDS),
        )
    return {word: value for word, value in options.items() if value is not None}


def _connect(options: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """Return a client for storage options as s3fs would make it of them."""
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config

    given = {_CREDENTIALS[word]: options[word] for word in _CREDENTIALS if word in options}
    if "endpoint_url" in options:
        given["endpoint_url"] = options["endpoint_url"]
    given |= {"use_ssl": options.get("use_ssl", True), **options.get("client_kwargs", {})}
    if options.get("anon"):
        given = {name: value for name, value in given.items() if name not in _CREDENTIALS.values()}
        config = {**config, "signature_version": UNSIGNED}
    session = options.get("session") or botocore.session.Session(profile=options.get("profile"))
    # boto3's session calls it `client`.
    make = session.create_client if hasattr(session, "create_client") else session.client
    return make("s3", config=Config(**config), **given)
