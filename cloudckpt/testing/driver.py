"""Plain calls of an engine's coroutines, for tests: one way for blocking and async engines.

Owns: `Driver`, which runs coroutines, and `Client`, which is an engine as plain
methods. Invariant: a blocking engine's coroutine is driven by hand on the
calling thread and may never suspend, which is what its `blocking = True`
promises; an async one runs on one loop in one thread for the driver's whole
life, since an engine may be bound to the loop that used it first.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from cloudckpt.storage.contract import Data, Listed, Page, Storage, Stored, Token

T = TypeVar("T")

TIMEOUT = 90.0
"""Seconds after which a call counts as stuck."""


class Driver:
    """Runs coroutines of storages. Close it when the storages are closed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], *, blocking: bool) -> T:
        """Return the coroutine's result; by hand when `blocking`."""
        if blocking:
            return by_hand(work)
        return asyncio.run_coroutine_threadsafe(work, self._started()).result(TIMEOUT)

    def together(
        self,
        calls: Sequence[Callable[[], Coroutine[Any, Any, T]]],
        *,
        blocking: bool,
        width: int | None = None,
    ) -> list[T | Exception]:
        """Run the calls at once and return each one's result or error, in their order.

        Args:
            calls: Make the coroutines.
            blocking: On threads when true, as tasks of the one loop otherwise.
            width: How many at most are under way. None: all, and they start at a barrier.
        """
        if blocking:
            return self._threads(calls, width)
        return asyncio.run_coroutine_threadsafe(_tasks(calls, width), self._started()).result(TIMEOUT)

    def _threads(
        self, calls: Sequence[Callable[[], Coroutine[Any, Any, T]]], width: int | None
    ) -> list[T | Exception]:
        barrier = threading.Barrier(len(calls)) if width is None else None

        def one(call: Callable[[], Coroutine[Any, Any, T]]) -> T | Exception:
            if barrier is not None:
                barrier.wait(TIMEOUT)
            try:
                return by_hand(call())
            except Exception as error:  # noqa: BLE001 - a race's losers are results here
                return error

        with ThreadPoolExecutor(width or len(calls)) as pool:
            return list(pool.map(one, calls))

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="conformance", daemon=True)
            self._thread.start()
        return self._loop

    def close(self) -> None:
        """Stop the loop, if there is one. Safe to call twice."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT)
            self._loop.close()
            self._loop = self._thread = None


def by_hand(work: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends, on this thread.

    Raises:
        AssertionError: It suspended.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise AssertionError("a storage with blocking = True suspended; its methods must not await anything")


async def _tasks(
    calls: Sequence[Callable[[], Coroutine[Any, Any, T]]], width: int | None
) -> list[T | Exception]:
    room = asyncio.Semaphore(width or len(calls))

    async def one(call: Callable[[], Awaitable[T]]) -> T | Exception:
        async with room:
            try:
                return await call()
            except Exception as error:  # noqa: BLE001 - a race's losers are results here
                return error

    return list(await asyncio.gather(*map(one, calls)))


class Client:
    """One storage as plain methods.

    Attributes:
        storage: The engine itself.
    """

    def __init__(self, driver: Driver, storage: Storage) -> None:
        self.storage = storage
        self._driver = driver

    def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        return self.run(self.storage.read(key, offset=offset, length=length))

    def value(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a key that exists."""
        stored = self.read(key, offset=offset, length=length)
        assert stored is not None, f"{key} does not exist"
        assert type(stored.data) is bytes
        return stored.data

    def create(self, key: str, data: Data) -> Token:
        return self.run(self.storage.create(key, data))

    def replace(self, key: str, data: Data, token: Token) -> Token:
        return self.run(self.storage.replace(key, data, token))

    def put(self, key: str, data: Data) -> None:
        self.run(self.storage.put(key, data))

    def pages(self, prefix: str) -> Iterator[Page]:
        """Yield every page of a listing."""
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = self.run(self.storage.list(prefix, cursor=cursor))
            yield page
            cursor = page.cursor
            if cursor is None:
                return
            assert cursor not in seen, "the cursor came back, so the listing has no end"
            seen.add(cursor)

    def rows(self, prefix: str) -> list[Listed]:
        """Return every row of a listing."""
        return [row for page in self.pages(prefix) for row in page.rows]

    def keys(self, prefix: str) -> list[str]:
        """Return every key of a listing."""
        return [row.key for row in self.rows(prefix)]

    def delete(self, *keys: str) -> None:
        self.run(self.storage.delete(keys))

    def close(self) -> None:
        self.run(self.storage.close())

    def together(
        self, calls: Sequence[Callable[[], Coroutine[Any, Any, T]]], *, width: int | None = None
    ) -> list[T | Exception]:
        """Run calls of this and like storages at once, as `Driver.together` does."""
        return self._driver.together(calls, blocking=self.storage.blocking, width=width)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of this storage."""
        return self._driver.run(work, blocking=self.storage.blocking)
