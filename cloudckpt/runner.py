"""Where the async core runs, for callers with and without a loop.

Owns: the way onto the process's IO loop, and the way to drive a blocking
engine's coroutines by hand. Invariants: no caller's loop is ever bound to; a
sync call never waits on the thread that would have to answer it.

Two runners, one interface: `LoopRunner` for engines that suspend (s3fs) and
`DirectRunner` for engines that block (folder, memory), whose coroutines run to
their end on the caller's own thread without a loop or a hop.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cloudckpt.clock import Clock
from cloudckpt.effects import Background, Effects
from cloudckpt.errors import AmbiguousError, InvalidInputError
from cloudckpt.ioloop import IOLoop
from cloudckpt.late import Late

if TYPE_CHECKING:
    import asyncio
    import random
    from concurrent import futures
else:  # a sync call by an engine that blocks needs none of them
    asyncio = Late("asyncio")
    futures = Late("concurrent.futures")
    random = Late("random")

T = TypeVar("T")


class Runner(Protocol):
    """Runs the core's coroutines.

    Attributes:
        effects: What the core may do on it.
    """

    effects: Effects

    @property
    def abandoned(self) -> Collection[futures.Future[None]]:
        """What goes on although its caller was cancelled, since a thread can't be stopped."""
        ...

    def call(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Run a coroutine to its end, from any thread; return its result.

        Args:
            work: The coroutine.
            timeout: Seconds after which it is cancelled, where the engine allows that.

        Raises:
            TimeoutError: It was.
        """
        ...

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end without blocking the caller's loop.

        A cancelled caller goes on at once. The work is cancelled too where the engine allows
        that; where not, it ends at the next lock, and is among `abandoned` until then.
        """
        ...

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let a coroutine run that nobody waits for. Safe in a finalizer."""
        ...

    def aside(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Let a coroutine run, from any thread; return what to wait for."""
        ...


def make_runner(*, blocking: bool, clock: Clock) -> Runner:
    """Return the runner for an engine that blocks, or for one that suspends."""
    return DirectRunner(clock) if blocking else LoopRunner(clock)


# ---- engines that suspend: one IO loop in its own thread


_loop = IOLoop()


class _Task:
    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(_seen)  # nobody may ever ask; then its error is not news

    def done(self) -> bool:
        return self._task.done()

    async def wait(self) -> Any:
        # A waiter that is cancelled must not take the shared work with it.
        return await asyncio.shield(self._task)


def _seen(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


class LoopRunner:
    """Runs coroutines on the process's IO loop."""

    abandoned: Collection[futures.Future[None]] = ()

    def __init__(self, clock: Clock) -> None:
        self.effects = Effects(
            clock=clock,
            new_id=_new_id,
            uniform=_uniform,
            sleep=asyncio.sleep,
            spawn=_Task,
            lock=asyncio.Lock,
            offload=asyncio.to_thread,
        )

    def call(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Run a coroutine on the IO loop and wait for it."""
        future = self._submit(work)
        try:
            return future.result(timeout)
        finally:
            future.cancel()  # only after an interrupt or a time-out is there anything left to cancel

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the IO loop and await it; cancelling reaches it."""
        return await asyncio.wrap_future(self._submit(work))

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let a coroutine run on the IO loop, if there ever was one."""
        loop = _loop.running()
        if loop is None:
            work.close()
        else:
            asyncio.run_coroutine_threadsafe(work, loop)

    def aside(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Let a coroutine run on the IO loop."""
        return _loop.begin(work)

    def _submit(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        if _loop.is_here():
            work.close()
            raise InvalidInputError(
                "cloudckpt was called from its own IO thread, which would wait for itself"
            )
        return _loop.begin(work)


# ---- engines that block: the caller's own thread


class _Pool:
    """Threads, made when there is work for them; new ones after a fork."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._pool: futures.ThreadPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], *args: Any) -> futures.Future[Any]:
        with self._lock:
            if self._pool is None:
                self._pool = futures.ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
            try:
                return self._pool.submit(function, *args)
            except RuntimeError:  # the interpreter is ending, and takes no new work
                return _done(function, *args)


def _done(function: Callable[..., Any], *args: Any) -> futures.Future[Any]:
    future: futures.Future[Any] = futures.Future()
    try:
        future.set_result(function(*args))
    except Exception as error:  # noqa: BLE001 - as a pool does: it is raised where the result is asked for
        future.set_exception(error)
    return future


_aside = _Pool(8, "cloudckpt-aside")
_callers = _Pool(64, "cloudckpt-call")  # asyncio's own are few, and serve the caller's program
_savers = _Pool(64, "cloudckpt-saver")  # not those aside: a save may wait for a put that is aside


class _Aside:
    """Work for a thread of the pool, or for the first who waits for it before a thread has begun.

    Work may start more work and wait for it. If that could only wait for a free thread, as many such
    works as there are threads would wait for each other for good.
    """

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._unbegun = iter((work,))  # for the first, between whom and the work no interrupt comes
        self._context = copy_context()  # as a task has it: the deadline is in it
        self._ended: futures.Future[Any] = futures.Future()
        _aside.submit(self._do)

    def _do(self) -> None:
        for work in self._unbegun:
            try:
                self._ended.set_result(self._context.run(drive, work))
            except (KeyboardInterrupt, SystemExit):  # of the one who waits, and of nobody who waits later
                self._ended.set_exception(AmbiguousError("work aside was interrupted"))
                raise
            except BaseException as error:  # noqa: BLE001 - as a pool does: raised to who waits
                self._ended.set_exception(error)

    def done(self) -> bool:
        return self._ended.done()

    async def wait(self) -> Any:
        self._do()
        return self._ended.result()


class _Calls(threading.local):
    """The calls under way on this thread.

    Attributes:
        locks: What they hold or wait for.
        is_given_up: Whether the caller was cancelled, and went on without them.
    """

    def __init__(self) -> None:
        self.locks: list[_ThreadLock] = []
        self.is_given_up: Callable[[], bool] = lambda: False


_calls = _Calls()


class _ThreadLock(AbstractAsyncContextManager[None]):
    def __init__(self) -> None:
        self._lock = threading.RLock()  # which knows whose it is
        self._owner: int | None = None

    async def __aenter__(self) -> None:
        here = threading.get_ident()
        if self._owner == here:  # a handler of a signal that struck in mid-save would wait for itself
            raise InvalidInputError(
                "a call of this run is under way on the same thread and was interrupted by this one, as by a "
                "signal handler; set a flag there, and save where the flag is seen"
            )
        _calls.locks.append(self)
        self._lock.acquire()
        self._owner = here
        if _calls.is_given_up():  # what it would commit now would come after what its caller did since
            self.let_go()
            raise asyncio.CancelledError

    async def __aexit__(self, *_: object) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Let others have it, if this thread has it. Safe to call again."""
        if self._owner == threading.get_ident():
            self._owner = None
        with suppress(RuntimeError):  # an interrupt struck while it was waited for
            self._lock.release()
        if self in _calls.locks:
            _calls.locks.remove(self)


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends to its end, here and now."""
    before = len(_calls.locks)
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        # An interrupt may strike between a lock and the block that would give it back.
        for lock in _calls.locks[before:]:
            lock.let_go()
    work.close()
    raise InvalidInputError("an engine that says it is blocking suspended; it must set blocking = False")


class DirectRunner:
    """Runs coroutines of a blocking engine on the calling thread."""

    def __init__(self, clock: Clock) -> None:
        self.effects = Effects(
            clock=clock,
            new_id=_new_id,
            uniform=_uniform,
            sleep=_sleep,
            spawn=_spawn_aside,
            lock=_ThreadLock,
            offload=_here,
        )
        self._abandoned: set[futures.Future[None]] = set()

    @property
    def abandoned(self) -> Collection[futures.Future[None]]:
        """Calls whose callers were cancelled, and that go on to their ends in worker threads."""
        return tuple(self._abandoned)

    def call(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:  # noqa: ARG002
        """Run a coroutine on this thread; it can't be cancelled."""
        return drive(work)

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a thread of ours."""
        unbegun = iter((work,))  # for the thread to take, or for a caller that is cancelled before
        ended: futures.Future[None] = futures.Future()

        def begin() -> T:
            before, _calls.is_given_up = _calls.is_given_up, lambda: ended in self._abandoned
            try:
                return drive(next(unbegun))
            finally:
                _calls.is_given_up = before
                ended.set_result(None)

        try:
            return await asyncio.wrap_future(_callers.submit(copy_context().run, begin))
        except asyncio.CancelledError:
            self._abandoned.add(ended)
            ended.add_done_callback(self._abandoned.discard)
            raise
        finally:
            for never in unbegun:  # all threads were busy
                never.close()
                self._abandoned.discard(ended)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine here and now."""
        drive(work)

    def aside(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Run a coroutine on a thread of ours."""
        return _savers.submit(copy_context().run, drive, work)


def _spawn_aside(work: Coroutine[Any, Any, Any]) -> Background:
    return _Aside(work)


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)


async def _here(function: Callable[[], T]) -> T:
    return function()


def _new_id() -> str:
    return os.urandom(8).hex()


def _uniform(least: float, most: float) -> float:
    return random.SystemRandom().uniform(least, most)
