"""`s3://bucket/prefix` through s3fs.

Owns: how s3fs sends the requests of `s3_requests.py`. s3fs brings the session,
so credentials, profiles, roles, endpoints and `storage_options` work as they do
for it; its `cat_file` and `pipe_file` are passed by, since the first may read a
stale listing and the second drops `IfMatch` on multipart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from cloudckpt.errors import UnsupportedStoreError
from cloudckpt.storage import idle
from cloudckpt.storage.placing import NOWHERE, Placing
from cloudckpt.storage.retry import PATIENCE
from cloudckpt.storage.s3_requests import S3Requests, make_fit, with_defaults

INSTALL = 'pip install "cloudckpt[s3]"'


class S3Storage(S3Requests):
    """One bucket, or a prefix of it.

    Args:
        bucket: The bucket's name.
        prefix: Key prefix without a trailing slash, or "" for the whole bucket.
        storage_options: Passed to `s3fs.S3FileSystem` as they are.
        patience: Seconds without a sign of life after which a request is given up, where the
            options don't say.
        placing: What objects are written with.
    """

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
            import s3fs
        except ImportError as error:
            raise UnsupportedStoreError(f"s3:// needs s3fs; {INSTALL}") from error
        options = dict(storage_options or {})
        self._config = with_defaults(options.get("config_kwargs"), patience)
        kept = {"keepalive_timeout": idle.IDLE_SECONDS}
        self._config["connector_args"] = {**kept, **(self._config.get("connector_args") or {})}
        # A stale listing would hide another machine's write even from a read.
        own = {"asynchronous": True, "skip_instance_cache": True, "use_listings_cache": False}
        self._options = {**options, "config_kwargs": self._config, **own}
        self._make = s3fs.S3FileSystem
        self._fs: Any = None
        self._clients: dict[int, Any] = {}
        self._opening: asyncio.Lock | None = None

    async def close(self) -> None:
        fs, self._fs = self._fs, None
        self._clients.clear()
        if fs is not None and fs._s3 is not None:
            await fs._s3creator.__aexit__(None, None, None)

    async def _connected(self) -> Any:
        fs = await self._session()
        return await fs.get_s3(self._bucket)

    async def _send(self, method: str, **parameters: Any) -> Any:
        fs = await self._session()
        return await fs._call_s3(method, **parameters)

    async def _body(self, answer: Any) -> bytes:
        async with answer["Body"] as body:
            data: bytes = await body.read()
        return data

    async def _session(self) -> Any:
        """Return the file system with a client for this bucket that is fit for our requests."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._fs is None:
                self._fs = self._make(**self._options)
                # Older s3fs closes its session in whatever loop the garbage collector strikes.
                self._fs.close_session = _leave_open
                self._fs.retries = 1  # repeating is the wrapper's, and the protocol's for conditional writes
            await self._fs.set_session()
            client = await self._fs.get_s3(self._bucket)
            if id(client) not in self._clients:
                make_fit(client, self._config, self.options.get("s3_additional_kwargs") or {}, INSTALL)
                self._clients[id(client)] = client
        return self._fs


def _leave_open(*_: object) -> None:
    """Close nothing: `S3Storage.close` does, on the loop that the session belongs to."""
