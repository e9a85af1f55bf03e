"""The one IO loop of the process, in its own thread.

Owns: its start on first use, its end in a child after a fork, and what begins on it.
Invariants: work whose caller has gone before it begins is never begun; a child touches
nothing that its parent has open.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from cloudckpt.late import Late

if TYPE_CHECKING:
    import asyncio
    import selectors
    from concurrent import futures
else:  # a sync call by an engine that blocks needs none of them
    asyncio = Late("asyncio")
    selectors = Late("selectors")

T = TypeVar("T")


class IOLoop:
    """The process's IO loop, started on first use and again after a fork."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._forget)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._selector: selectors.BaseSelector | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _forget(self) -> None:
        """Let go of the parent's loop, in the child after a fork.

        An epoll is shared over a fork: a transport of the parent's that the child drops at its
        exit would take the connection out of the parent's epoll too, and the parent's next
        answer would never arrive. So the child's copy is made one that knows no epoll.
        """
        if sys.platform == "linux" and isinstance(self._selector, selectors.EpollSelector):
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, self._selector.fileno(), inheritable=False)
            os.close(nothing)
        if self._loop is not None:
            # What the parent has open is not the child's to close, nor to be blamed for.
            self._loop.set_exception_handler(lambda _loop, _context: None)
        self._reset()

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop; start it if need be."""
        with self._lock:
            if self._loop is None:
                self._selector = selectors.DefaultSelector()
                loop = asyncio.SelectorEventLoop(self._selector)
                self._thread = threading.Thread(target=loop.run_forever, name="cloudckpt-io", daemon=True)
                self._thread.start()
                self._loop = loop  # not before: an interrupt would leave a loop that nobody runs
            return self._loop

    def running(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop if there ever was one. Safe in a finalizer."""
        # Without the lock: a finalizer may strike while this thread holds it.
        return self._loop

    def is_here(self) -> bool:
        """Return whether this is the loop's own thread."""
        return self._thread is threading.current_thread()

    def begin(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Let a coroutine run on the IO loop, unless its caller goes before it begins.

        asyncio itself takes its first step then all the same, and an engine may send a request in it.
        """
        unbegun = iter((work,))  # for the loop to take, or for a caller that is cancelled before

        async def begin() -> T:
            for taken in unbegun:
                return await taken
            raise asyncio.CancelledError

        def ended(_: futures.Future[T]) -> None:
            for never in unbegun:
                never.close()

        future = asyncio.run_coroutine_threadsafe(begin(), self.get())
        future.add_done_callback(ended)
        return future
