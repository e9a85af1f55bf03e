"""What a proxy's connections do with the bytes of their requests and answers.

Owns: at which byte a fault happens, and in which order it, what goes on meanwhile, and
other connections' requests come. It reads no socket: `proxy.py` does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.servers.http_heads import END, Request, RequestHeads, split_interim
from tests.servers.late import Late
from tests.servers.wire_faults import Armed, Effect, Fault, made_up_answer


class Cut(Exception):
    """Break this connection now."""


@dataclass(slots=True)
class Shared:
    """What the connections of one proxy have in common.

    Attributes:
        late: The requests that are held back.
        requests: All, in the order in which their heads arrived.
        armed: The faults that wait.
        gate: Held from when a fault with a `meanwhile` has its request until that is over, so that
            nobody's next request comes before, however slow the machine is.
        broken: What a `meanwhile` raised.
    """

    late: Late
    requests: list[Request] = field(default_factory=list)
    armed: Armed = field(default_factory=Armed)
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    broken: list[Exception] = field(default_factory=list)


class Link:
    """What one connection is in the midst of; a client sends the next request after the answer.

    Attributes:
        over: The client has a made-up answer, and nothing comes after it.
    """

    def __init__(self, shared: Shared) -> None:
        self.over = False
        self._shared = shared
        self._holds_gate = False
        self._heads = RequestHeads()
        self._sent = b""  # of a request that may be held back
        self._request: Request | None = None  # not answered yet
        self._fault: Fault | None = None
        self._answer = b""
        self._answered = asyncio.Event()
        self._mute = False

    async def from_client(self, data: bytes) -> bytes:
        """Take what the client sent; return what of it goes on.

        Raises:
            Cut: Nothing of it goes on.
        """
        self._sent += data
        for request in self._heads.feed(data):
            await self._begin(request)
        if self._fault is not None and not self._fault.effect.is_answered:
            return await self._keep(self._fault)
        if not self._heads.undecided:
            self._sent = b""
        return data

    async def _begin(self, request: Request) -> None:
        self._shared.requests.append(request)
        await self._shared.gate.acquire()
        self._holds_gate = True
        await self._shared.late.before(request)
        self._request, self._fault = request, self._shared.armed.take(request)
        self._answered.clear()
        if self._fault is None or self._fault.meanwhile is None:
            self.let_go()

    async def _keep(self, fault: Fault) -> bytes:
        """Pass nothing on, and break the connection when enough has come."""
        if fault.effect.is_late and not self._heads.whole:
            return b""
        await self._meanwhile(fault)
        if fault.effect.is_late:
            self._shared.late.hold(fault, self._sent)
        raise Cut

    async def client_left(self) -> None:
        """Wait for the answer to a whole request with a fault: a server may drop what nobody waits for."""
        if self._fault is not None and self._heads.whole:
            await self._answered.wait()

    async def from_server(self, data: bytes) -> bytes:
        """Take what the server sent; return what the client gets.

        Raises:
            Cut: The answer is here, and is not for the client.
        """
        if self._mute:
            return b""
        if self._request is None:
            return data
        interim, self._answer = split_interim(self._answer + data)
        if END not in self._answer:
            return interim
        answer, self._answer = self._answer, b""
        self._shared.late.after(self._request)
        self._request = None
        if self._fault is not None:
            answer = await self._instead(self._fault)
        self._answered.set()
        return interim + answer

    async def server_left(self) -> None:
        """Expect no answer any more."""
        self._answered.set()

    async def _instead(self, fault: Fault) -> bytes:
        await self._meanwhile(fault)
        if fault.effect is Effect.NO_ANSWER:
            self._mute = True
            return b""
        made_up = made_up_answer(fault.effect)
        if made_up is None:
            raise Cut
        self.over = True
        return made_up

    async def _meanwhile(self, fault: Fault) -> None:
        if fault.meanwhile is not None:
            try:
                await asyncio.to_thread(fault.meanwhile)
            except Exception as error:
                self._shared.broken.append(error)  # raised at the end of the proxy's block
                raise Cut from error
        self.let_go()

    def let_go(self) -> None:
        """Open the gate, if it is this connection that keeps it shut."""
        if self._holds_gate:
            self._shared.gate.release()
            self._holds_gate = False
