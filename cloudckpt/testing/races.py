"""Races on conditional writes: what two writers that both win would show.

Owns: barrier races and the compare-and-swap list, over any storages. A loser
may be told that it lost or that it has to look again (`LOST`), but never that
it won.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from cloudckpt.errors import AmbiguousError, PreconditionFailedError, ThrottledError
from cloudckpt.storage.contract import Storage, Stored, Token
from cloudckpt.testing.driver import Client

WIDTH = 16
"""How many race."""

Write: TypeAlias = Callable[..., Coroutine[Any, Any, Token]]
"""A conditional write that takes its value as ``data=``."""

LOST = (PreconditionFailedError, AmbiguousError, ThrottledError)


def alternately(client: Client, other: Client) -> list[Storage]:
    """Return one storage for each of `WIDTH` racers: both clients race, each against itself too."""
    return [client.storage, other.storage] * (WIDTH // 2)


def race(client: Client, races: Mapping[str, Sequence[Write]]) -> None:
    """Let all writers of a key start at once, each with a value of its own; exactly one may win.

    The races of an async engine are all run together: a server may let the
    losers of one wait for seconds (SeaweedFS polls for a key's lock).

    Args:
        client: Reads the outcome.
        races: Per key, what writes it.
    """
    values = {key: [secrets.token_bytes(64) for _ in writes] for key, writes in races.items()}
    calls = {
        key: [partial(write, data=value) for write, value in zip(writes, values[key], strict=True)]
        for key, writes in races.items()
    }
    if client.storage.blocking:
        outcomes = {key: client.together(calls[key]) for key in races}
    else:
        flat = iter(client.together([call for key in races for call in calls[key]]))
        outcomes = {key: list(islice(flat, len(calls[key]))) for key in races}
    for key in races:
        _judge(client, key, values[key], outcomes[key])


def _judge(client: Client, key: str, values: Sequence[bytes], outcomes: Sequence[Token | Exception]) -> None:
    unexpected = [x for x in outcomes if isinstance(x, Exception) and not isinstance(x, LOST)]
    assert unexpected == []
    winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, str)]
    assert len(winners) == 1, f"{len(winners)} of {len(values)} writers were told that they won"
    stored = client.read(key)
    assert stored is not None
    assert stored.data == values[winners[0]], "the value is not the winner's"
    assert stored.token == outcomes[winners[0]]


async def append_all(storage: Storage, key: str, names: Sequence[str], stored: Stored) -> None:
    """Add each name to the lines at `key` by compare-and-swap, once.

    Args:
        storage: Where.
        key: Of the lines.
        names: What to add.
        stored: What was at the key before any worker began: all change this at first, so
            that a name is lost without the comparison even if they run one after the other.
    """
    for name in names:
        landed = False
        while not landed and name not in stored.data.decode().split():  # a doubtful try may have landed
            with suppress(*LOST):
                await storage.replace(key, stored.data + name.encode() + b"\n", stored.token)
                landed = True
            newest = await storage.read(key)
            assert newest is not None
            stored = newest
