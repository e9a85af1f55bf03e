"""The pages of the project, and the Python that they show.

Owns: which blocks of a page are complete. ``<!-- example: NAME -->`` before a block
says that it runs as it stands; ``<!-- file: NAME -->`` that it is a file, which stands
in one folder with the other files of its page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:<!-- (?P<kind>example|file): (?P<name>[\w.-]+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A block of Python; `line` is where it begins on its page, `kind` what is complete."""

    page: Path
    line: int
    kind: str | None
    name: str | None
    code: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text[: found.start()].count("\n") + 1, found["kind"], found["name"], found["code"])
        for found in _BLOCK.finditer(text)
    ]


def files(page: Path) -> dict[str, str]:
    """Return the files that a page shows, name to text."""
    return {str(block.name): block.code for block in blocks(page) if block.kind == "file"}


def run(folder: Path, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder as a reader would, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_tests(folder: Path, shown: dict[str, str], *chosen: str) -> subprocess.CompletedProcess[str]:
    """Write files into a folder and run the tests in them, or those that are chosen."""
    for name, text in shown.items():
        (folder / name).write_text(text)
    alone = ("-p", "no:cacheprovider", "--rootdir", str(folder), "-c", "/dev/null")
    return run(folder, "-m", "pytest", "-q", "-rf", *alone, *chosen, timeout=600)
