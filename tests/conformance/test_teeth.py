"""Engines with one fault each, and the law of the conformance suite that each must break.

A suite that lets one of them pass proves nothing of the engines that pass it.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from cloudckpt.errors import PreconditionFailedError, StorageError
from cloudckpt.storage.contract import Data, Listed, Page, Stored, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.conformance import StorageConformance
from cloudckpt.testing.driver import Client, Driver
from tests.unit.ignoring import IgnoresIfMatch, IgnoresIfNoneMatch

LAWS = StorageConformance()


class Meeting:
    """The first two who come for a key go on together, however late the second one begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came: Counter[str] = Counter()
        self._pairs: defaultdict[str, threading.Barrier] = defaultdict(lambda: threading.Barrier(2))

    def come(self, key: str) -> None:
        with self._lock:
            self._came[key] += 1
            late, pair = self._came[key] > 2, self._pairs[key]
        if not late:
            with suppress(threading.BrokenBarrierError):  # nobody else came
                pair.wait(20)


class Racing(MemoryStorage):
    """Memory whose clients meet between what should be one step."""

    meeting = Meeting()


class ExistsThenWrite(Racing):
    """Checks, then writes: two clients can both find nothing."""

    async def create(self, key: str, data: Data) -> Token:
        if await self.read(key) is not None:
            raise PreconditionFailedError("the key exists", key=key)
        self.meeting.come(f"{self.url}/{key}")
        with self._space.lock:
            return self._space.write(key, data)


class CompareThenWrite(Racing):
    async def replace(self, key: str, data: Data, token: Token) -> Token:
        found = await self.read(key)
        if found is None or found.token != token:
            raise PreconditionFailedError("the key has another version", key=key)
        self.meeting.come(f"{self.url}/{key}")
        with self._space.lock:
            return self._space.write(key, data)


class RefusesByAnotherError(MemoryStorage):
    """Takes S3's 404 to If-Match on a missing key for a failure of some other kind."""

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        try:
            return await super().replace(key, data, token)
        except PreconditionFailedError as error:
            raise StorageError("404") from error


class TokenOfLength(MemoryStorage):
    """A token that comes back: here the length stands for a second-resolution time."""

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        whole = await super().read(key)
        part = await super().read(key, offset=offset, length=length)
        return whole and part and Stored(part.data, str(len(whole.data)))

    async def create(self, key: str, data: Data) -> Token:
        await super().create(key, data)
        return str(len(data))

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        found = await super().read(key)
        if found is None or str(len(found.data)) != token:
            raise PreconditionFailedError("the key has another version", key=key)
        await super().replace(key, data, found.token)
        return str(len(data))


class KeepsTheBuffer(MemoryStorage):
    """Stores the caller's own buffer."""

    async def create(self, key: str, data: Data) -> Token:
        token = await super().create(key, data)
        self._space.values[key] = (Stored(data, token), datetime.now(UTC))  # type: ignore[arg-type]
        return token

    async def put(self, key: str, data: Data) -> None:
        await self.create(key, data)


class CopiesLate(MemoryStorage):
    """Copies the caller's buffer after it has waited."""

    blocking = False

    async def create(self, key: str, data: Data) -> Token:
        await asyncio.sleep(0.001)
        return await super().create(key, data)


class PutIsCreate(MemoryStorage):
    async def put(self, key: str, data: Data) -> None:
        await self.create(key, data)


class DropsEmptyValues(MemoryStorage):
    """Loses an empty value, as an upload of no parts does."""

    async def put(self, key: str, data: Data) -> None:
        if data:
            await super().put(key, data)


class RefusesEmptyRanges(MemoryStorage):
    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        found = await super().read(key, offset=offset, length=length)
        if found is not None and offset and not found.data:
            raise StorageError("416")
        return found


class InclusiveRange(MemoryStorage):
    """Takes the last byte of HTTP's range for its length."""

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return await super().read(key, offset=offset, length=None if length is None else length + 1)


class OnePage(MemoryStorage):
    """Believes that a listing is one answer."""

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return Page((await super().list(prefix, cursor=cursor)).rows, None)


class RepeatsARow(MemoryStorage):
    """Takes the cursor for the first key of the next page."""

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        page = await super().list(prefix, cursor=cursor)
        if cursor is None:
            return page
        [last] = (await super().list(cursor)).rows[:1]
        return Page((last, *page.rows), page.cursor)


class ByFolder(MemoryStorage):
    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        page = await super().list(prefix, cursor=cursor)
        return Page(tuple(sorted(page.rows, key=lambda row: row.key.split("/"))), page.cursor)


class PrefixIsAFolder(MemoryStorage):
    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        page = await super().list(prefix, cursor=cursor)
        folder = prefix if prefix.endswith("/") else f"{prefix}/"
        return Page(tuple(row for row in page.rows if row.key.startswith(folder)), page.cursor)


class NaiveTime(MemoryStorage):
    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        page = await super().list(prefix, cursor=cursor)
        rows = (Listed(row.key, row.size, row.modified.replace(tzinfo=None)) for row in page.rows)
        return Page(tuple(rows), page.cursor)


class StaleListing(MemoryStorage):
    """Caches listings, as fsspec does by default."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._cached: dict[tuple[str, str | None], Page] = {}

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        if (prefix, cursor) not in self._cached:
            self._cached[prefix, cursor] = await super().list(prefix, cursor=cursor)
        return self._cached[prefix, cursor]


class StaleAbsence(MemoryStorage):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._absent: set[str] = set()

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        found = None if key in self._absent else await super().read(key, offset=offset, length=length)
        if found is None:
            self._absent.add(key)
        return found


class DeletesAThousand(MemoryStorage):
    async def delete(self, keys: Sequence[str]) -> None:
        await super().delete(keys[:1000])


class MissesAreErrors(MemoryStorage):
    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if await self.read(key) is None:
                raise StorageError("404")
            await super().delete([key])


class FoldsKeys(MemoryStorage):
    """Takes ``!25`` for an escape of its own, as a server that decodes URLs twice does with ``%25``."""

    async def create(self, key: str, data: Data) -> Token:
        return await super().create(key.replace("!25", "%"), data)


class ShortNames(MemoryStorage):
    async def create(self, key: str, data: Data) -> Token:
        if max(map(len, key.split("/"))) > 128:
            raise StorageError("file name too long")
        return await super().create(key, data)


class DropsConditionsOfBigOnes(MemoryStorage):
    """Sends a big value in parts, and without its condition."""

    async def create(self, key: str, data: Data) -> Token:
        if len(data) > 5 * 2**20:
            with self._space.lock:
                return self._space.write(key, data)
        return await super().create(key, data)


class Suspends(MemoryStorage):
    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        await asyncio.sleep(0)
        return await super().read(key, offset=offset, length=length)


class ClosesTheStore(MemoryStorage):
    async def close(self) -> None:
        self._space.values.clear()


BROKEN: list[tuple[type[MemoryStorage], Callable[..., None]]] = [
    (ExistsThenWrite, LAWS.test_a_race_to_create_has_one_winner),
    (CompareThenWrite, LAWS.test_a_race_to_replace_has_one_winner),
    (CompareThenWrite, LAWS.test_every_one_of_many_increments_survives),
    (IgnoresIfNoneMatch, LAWS.test_a_second_create_of_a_key_is_refused),
    (IgnoresIfNoneMatch, LAWS.test_a_create_after_a_put_is_refused),
    (IgnoresIfMatch, LAWS.test_a_replace_with_a_stale_token_is_refused),
    (RefusesByAnotherError, LAWS.test_a_replace_of_a_missing_key_is_refused),
    (RefusesByAnotherError, LAWS.test_a_race_to_replace_has_one_winner),
    (TokenOfLength, LAWS.test_a_token_changes_with_the_bytes),
    (KeepsTheBuffer, partial(LAWS.test_any_bytes_like_value_is_taken, kind=bytearray)),
    (KeepsTheBuffer, partial(LAWS.test_a_value_is_taken_at_call_time, op="put")),
    (CopiesLate, partial(LAWS.test_a_value_is_taken_at_call_time, op="create")),
    (PutIsCreate, LAWS.test_putting_the_same_twice_is_fine),
    (DropsEmptyValues, LAWS.test_small_values_come_back_as_they_are),
    (RefusesEmptyRanges, LAWS.test_a_range_gives_what_there_is_of_it),
    (InclusiveRange, LAWS.test_a_range_gives_what_there_is_of_it),
    (OnePage, LAWS.test_a_listing_is_complete_and_ascending_at_any_size),
    (RepeatsARow, LAWS.test_a_listing_over_folders_is_complete_and_ascending),
    (ByFolder, LAWS.test_a_listing_over_folders_is_complete_and_ascending),
    (PrefixIsAFolder, LAWS.test_a_prefix_is_neither_a_folder_nor_a_pattern),
    (NaiveTime, LAWS.test_a_listing_tells_size_and_time),
    (StaleListing, LAWS.test_a_write_is_seen_by_another_client_at_once),
    (StaleAbsence, LAWS.test_a_write_is_seen_by_another_client_at_once),
    (DeletesAThousand, LAWS.test_a_listing_is_complete_and_ascending_at_any_size),
    (MissesAreErrors, LAWS.test_deleting_what_is_not_there_is_fine),
    (FoldsKeys, LAWS.test_every_key_that_the_layout_makes_is_taken),
    (ShortNames, LAWS.test_every_key_that_the_layout_makes_is_taken),
    (DropsConditionsOfBigOnes, LAWS.test_a_big_value_comes_back_as_it_is),
    (Suspends, LAWS.test_a_missing_key_reads_as_none),
    (ClosesTheStore, LAWS.test_closing_twice_is_fine),
]

names = itertools.count()


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.close()


def check(law: Callable[..., None], engine: type[MemoryStorage], driver: Driver) -> None:
    name = f"teeth {next(names)}"
    ready: dict[str, Any] = {
        "client": Client(driver, engine(name)),
        "other": Client(driver, engine(name)),
        "at": f"laws-{secrets.token_hex(8)}/",
    }
    wanted = inspect.signature(law).parameters
    law(**{key: value for key, value in ready.items() if key in wanted})


@pytest.mark.parametrize(
    ("engine", "law"),
    BROKEN,
    ids=[f"{engine.__name__}-{number}" for number, (engine, _) in enumerate(BROKEN)],
)
def test_a_broken_engine_breaks_its_law(
    engine: type[MemoryStorage], law: Callable[..., None], driver: Driver
) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception, StorageError, TypeError)):
        check(law, engine, driver)
    check(law, MemoryStorage, driver)
