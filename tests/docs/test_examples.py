"""Every Python block of README.md and docs/ compiles, and the complete ones run.

A block is complete when ``<!-- example: NAME -->`` stands before it. It runs in a
process of its own and in an empty folder, as a reader would run it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?:<!-- example: (?P<name>[\w-]+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)

BLOCKS = [
    pytest.param(
        found["name"], found["code"], id=f"{page.name}:{page.read_text()[: found.start()].count(chr(10)) + 1}"
    )
    for page in PAGES
    for found in BLOCK.finditer(page.read_text())
]


@pytest.mark.parametrize(("name", "code"), BLOCKS)
def test_an_example_works_as_it_stands(name: str | None, code: str, tmp_path: Path) -> None:
    """Examples rot first: a renamed argument breaks no unit test, only the reader's day."""
    compile(code, "<example>", "exec")
    if name is None:
        return
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_has_a_complete_example() -> None:
    """Without it the test above would pass on a README whose examples nobody runs."""
    assert "<!-- example: loop -->" in (ROOT / "README.md").read_text()


def test_a_link_in_the_docs_leads_somewhere() -> None:
    """A page that was moved leaves its readers behind."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
