"""A store behind a network that loses, repeats and delays, one request at a time.

Owns: `Remote`, the storage contract as a process sees it, each call a request;
`Disk`, the store; `Network`, what becomes of a request. No choice is made here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from cloudckpt.errors import AmbiguousError, PreconditionFailedError
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from tests.protocol.scheduler import Answer, Pause, Request

FINE, LOST, UNANSWERED, LATE, ECHOED = range(5)
"""Fates of a request: done and answered; never arrived; done but not answered; not answered and arrives
later; sent twice by the network, so that a conditional write's answer is the second one's, and the second
of any other comes late."""

FATE_NAMES = ("fine", "lost", "unanswered", "late", "echoed")

FATES = {
    "read": 2,  # what was not answered might as well be lost
    "list": 2,
    "create": 5,
    "replace": 5,
    "put": 5,
    "delete": 5,
}
CONDITIONAL = ("create", "replace")
LONG_AGO = datetime(2030, 1, 1, tzinfo=UTC)


class Remote:
    """The storage contract; each call is a request that waits for its answer."""

    url = "simulated://"
    blocking = False

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return await Pause(request=Request("read", (key, offset, length)))

    async def create(self, key: str, data: Data) -> Token:
        return await Pause(request=Request("create", (key, bytes(data))))

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await Pause(request=Request("replace", (key, bytes(data), token)))

    async def put(self, key: str, data: Data) -> None:
        await Pause(request=Request("put", (key, bytes(data))))

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await Pause(request=Request("list", (prefix, cursor)))

    async def delete(self, keys: Sequence[str]) -> None:
        await Pause(request=Request("delete", (tuple(keys),)))

    async def close(self) -> None:
        pass


def token_of(data: bytes) -> Token:
    """Return the token of these bytes: as S3's ETag, it is the content's, and comes back if that does."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class Disk:
    """The store itself.

    Attributes:
        values: By key.
        deleted: Every key that a request deleted.
    """

    def __init__(self, values: Iterable[tuple[str, bytes]] = (), deleted: Iterable[str] = ()) -> None:
        self.values = dict(values)
        self.deleted = set(deleted)

    def do(self, request: Request) -> Any:
        """Do what a request asks for."""
        return getattr(self, f"_{request.op}")(*request.arguments)

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        """Read past the network, as the laws do."""
        return self._read(key, offset, length)

    def _read(self, key: str, offset: int, length: int | None) -> Stored | None:
        data = self.values.get(key)
        if data is None:
            return None
        end = None if length is None else offset + length
        return Stored(data[offset:end], token_of(data))

    def _create(self, key: str, data: bytes) -> Token:
        if key in self.values:
            raise PreconditionFailedError("the key exists", key=key)
        self.values[key] = data
        return token_of(data)

    def _replace(self, key: str, data: bytes, token: Token) -> Token:
        if key not in self.values or token_of(self.values[key]) != token:
            raise PreconditionFailedError("the key has another version or is missing", key=key)
        self.values[key] = data
        return token_of(data)

    def _put(self, key: str, data: bytes) -> None:
        self.values.setdefault(key, data)

    def _list(self, prefix: str, _: str | None) -> Page:
        rows = [Listed(k, len(v), LONG_AGO) for k, v in sorted(self.values.items()) if k.startswith(prefix)]
        return Page(tuple(rows), None)

    def _delete(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self.values.pop(key, None)
        self.deleted.update(keys)


class Network:
    """The way to a disk.

    Args:
        disk: The store.
        delay: Called with a request that arrives later; `land` it then. By default it is lost.
    """

    def __init__(self, disk: Disk, delay: Callable[[Request], object] = lambda _: None) -> None:
        self.disk = disk
        self._delay = delay

    def answer(self, request: Request, fate: int) -> Answer:
        """Let a request meet its fate, one of the first `FATES` of its kind; return what its sender gets."""
        if fate == LATE or (fate == ECHOED and request.op not in CONDITIONAL):
            self._delay(request)
        if fate in (LOST, LATE):
            return Answer(error=AmbiguousError)
        answer = self.land(request)
        if fate == ECHOED and request.op in CONDITIONAL:
            answer = self.land(request)
        return Answer(error=AmbiguousError) if fate == UNANSWERED else answer

    def land(self, request: Request) -> Answer:
        """Do what a request asks for, now."""
        try:
            return Answer(self.disk.do(request))
        except PreconditionFailedError:
            return Answer(error=PreconditionFailedError)
