"""The layers of docs/ARCHITECTURE.md are those that the linter holds."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import ROOT


def test_the_page_has_the_layers_that_the_linter_holds() -> None:
    """A reader who looks for a module finds it where it is, and in the order in which imports go."""
    [contract] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    section = (ROOT / "docs/ARCHITECTURE.md").read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^    (\w+(?:  \w+)*)(?:   .*)?$", section, re.MULTILINE)
    assert [layer.split("  ") for layer in shown] == [layer.split(" : ") for layer in contract["layers"]]
