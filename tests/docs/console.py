"""The console blocks of docs/cli.md and README.md that are real: each command run, its output shown as it is.

``<!-- terminal -->`` or ``<!-- pipe -->`` before a block says that it is played, and how.
All of a page are played in their order, on one store in memory; clocks, ids, hosts and
people are the same each time. ``python -m tests.docs.console`` writes the pages anew.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

import cloudckpt
from cloudckpt.cli import frame, screen
from cloudckpt.cli.commands import cli
from cloudckpt.errors import WaitingError
from cloudckpt.storage import memory
from tests.unit.cli_lab import Clock, Lab, Research, agent

PLAYED = [Path(__file__).parents[2] / name for name in ("docs/cli.md", "README.md")]

_BLOCK = re.compile(r"(?<=<!-- )(?P<how>terminal|pipe) -->\n```console\n(?P<text>.*?)```", re.DOTALL)
_names = itertools.count()

_VARIES = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"(?<![-\w.])[0-9,]+(\.[0-9])? (?:B|KiB)\b"), "<size>"),
    (re.compile(r'("(?:\w*size|stored|bytes|encoded|compressed|share|grown)": )[0-9.]+'), r"\1<size>"),
    (re.compile(r"[0-9.]+%"), "<share>"),
    (re.compile(r" +"), " "),
)
"""What another release of a compressor may change: it is shown, and not compared."""


def stable(text: str) -> str:
    """Return what must be the same each time."""
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def blocks(page: str) -> list[str]:
    return [found["text"] for found in _BLOCK.finditer(page)]


class World:
    """A store with four runs, in which nothing is left to chance."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        ids = itertools.count(1)
        clock = Clock()
        for name in ("FORCE_COLOR", "NO_COLOR", "TERM"):
            patch.delenv(name, raising=False)
        patch.setattr("cloudckpt.runner._new_id", lambda: f"{next(ids):016x}")
        patch.setattr("cloudckpt.clock.SystemClock.now", lambda _: clock.now())
        patch.setattr("cloudckpt.curated.whoami", lambda: "ann@desk")
        patch.setattr(socket, "gethostname", lambda: "worker-7")
        patch.setattr(os, "getpid", lambda: 4242)
        patch.setattr(memory, "datetime", _Stopped)
        self._patch = patch
        self.lab = _lab(clock)

    def play(self, how: str, block: str) -> str:
        """Return a block with what its commands print."""
        commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        return "".join(f"$ {command}\n{self._run(how, command)}" for command in commands)

    def _run(self, how: str, command: str) -> str:
        name, *args = shlex.split(command)
        assert name == "cloudckpt", command
        with self._patch.context() as patch:
            patch.setattr(screen, "is_pretty", lambda stream: how == "terminal" and _is_stdout(stream))
            patch.setattr(frame, "somebody_answers", lambda: how == "terminal")
            env = {"CLOUDCKPT_URL": self.lab.url, "COLUMNS": "110"}
            done = CliRunner().invoke(cli, args, env=env, prog_name="cloudckpt", catch_exceptions=False)
        return "".join(f"{line.rstrip()}\n" for line in done.output.splitlines())


class _Stopped(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime(2026, 3, 1, 18, tzinfo=UTC)


def _is_stdout(stream: Any) -> bool:
    import sys

    return stream is sys.stdout


def _lab(clock: Clock) -> Lab:
    url = f"memory://console-{next(_names)}"
    lab = Lab(url, cloudckpt.open(url, clock=clock))
    agent(lab, "nightly-42", 6, tags={3: ("best",)})
    agent(lab, "nightly-43", 2)
    with lab.store.run("bob@example.com/report") as run:
        for step in (1, 2):
            run.save(Research("a report", step), metadata={"model": "m1"})
    with lab.store.run("refund-7") as run, suppress(WaitingError):
        run.once("look-up", len, "7")
        run.wait("Refund 40 EUR to bob@example.com?", schema=bool, expires=timedelta(days=21))
    storage = lab.store._core.storage
    for number in range(2):  # as a crash leaves them
        key = f"objects/nightly-43/9-{'0' * 64}-{number:016x}"
        lab.store._core.call(storage.put(key, b"x" * 2000))
    clock.time += timedelta(hours=1)
    return lab


def played(page: str) -> Iterator[tuple[str, str]]:
    """Yield each block of a page as it stands, and as it is when it is played, in a folder of its own."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        world = World(patch)
        for found in _BLOCK.finditer(page):
            yield found["text"], world.play(found["how"], found["text"])


def renewed(page: str) -> str:
    """Return a page with its blocks as they are when they are played."""
    fresh = iter([new for _, new in played(page)])
    return _BLOCK.sub(lambda found: f"{found['how']} -->\n```console\n{next(fresh)}```", page)


if __name__ == "__main__":
    for page in PLAYED:
        page.write_text(renewed(page.read_text()))
