"""``python -m cloudckpt.crashtest.target FILE NAME [JSON]``: a function as an agent.

Owns: the process that calls it. Its result's JSON, or `repr`, is the last line of stdout.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from cloudckpt.errors import InvalidInputError


def function_command(target: Callable[..., Any], arguments: Sequence[Any] = ()) -> list[str]:
    """Return the command that calls a function of a module in a process of its own.

    Args:
        target: Stands at the top of a file; a coroutine function is awaited.
        arguments: JSON values.

    Raises:
        InvalidInputError: Another process can't find it, or an argument is no JSON value.
    """
    file = inspect.getsourcefile(target)
    name = getattr(target, "__qualname__", "")
    if file is None or not name.isidentifier():
        raise InvalidInputError("an agent must be a function at the top of a file", got=name or repr(target))
    try:
        told = json.dumps(list(arguments))
    except TypeError as error:
        raise InvalidInputError("an agent's arguments must be JSON values", function=name) from error
    return [sys.executable, "-m", "cloudckpt.crashtest.target", file, name, told]


def main(file: str, name: str, arguments: str) -> None:
    """Call the function, and print what it returns."""
    spec = importlib.util.spec_from_file_location("agent", file)
    if spec is None or spec.loader is None:
        raise InvalidInputError("this is no Python file", file=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    result = getattr(module, name)(*json.loads(arguments))
    if inspect.iscoroutine(result):
        import asyncio

        result = asyncio.run(result)
    try:
        shown = json.dumps(result, sort_keys=True)
    except (TypeError, ValueError):
        shown = repr(result)
    sys.stdout.write(shown.replace("\n", "\\n") + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
