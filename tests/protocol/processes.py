"""Children of a small program, for tests that need processes which really die or really race.

Owns: `in_child`, a fork whose outcome comes back through a pipe, and `run_program`,
which starts the program. The program forks before it has threads or connections,
and with its imports done, so a process of its own costs milliseconds and not a second.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

Send = Callable[[Any], None]


class Child:
    """A process under way, which sends values through a pipe."""

    def __init__(self, act: Callable[[Send], None]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(reading)
                act(lambda value: _send(writing, value))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(writing)
        self._pipe = os.fdopen(reading, "rb")

    def receive(self) -> Any:
        """Return the next value that it sends; EOFError when it ended without one."""
        return pickle.load(self._pipe)

    def end(self) -> tuple[int, list[Any]]:
        """Wait for its end; return its exit code (negative: the signal) and the values not yet received."""
        values = []
        while True:
            try:
                values.append(self.receive())
            except EOFError:
                break
        self._pipe.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), values


def _send(pipe: int, value: Any) -> None:
    data = memoryview(pickle.dumps(value))
    while data:
        data = data[os.write(pipe, data) :]


def in_child(act: Callable[[Send], None]) -> list[Any]:
    """Run a function in a process of its own; return what it sent. It must end well."""
    code, values = Child(act).end()
    assert code == 0, f"a child ended with {code}"
    return values


def run_program(module: str, *arguments: Any, timeout: float = 100) -> Any:
    """Run ``python -m module``, which ends by printing JSON; return that."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, *map(json.dumps, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)
