"""The layers that docs/ARCHITECTURE.md shows, and how long a file may be."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import ROOT

MOST_LINES = 400


def test_the_page_has_the_layers_that_the_linter_holds() -> None:
    """A reader who looks for a module finds it where it is, and in the order in which imports go."""
    [contract] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    section = (ROOT / "docs/ARCHITECTURE.md").read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^    (\w+(?:  \w+)*)(?:   .*)?$", section, re.MULTILINE)
    assert [layer.split("  ") for layer in shown] == [layer.split(" : ") for layer in contract["layers"]]


def test_no_file_is_longer_than_a_reader_holds_in_the_head() -> None:
    files = [file for folder in ("cloudckpt", "tests") for file in (ROOT / folder).rglob("*.py")]
    lines = {str(file.relative_to(ROOT)): len(file.read_bytes().splitlines()) for file in files}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
