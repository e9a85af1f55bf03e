"""Requests that reach their server after their client has seen them fail, as a network may deliver them.

Owns: what is held back, when each is let through, and what it was answered.
Invariant: a request is held as a whole and travels on a connection of its own, so
it is one that the server can do; each goes once. All of it runs on the proxy's loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from tests.servers.http_heads import END, Request
from tests.servers.wire_faults import Effect, Fault

BROKEN = 0
"""In place of a status: the server answered nothing."""


@dataclass(frozen=True, slots=True)
class Held:
    """One request, and the fault that it is held by."""

    fault: Fault
    data: bytes


class Late:
    """What is held back from one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._held: list[Held] = []
        self._under_way: list[asyncio.Task[int]] = []

    def hold(self, fault: Fault, data: bytes) -> None:
        """Keep a request for later."""
        self._held.append(Held(fault, data))

    async def before(self, request: Request) -> None:
        """Let through, to their answers, those that come just before this retry of theirs."""
        for each in self._taken(request, Effect.LATE_BEFORE_RETRY):
            await asyncio.wait([self._go(each)])

    def after(self, request: Request) -> None:
        """Let through those that come after this retry of theirs, which has been answered."""
        for each in self._taken(request, Effect.LATE_AFTER_RETRY):
            self._go(each)

    async def rest(self) -> list[int]:
        """Let through what is left; return the status of each late answer so far, and forget them."""
        for each in self._held:
            self._go(each)
        self._held.clear()
        tasks, self._under_way = self._under_way, []
        return list(await asyncio.gather(*tasks))

    def _taken(self, request: Request, effect: Effect) -> list[Held]:
        taken = [each for each in self._held if each.fault.effect is effect and each.fault.matches(request)]
        self._held = [each for each in self._held if each not in taken]
        return taken

    def _go(self, held: Held) -> asyncio.Task[int]:
        task = asyncio.create_task(self._deliver(held.data))
        self._under_way.append(task)
        return task

    async def _deliver(self, data: bytes) -> int:
        reader, writer = await asyncio.open_connection(*self._target)
        try:
            writer.write(data)
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                head = await reader.readuntil(END)
                return int(head.split(maxsplit=2)[1])
            return BROKEN
        finally:
            writer.transport.abort()
