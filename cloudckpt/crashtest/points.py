"""Inside an agent's store: each call of its engine is numbered, and the process dies at one.

Owns: the test mode of a store. It is on when `CLOUDCKPT_CRASH_AT` is in the environment,
and nobody but a gauntlet puts it there; `core.py` asks for it by name and knows no more.

    CLOUDCKPT_CRASH_AT=7:before    die before the call of number 7, counted from 0
    CLOUDCKPT_CRASH_AT=7:after     the same after it was answered
    CLOUDCKPT_CRASH_AT=never       only count
    CLOUDCKPT_CRASH_LOG=/path      write each call's begin and end there, one JSON line each

Invariant: what was written to the log stays, also when the process is killed next. A
call's number is this process's own: calls of all its stores, in the order in which they began.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from cloudckpt import keys
from cloudckpt.errors import InvalidInputError
from cloudckpt.format import decode_manifest
from cloudckpt.storage.contract import Data, Storage, Token
from cloudckpt.testing.faults import FaultyStorage

T = TypeVar("T")

CRASH_AT: Final = "CLOUDCKPT_CRASH_AT"
CRASH_LOG: Final = "CLOUDCKPT_CRASH_LOG"
NEVER: Final = "never"
WHENS: Final = ("before", "after")

_numbers = itertools.count()


def parse_point(text: str) -> tuple[int, str] | None:
    """Return number and side of ``7:before`` or ``7:after``; None for ``never``.

    Raises:
        InvalidInputError: It is none of these.
    """
    if text == NEVER:
        return None
    number, _, when = text.partition(":")
    if not (number.isascii() and number.isdigit()) or when not in WHENS:
        raise InvalidInputError("write a crash point as 7:before, 7:after or never", got=text)
    return int(number), when


def wrapped(engine: Storage) -> Storage:
    """Return the engine with the crash point that the environment names."""
    return PointStorage(engine, parse_point(os.environ[CRASH_AT]), os.environ.get(CRASH_LOG))


class PointStorage(FaultyStorage):
    """An engine that ends its process at one call, and its process group with it."""

    def __init__(self, inner: Storage, point: tuple[int, str] | None, log: str | None) -> None:
        super().__init__(inner)
        self._point = point
        self._log = log

    async def create(self, key: str, data: Data) -> Token:
        return await self._numbered("create", key, lambda: self.inner.create(key, data), data)

    async def replace(self, key: str, data: Data, token: Token) -> Token:
        return await self._numbered("replace", key, lambda: self.inner.replace(key, data, token), data)

    async def _call(self, op: str, key: str, go: Callable[[], Awaitable[T]]) -> T:
        return await self._numbered(op, key, go, None)

    async def _numbered(self, op: str, key: str, go: Callable[[], Awaitable[T]], data: Data | None) -> T:
        number = next(_numbers)
        note = partial(self._note, n=number, op=op, key=key)
        note(edge="begin", saved=_saved(key, data))
        if self._point == (number, "before"):
            self._die(note)
        edge = "failed"
        try:
            result = await go()
            edge = "end"
        finally:  # a refusal is an answer too
            note(edge=edge)
            if self._point == (number, "after"):
                self._die(note)
        return result

    def _note(self, **told: Any) -> None:
        if self._log is not None:
            line = json.dumps({**told, "at": time.monotonic()}).encode() + b"\n"
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(log, line)
            os.close(log)

    def _die(self, note: Callable[..., None]) -> NoReturn:
        note(edge="killed")
        os.kill(0, signal.SIGKILL)  # the group: what the agent started dies with the machine
        raise AssertionError("a process outlived SIGKILL")


def _saved(key: str, data: Data | None) -> list[Any] | None:
    """Return run, seq, step and digest of the newest state in a manifest that is written."""
    if data is None or keys.run_segment(key) is None:
        return None
    manifest = decode_manifest(bytes(data), None)
    if not manifest.checkpoints:
        return None
    entry = manifest.checkpoints[0]
    return [manifest.run, entry.seq, entry.step, entry.encoded_digest]


def read_calls(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the lines of a log, in order; nothing when no store was opened."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]
