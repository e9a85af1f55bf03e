"""The demo's job: measure modules of the Python standard library, write a report.

Owns: which modules, what is measured, the words of the report, and the scripted
model that decides what to do next. Invariant: all of it is a function of its
arguments and of this interpreter's standard library, so that two runs of the
job must come to the same bytes. No process, no store, no clock.
"""

from __future__ import annotations

import ast
import json
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudckpt.errors import InvalidInputError

MODULES = 48
"""How many modules the demo reads unless told otherwise."""

SMALLEST = 4096
"""Modules of fewer bytes have too little in them to report on."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def pick_modules(count: int = MODULES) -> list[str]:
    """Return `count` names of pure Python modules, spread over the alphabet, in its order.

    Raises:
        InvalidInputError: This interpreter has its library in no folder, or too few modules.
    """
    files = sorted(_folder().glob("[a-z]*.py"))
    names = [file.stem for file in files if file.stat().st_size >= SMALLEST]
    if len(names) < count:
        raise InvalidInputError(
            "too few modules in the standard library's folder: ask for fewer",
            folder=str(_folder()),
            found=len(names),
        )
    return [names[i * len(names) // count] for i in range(count)]


# ---- the tools


def read_module(module: str) -> dict[str, Any]:
    """Return what a first look at a module's file tells."""
    text = _source(module)
    doc = ast.get_docstring(ast.parse(text)) or ""
    return {"module": module, "lines": text.count("\n"), "about": doc.partition("\n")[0]}


def measure(module: str) -> dict[str, Any]:
    """Return a module's number of definitions, longest functions and undocumented public ones."""
    tree = ast.parse(_source(module))
    named = _functions(tree, "")
    longest = sorted(((_length(node), name) for name, node in named), key=lambda row: (-row[0], row[1]))
    public = [
        (name, node) for name, node in named if not any(part.startswith("_") for part in name.split("."))
    ]
    return {
        "module": module,
        "functions": len(named),
        "classes": sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree)),
        "longest": [[name, lines] for lines, name in longest[:3]],
        "undocumented": sorted(name for name, node in public if ast.get_docstring(node) is None),
    }


def write_section(module: str, text: str) -> dict[str, Any]:
    """Take a section of the report; return what was taken."""
    return {"module": module, "characters": len(text)}


TOOLS: dict[str, Callable[..., dict[str, Any]]] = {
    "read_module": read_module,
    "measure": measure,
    "write_section": write_section,
}


def _functions(node: ast.AST, prefix: str) -> list[tuple[str, Function]]:
    found: list[tuple[str, Function]] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            name = prefix + child.name
            if isinstance(child, Function):
                found.append((name, child))
            found += _functions(child, name + ".")
        else:
            found += _functions(child, prefix)
    return found


def _length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _folder() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _source(module: str) -> str:
    return (_folder() / f"{module}.py").read_text(encoding="utf-8")


# ---- the scripted model


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answers, in the form that `Checkpoint.apply` takes."""

    content: str
    tool_calls: tuple[ToolCall, ...]


def next_reply(messages: Sequence[dict[str, Any]]) -> Reply:
    """Return the scripted model's reply: like a model, it knows the conversation and no more.

    One module a turn: it writes the section on the module of the turn before, and
    asks to read and to measure the next. Its last reply is the whole report.
    """
    modules: list[str] = json.loads(messages[0]["content"])["modules"]
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn > len(modules):
        return Reply(_report(messages), ())
    asked: list[tuple[str, dict[str, Any]]] = []
    if turn > 0:
        looked, measured = (json.loads(message["content"]) for message in messages[-2:])
        asked.append(("write_section", {"module": modules[turn - 1], "text": _section(looked, measured)}))
    if turn < len(modules):
        asked += [("read_module", {"module": modules[turn]}), ("measure", {"module": modules[turn]})]
    calls = [ToolCall(f"call-{turn}-{i}", name, arguments) for i, (name, arguments) in enumerate(asked)]
    return Reply(f"Turn {turn}.", tuple(calls))


def _section(looked: dict[str, Any], measured: dict[str, Any]) -> str:
    longest = ", ".join(f"{name} ({lines} lines)" for name, lines in measured["longest"]) or "none"
    missing = measured["undocumented"]
    shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    return (
        f"## {looked['module']}\n\n{looked['about']}\n\n"
        f"- {looked['lines']} lines, {measured['functions']} functions, {measured['classes']} classes\n"
        f"- longest functions: {longest}\n"
        f"- public functions without a docstring: {len(missing)}{f' ({shown})' if missing else ''}\n"
    )


def _report(messages: Sequence[dict[str, Any]]) -> str:
    answers = [json.loads(message["content"]) for message in messages if message["role"] == "tool"]
    functions = sum(answer.get("functions", 0) for answer in answers)
    undocumented = sum(len(answer.get("undocumented", ())) for answer in answers)
    calls = (call["function"] for message in messages for call in message.get("tool_calls", ()))
    sections = [json.loads(call["arguments"])["text"] for call in calls if call["name"] == "write_section"]
    summary = (
        f"{len(sections)} modules, {functions} functions, {undocumented} public ones without a docstring.\n"
    )
    return "\n".join([f"# The Python standard library\n\n{summary}", *sections])
