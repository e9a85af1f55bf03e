"""A process that runs the documented loop once for each place where it can be killed.

For n = 0, 1, 2, ... it starts a child that kills itself with SIGKILL when the
loop comes to its n-th line, and another child that resumes the run and is left
alone; it ends with the first n that the loop never reaches. Both children are
forked from here, where everything is imported and no store was ever opened, so
that each is a new process at a tenth of a new interpreter's price.

Prints one JSON document: a list of what each pair of children did.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from types import FrameType, SimpleNamespace
from typing import Any

LOOP = """\
from cloudckpt import Checkpoint

def run_agent(task, run_id):
    state = Checkpoint.load(run_id) or Checkpoint.new(task)
    while not state.done and state.step < state.max_steps:
        reply = model.call(state.messages)
        state.apply(reply)
        for c in reply.tool_calls:
            state.record(c.id, run_tool(c))
        state.step += 1
        state.save(run_id)
    return state.result
"""
"""As the documentation has it. `model` and `run_tool` are the user's."""

STEPS = 3


class Model:
    """Scripted: two steps of two tool calls each, and a last one that adds up their results."""

    def __init__(self) -> None:
        self.called: list[int] = []

    def call(self, messages: list[dict[str, Any]]) -> SimpleNamespace:
        turn = sum(message["role"] == "assistant" for message in messages)
        self.called.append(turn)
        if turn == STEPS - 1:
            numbers = [int(message["content"]) for message in messages if message["role"] == "tool"]
            return SimpleNamespace(content=f"the sum of {numbers} is {sum(numbers)}", tool_calls=[])
        calls = [
            SimpleNamespace(id=f"call-{turn}-{i}", name="square", arguments={"n": turn * 10 + i})
            for i in range(2)
        ]
        return SimpleNamespace(content="", tool_calls=calls)


def run_tool(call: Any) -> int:
    return int(call.arguments["n"]) ** 2


def work(run_id: str, kill_at: int | None, report: int) -> None:
    """Run the loop, and tell what was done as soon as it is."""
    model = Model()
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != "loop":
            return None
        if event == "line" and frame.f_code.co_name == "run_agent":
            if lines == kill_at:
                told = {"line": frame.f_lineno, "turns": model.called}
                os.write(report, json.dumps(told).encode())
                os.kill(os.getpid(), signal.SIGKILL)
            lines += 1
        return trace

    space: dict[str, Any] = {"model": model, "run_tool": run_tool}
    exec(compile(LOOP, "loop", "exec"), space)
    sys.settrace(trace)
    result = space["run_agent"]("add squares", run_id)
    sys.settrace(None)
    os.write(report, json.dumps({"result": result, "turns": model.called}).encode())


def in_child(run_id: str, kill_at: int | None) -> dict[str, Any]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(run_id, kill_at, write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {**(json.loads(told) if told else {}), "status": status}


def main() -> None:
    for name in sys.argv[2:]:
        importlib.import_module(name)
    pairs = []
    for n in range(200):
        run_id = f"{sys.argv[1]}/{n}"
        killed = in_child(run_id, n)
        if killed["status"] == 0:
            break
        pairs.append({"killed": killed, "resumed": in_child(run_id, None)})
    undisturbed = in_child(f"{sys.argv[1]}/undisturbed", None)
    print(json.dumps({"pairs": pairs, "undisturbed": undisturbed}))


if __name__ == "__main__":
    main()
