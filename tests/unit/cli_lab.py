"""The command line in a test: a store of known content, and calls of its commands.

Owns: how a command is called as from a pipe and as from a terminal. The store is in
memory, its writers' clock stands still between two saves.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

import cloudckpt
from cloudckpt.cli import frame, screen
from cloudckpt.cli.commands import cli
from cloudckpt.storage.memory import MemoryStorage

_names = itertools.count()
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
T = ["2026-03-01T12:30:00Z", "2026-03-01T12:40:00Z", "2026-03-01T12:50:00Z"]
"""When the first run's checkpoints were saved, after a probe of the store and the writer itself."""


class Clock:
    """A clock that goes on by ten minutes each time it is asked."""

    def __init__(self, now: datetime = BEGIN) -> None:
        self.time = now

    def now(self) -> datetime:
        self.time += timedelta(minutes=10)
        return self.time

    def monotonic(self) -> float:
        return 0.0


@dataclass
class Research:
    task: str
    step: int = 0
    messages: list[dict[str, str]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Told:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """The fields of each line."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        """The one document."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        """The document of each line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Lab:
    """A store and its command line."""

    url: str
    store: cloudckpt.Store

    def __call__(self, *args: str, input: str | None = None, url: str | None = "") -> Told:
        """Call a command as in a pipe, on this store or by another URL (None: without one)."""
        env = {"CLOUDCKPT_URL": self.url if url == "" else url, "COLUMNS": "160"}
        done = CliRunner().invoke(cli, list(args), env=env, input=input)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Told(done.exit_code, done.stdout, done.stderr)

    def terminal(self, monkeypatch: pytest.MonkeyPatch, *args: str, answer: str | None = None) -> Told:
        """Call a command as in a terminal."""
        with monkeypatch.context() as patch:
            patch.setattr(screen, "is_pretty", lambda _: True)
            patch.setattr(frame, "somebody_answers", lambda: True)
            return self(*args, input=answer)


def new_lab() -> Lab:
    url = f"memory://cli-{next(_names)}"
    return Lab(url, cloudckpt.open(url, clock=Clock()))


def agent(
    lab: Lab, run: str, steps: int, *, tags: dict[int, Sequence[str]] | None = None, **rules: Any
) -> None:
    """Let an agent save so many steps."""
    with lab.store.run(run, **rules) as writer:
        state = Research("find it")
        for step in range(1, steps + 1):
            state.step = step
            state.messages.append({"role": "user", "content": f"hello {step}"})
            state.seen.add(step)
            writer.save(state, tags=(tags or {}).get(step, ()))


def nightly_lab() -> Lab:
    """Return a lab with a few runs to look at; the first one's checkpoints are of `T`."""
    lab = new_lab()
    agent(lab, "nightly-42", 3, tags={2: ("best",)})
    agent(lab, "nightly-43", 1)
    agent(lab, "a b/c@d", 2)
    return lab


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Record each request to stores in memory: what it is, and the key or prefix."""
    calls: list[tuple[str, str]] = []
    with monkeypatch.context() as patch:
        for name in ("read", "create", "replace", "put", "list", "delete"):
            patch.setattr(MemoryStorage, name, _recording(name, getattr(MemoryStorage, name), calls))
        yield calls


def _recording(name: str, real: Any, calls: list[tuple[str, str]]) -> Any:
    async def call(self: MemoryStorage, key: Any, *args: Any, **options: Any) -> Any:
        calls.append((name, key if isinstance(key, str) else ",".join(key)))
        return await real(self, key, *args, **options)

    return call
