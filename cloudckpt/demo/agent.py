"""The demo's agent: one process, one loop, and a line on stdout for all that it begins and ends.

Owns: the loop, exactly the one that the ready-made state promises to serve, and
the marks by which the parent knows where to kill. The agent knows nothing of
kills: it loads, works and saves.

A mark is one JSON line: `at` (loaded, model, tool, save, done), `step`, `edge`
(begin or end), `name` of the tool, and `ms` on a clock of this process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Self

from cloudckpt.demo import survey
from cloudckpt.model import CheckpointInfo
from cloudckpt.state import Checkpoint
from cloudckpt.store import Store

THINKING = 0.04
"""Seconds that the scripted model sleeps for a reply, in place of a real one's time."""

WORKING = 0.01
"""Seconds that each tool sleeps besides its real work, as one that asks a network would."""


def mark(at: str, step: int, edge: str = "end", name: str | None = None) -> None:
    """Tell the parent, in one write and without a buffer: a kill must not take it back."""
    line = {"at": at, "step": step, "edge": edge, "name": name, "ms": round(time.monotonic() * 1000, 3)}
    os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")


@dataclass
class Survey(Checkpoint):
    """The agent's state: the ready-made one and the sections that were written."""

    max_steps: int = 10_000
    sections: dict[str, str] = field(default_factory=dict)

    def record(self, call_id: str | int, result: Any) -> None:
        """Note a tool's result; of a written section, also its size."""
        super().record(call_id, result)
        if self.calls[call_id] == "write_section":
            self.sections[result["module"]] = f"{result['characters']} characters"

    @classmethod
    def load(cls, run_id: str, *, store: Store | None = None, fallback: bool = False) -> Self | None:
        """Load, and mark where the run goes on."""
        state = super().load(run_id, store=store, fallback=fallback)
        mark("loaded", state.step if state else 0)
        return state

    def save(self, run_id: str, *, store: Store | None = None) -> CheckpointInfo:
        """Save between two marks. The step that is saved was counted already."""
        mark("save", self.step - 1, "begin")
        info = super().save(run_id, store=store)
        mark("save", self.step - 1)
        return info


class Model:
    """The scripted model behind a model's latency."""

    step = 0

    def call(self, messages: list[dict[str, Any]]) -> survey.Reply:
        """Return the next reply."""
        self.step = sum(message["role"] == "assistant" for message in messages)
        mark("model", self.step, "begin")
        time.sleep(THINKING)
        reply = survey.next_reply(messages)
        mark("model", self.step)
        return reply


model = Model()


def run_tool(call: survey.ToolCall) -> Any:
    """Run a tool of the job."""
    mark("tool", model.step, "begin", call.name)
    time.sleep(WORKING)
    result = survey.TOOLS[call.name](**call.arguments)
    mark("tool", model.step, "end", call.name)
    return result


def run_agent(task: Any, run_id: str) -> Any:
    """Do the task, or what is left of it."""
    state = Survey.load(run_id) or Survey.new(task)
    while not state.done and state.step < state.max_steps:
        reply = model.call(state.messages)
        state.apply(reply)
        for c in reply.tool_calls:
            state.record(c.id, run_tool(c))
        state.step += 1
        state.save(run_id)
    mark("done", state.step)
    return state.result


if __name__ == "__main__":
    run_agent(json.loads(sys.argv[2]), sys.argv[1])
