"""What a test may decide by itself: how the next requests go, how time passes, when work aside is done."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeAlias

import pytest

from cloudckpt import keys, runner
from cloudckpt.errors import AmbiguousError
from cloudckpt.storage.contract import Data, Page, Stored, Token
from cloudckpt.storage.memory import MemoryStorage
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.faults import SimulatedCrash

Go: TypeAlias = Callable[[], Awaitable[Any]]
Act: TypeAlias = Callable[[Go], Awaitable[Any]]

_names = itertools.count()


async def fine(go: Go) -> Any:
    return await go()


async def lost(go: Go) -> Any:
    """It never arrived."""
    raise AmbiguousError("lost on purpose")


async def unanswered(go: Go) -> Any:
    """It happened, and the client is not told."""
    await go()
    raise AmbiguousError("unanswered on purpose")


async def echoed(go: Go) -> Any:
    """The network sent it twice, so the answer is the second one's: precondition failed."""
    await go()
    return await go()


def failing(error: Exception) -> Act:
    async def act(go: Go) -> Any:
        raise error

    return act


def meanwhile(act: Act, then: Callable[[], Any]) -> Act:
    """Let something else happen between the request and its answer."""

    async def both(go: Go) -> Any:
        try:
            return await act(go)
        finally:
            then()

    return both


class ScriptedStorage:
    """Memory, with a script for the conditional writes of manifests, one for their reads, one for puts.

    Attributes:
        writes, reads, puts: What happens to the next ones; afterwards all goes well.
        bodies: Every manifest that was sent.
        clock: Gets on by what is slept.
    """

    blocking = True

    def __init__(self) -> None:
        self.inner = MemoryStorage(f"scripted-{next(_names)}")
        self.url = self.inner.url
        self.writes: deque[Act] = deque()
        self.reads: deque[Act] = deque()
        self.puts: deque[Act] = deque()
        self.bodies: list[bytes] = []
        self.calls: list[tuple[str, str]] = []

    def again(self) -> MemoryStorage:
        """Return an engine of its own on the same values, for another process."""
        return MemoryStorage(self.inner.url.removeprefix("memory://"))

    async def read(self, key: str, *, offset: int = 0, length: int | None = None) -> Stored | None:
        self.calls.append(("read", key))
        script = self.reads if key.startswith(keys.MANIFESTS) else deque()
        found: Stored | None = await _next(script, lambda: self.inner.read(key, offset=offset, length=length))
        return found

    async def create(self, key: str, data: Data) -> Token:
        return await self._write("create", key, data, lambda: self.inner.create(key, data))

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._write("replace", key, data, lambda: self.inner.replace(key, data, token))

    async def _write(self, op: str, key: str, data: Data, go: Go) -> Token:
        self.calls.append((op, key))
        if not key.startswith(keys.MANIFESTS):
            return str(await go())
        self.bodies.append(bytes(data))
        return str(await _next(self.writes, go))

    async def put(self, key: str, data: Data) -> None:
        self.calls.append(("put", key))
        await _next(self.puts, lambda: self.inner.put(key, data))

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        return await self.inner.list(prefix, cursor=cursor)

    async def delete(self, keys: Sequence[str]) -> None:
        self.calls += [("delete", key) for key in keys]
        await self.inner.delete(keys)

    async def close(self) -> None:
        pass


async def _next(script: deque[Act], go: Go) -> Any:
    return await (script.popleft() if script else fine)(go)


class OwnTime:
    """A clock that gets on by what is slept."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


async def no_sleep(_: float) -> None:
    """Stand for a wait that takes no time."""


class AtOnce:
    """Work aside that is done before its caller goes on."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._result: Any = None
        self._error: Exception | None = None
        try:
            self._result = by_hand(work)
        except Exception as error:
            self._error = error

    def done(self) -> bool:
        return True

    async def wait(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


class WhenAwaited:
    """Work aside that is done when somebody waits for it, and not sooner."""

    made: ClassVar[list[Coroutine[Any, Any, Any]]] = []

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._outcome: AtOnce | None = None
        self._crash: BaseException | None = None
        self.made.append(work)

    def done(self) -> bool:
        return self._outcome is not None

    async def wait(self) -> Any:
        if self._crash is not None:
            raise self._crash
        try:
            self._outcome = self._outcome or AtOnce(self._work)
        except BaseException as crash:  # its process died of it, and so does who waits again
            self._crash = crash
            raise
        return await self._outcome.wait()


@pytest.fixture(params=[AtOnce, WhenAwaited])
def aside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """Make the order of calls the same in every run, so that each has its number."""
    monkeypatch.setattr(runner, "_spawn_aside", request.param)
    monkeypatch.setattr(runner, "_sleep", no_sleep)
    yield request.param
    while WhenAwaited.made:  # Python wants every coroutine awaited; those of a dead process reach nothing
        with suppress(SimulatedCrash, RuntimeError):
            by_hand(WhenAwaited.made.pop())
