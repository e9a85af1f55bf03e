"""Inside a Python agent: which of its own lines it comes to; and its end at one of them.

Owns: what a gauntlet puts into an agent's interpreter. It is executed by a
`sitecustomize` that is put in front of `PYTHONPATH` (see `machine.py`) and imports nothing
of this package: the agent's interpreter may be another one, of Python 3.8 or newer.

The agent's own lines are those of files outside of the standard library, of installed
packages and of cloudckpt. Invariants: a line is noted before it runs, in a file that
outlives the process; one Python process is looked at, the first that comes to a line of its own. So
neither what starts the agent is, such as a package manager's `run`, nor what the agent starts.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import signal
import site
import struct
import sys
import threading
import time
from typing import Any

GAUNTLET = "CLOUDCKPT_GAUNTLET"
"""Environment variable: JSON with `status` (a file of `SIZE` bytes), `lines` (a file to be written at
the end), `taken` (a file that the process to be looked at makes), `kill` (file, line and how many-th time, or
null) and `skip` (folders)."""

SIZE = 4096
HEAD = struct.Struct("<dddIH?")
"""In the status file: times of the first line, of the newest and of the one before; the newest's number, how
many bytes its file's name has, and whether it was the end."""


def install(folder: str) -> None:
    """Begin to look at this process's lines; `folder` is the one that brought this here."""
    plan = json.loads(os.environ[GAUNTLET])
    _go_on(folder)
    lines = Lines(plan, folder)
    threading.settrace(lines.trace)
    sys.settrace(lines.trace)


def _go_on(folder: str) -> None:
    """Let the next `sitecustomize`, if there is one, do what it would have done."""
    sys.path[:] = [path for path in sys.path if path != folder]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401 - for what it does
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


class Lines:
    """Counts the lines of the agent's own files. `trace` is for `sys.settrace`."""

    def __init__(self, plan: dict[str, Any], folder: str) -> None:
        self._plan = plan
        self._ahead = folder
        self._folder = os.path.realpath(os.getcwd()) + os.sep
        folders = [os.path.dirname(os.__file__), *site.getsitepackages(), site.getusersitepackages()]
        self._skip = tuple(os.path.realpath(each) + os.sep for each in [*folders, *plan["skip"]])
        self._kill = tuple(plan["kill"]) if plan["kill"] else None
        self._counts: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[str, int], float] = {}
        self._files: dict[str, Any] = {}
        self._pid = 0
        self._told = ""
        self._first = self._before = 0.0
        with open(plan["status"], "r+b") as file:
            self._status = mmap.mmap(file.fileno(), SIZE)

    def trace(self, frame: Any, _event: str, _arg: Any) -> Any:
        """Return what looks at a call's lines; None where they are not the agent's own."""
        file = frame.f_code.co_filename
        try:
            return self._files[file]
        except KeyError:
            self._files[file] = found = self._looker(file)
            return found

    def _looker(self, file: str) -> Any:
        name = self._name(file)
        if name is None:
            return None

        def look(frame: Any, event: str, _arg: Any) -> Any:
            if event == "line":
                self._come(name, frame.f_lineno)
            return look

        return look

    def _name(self, file: str) -> str | None:
        """Return what a file of the agent's own is called: in its folder as seen from there."""
        if file == "<string>" and "-c" in getattr(sys, "orig_argv", ()):
            return file
        if file.startswith("<"):
            return None
        path = os.path.realpath(file)
        if path.startswith(self._skip):
            return None
        inside = path.startswith(self._folder)
        return path[len(self._folder) :] if inside else path

    def _come(self, name: str, line: int) -> None:
        if not self._pid and not self._take():
            return
        place = (name, line)
        count = self._counts[place] = self._counts.get(place, 0) + 1
        last = self._kill == (name, line, count)
        text = name.encode("utf-8", "surrogateescape")[: SIZE - HEAD.size]
        if name != self._told:
            self._status[HEAD.size : HEAD.size + len(text)] = text
            self._told = name
        self._last[place] = now = time.monotonic()
        self._first = self._first or now
        HEAD.pack_into(self._status, 0, self._first, now, self._before, line, len(text), last)
        self._before = now
        if last:
            os.kill(0, signal.SIGKILL)  # the group: what the agent started dies with the machine

    def _take(self) -> bool:
        """Become the process that is looked at, unless there is one; those that it starts are free."""
        try:
            os.close(os.open(self._plan["taken"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            sys.settrace(None)
            return False
        self._pid = os.getpid()
        rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != self._ahead]
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
        os.environ.pop(GAUNTLET, None)
        atexit.register(self._write)
        return True

    def _write(self) -> None:
        if os.getpid() == self._pid:  # not in a fork
            rows = [[*place, count, self._last[place]] for place, count in self._counts.items()]
            with open(self._plan["lines"], "w", encoding="utf-8") as file:
                json.dump(rows, file)
