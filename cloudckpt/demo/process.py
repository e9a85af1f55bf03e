"""The demo's agents as processes, each on an empty disk of its own.

Owns: what an agent tells while it works, and whether it ended as it should. The process
and its disk are `crashtest`'s.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from cloudckpt.crashtest.machine import GauntletError, Machine

SILENCE = 300.0
"""Seconds after which an agent that has not ended is taken to hang."""


class DemoError(GauntletError):
    """An agent ended by itself, with an error or without a result."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What an agent told last. Fields as `agent.py` writes them."""

    at: str
    step: int
    edge: str
    name: str | None
    ms: float


class Agent(Machine):
    """One agent at work. A context manager: its process and disk end with the block.

    Attributes:
        last: What it told last; None before anything.
    """

    def __init__(self, url: str, run: str, task: str) -> None:
        self.last: Mark | None = None
        super().__init__(
            [sys.executable, "-m", "cloudckpt.demo.agent", run, task],
            environment={"CLOUDCKPT_URL": url},
            keep_home=True,  # the user's credentials for the store are there
        )
        self._watch = threading.Timer(SILENCE, self.process.kill)
        self._watch.start()

    def marks(self) -> Iterator[Mark]:
        """Iterate over what the agent tells, until it is dead or done.

        Raises:
            DemoError: It ended neither by `kill` nor with its work done.
        """
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        for line in self.process.stdout:
            self.last = Mark(**json.loads(line))
            yield self.last
        if not self.killed and (self.last is None or self.last.at != "done"):
            said = self.complaints() or f"it did nothing for {SILENCE:.0f} s"
            error = DemoError(f"the agent ended by itself: {said.splitlines()[-1]}")
            error.add_note(said)
            raise error

    def __exit__(self, *error: object) -> None:
        self._watch.cancel()
        super().__exit__(*error)
