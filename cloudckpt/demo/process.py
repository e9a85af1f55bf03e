"""The demo's agents as processes, each on an empty disk of its own.

Owns: start, marks, kill and end of an agent's process. Invariant: nothing of one
agent's disk or memory reaches the next; all that could be kept outside the store
lies in a folder that is removed with the process.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import cloudckpt
from cloudckpt.errors import CloudckptError

SILENCE = 300.0
"""Seconds after which an agent that has not ended is taken to hang."""


class DemoError(CloudckptError):
    """An agent ended by itself, with an error or without a result."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What an agent told last. Fields as `agent.py` writes them."""

    at: str
    step: int
    edge: str
    name: str | None
    ms: float


class Agent:
    """One agent at work. A context manager: its process and disk end with the block.

    Attributes:
        pid: Of the process.
        last: What it told last; None before anything.
        killed: Whether `kill` was called.
    """

    def __init__(self, url: str, run: str, task: str) -> None:
        self.last: Mark | None = None
        self.killed = False
        self._disk = tempfile.mkdtemp(prefix="cloudckpt-demo-disk-")
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed on exit
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cloudckpt.demo.agent", run, task],
            cwd=self._disk,
            env=_environment(url, self._disk),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        self._watch = threading.Timer(SILENCE, self._process.kill)
        self._watch.start()
        self.pid = self._process.pid

    def marks(self) -> Iterator[Mark]:
        """Iterate over what the agent tells, until it is dead or done.

        Raises:
            DemoError: It ended neither by `kill` nor with its work done.
        """
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        for line in self._process.stdout:
            self.last = Mark(**json.loads(line))
            yield self.last
        if not self.killed and (self.last is None or self.last.at != "done"):
            self._complaints.seek(0)
            said = self._complaints.read().strip() or f"it did nothing for {SILENCE:.0f} s"
            error = DemoError(f"the agent ended by itself: {said.splitlines()[-1]}")
            error.add_note(said)
            raise error

    def kill(self) -> None:
        """Send SIGKILL: the process gets no chance to end anything."""
        self.killed = True
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.cancel()
        self._process.kill()
        self._process.communicate()
        self._complaints.close()
        shutil.rmtree(self._disk, ignore_errors=True)


def _environment(url: str, disk: str) -> dict[str, str]:
    package = str(Path(cloudckpt.__file__).parent.parent)
    paths = [
        str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
    ]
    if package not in (*site.getsitepackages(), site.getusersitepackages(), *paths):
        paths.append(package)  # a checkout that is run in place
    # HOME stays: the user's credentials for the store are there.
    own = {"TMPDIR": disk, "XDG_DATA_HOME": disk, "XDG_CACHE_HOME": disk, "XDG_STATE_HOME": disk}
    return {**os.environ, **own, "CLOUDCKPT_URL": url, "PYTHONPATH": os.pathsep.join(paths)}
