"""The doctor's visit to a store in memory, and what it finds there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cloudckpt.clock import SystemClock
from cloudckpt.doctor import Report, examine
from cloudckpt.effects import Effects
from cloudckpt.errors import PermissionDeniedError
from cloudckpt.runner import DirectRunner, drive
from cloudckpt.storage.contract import Data, Page, Stored, Token
from cloudckpt.storage.findings import Finding, Level
from cloudckpt.storage.memory import MemoryStorage

_names = itertools.count()


def memory(kind: type[MemoryStorage] = MemoryStorage) -> MemoryStorage:
    return kind(f"doctor-{next(_names)}")


def hasty() -> Effects:
    """Return effects whose waits between tries take no time."""

    async def sleep(_: float) -> None:
        pass

    return replace(DirectRunner(SystemClock()).effects, sleep=sleep)


def visit(engine: Any, effects: Effects | None = None) -> Report:
    return drive(examine(engine, effects or hasty()))


def found(report: Report, check: str) -> Finding:
    [finding] = [each for each in report.findings if each.check == check]
    return finding


def levels(report: Report) -> dict[str, Level]:
    return {finding.check: finding.level for finding in report.findings}


def keys_of(engine: MemoryStorage) -> list[str]:
    return [row.key for row in drive(engine.list("")).rows]


class Limited(MemoryStorage):
    """A store whose user lacks rights; as on S3 a missing key is denied to one who may not list."""

    lacks: frozenset[str] = frozenset()

    def _check(self, right: str) -> None:
        if right in self.lacks:
            raise PermissionDeniedError(
                "the store denies the request; grant it", kind="denied", code="Denied"
            )

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        self._check("read")
        stored = await super().read(key, offset=offset, length=length)
        if stored is None:
            self._check("list")
        return stored

    async def create(self, key: str, data: Data) -> Token:
        self._check("write")
        return await super().create(key, data)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        self._check("list")
        return await super().list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        self._check("delete")
        await super().delete(keys)
