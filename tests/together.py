"""The program behind `make test`: all tests, two folders at a time.

    python -m tests.together [PYTEST ARGUMENTS]

Half of the tests wait for servers most of the time, the other half compute; so on two
cores they take little more than the longer half. Each process starts servers of its
own. The first one's output is shown as it comes, the other's when it has ended. With
arguments that name tests there is one process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.servers.base import ROOT, Unavailable
from tests.servers.registry import PREPARES

WAITING = ("conformance", "docs", "e2e", "terraform")
"""Folders of the tests that wait for servers; the others are the second half."""

INTERRUPTED = 2
"""What pytest ends with after Ctrl-C: what would come next is not begun."""

NO_TESTS = 5
"""What pytest ends with when none were selected, as by ``-k``."""


def halves() -> tuple[list[str], list[str]]:
    """Return the folders of each half; every test is in one of them."""
    tests = ROOT / "tests"
    folders = sorted({path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")})
    waiting = [name for name in folders if name in WAITING]
    return [f"tests/{name}" for name in waiting], [f"tests/{name}" for name in folders if name not in waiting]


def main(arguments: list[str]) -> int:
    """Run them; return the exit code."""
    command = [sys.executable, "-m", "pytest", *arguments]
    if any(Path(one.partition("::")[0]).exists() for one in arguments):
        return subprocess.run(command, check=False, cwd=ROOT).returncode
    for prepare in PREPARES.values():  # built once, before both want it
        with suppress(Unavailable):
            prepare(print)
    first, second = halves()
    with tempfile.TemporaryFile() as held, ThreadPoolExecutor(1) as beside:
        # A process for each folder: none is full of what another's tests left behind.
        others = beside.submit(_in_turn, [[*command, folder] for folder in second], held)
        codes = {_run([*command, *first]), *others.result()}
        held.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(held.read())
        sys.stdout.flush()
    return worst(codes)


def worst(codes: set[int]) -> int:
    """Return what to end with; a process that a signal ended has a code below 0, and has failed."""
    return max((abs(code) for code in codes - {NO_TESTS}), default=NO_TESTS)


def _in_turn(commands: list[list[str]], output: IO[bytes]) -> list[int]:
    codes: list[int] = []
    for command in commands:
        codes.append(_run(command, stdout=output, stderr=subprocess.STDOUT))
        if codes[-1] == INTERRUPTED:
            break
    return codes


def _run(command: list[str], **options: Any) -> int:
    return subprocess.run(command, check=False, cwd=ROOT, **options).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
