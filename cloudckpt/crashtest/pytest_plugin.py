"""The marker and the fixture `gauntlet` for pytest, which finds them where cloudckpt is installed.

    @pytest.mark.gauntlet(kills=12)
    def test_the_agent_survives(gauntlet):
        gauntlet.run([sys.executable, "my_agent.py"])

Owns: what pytest sees. Invariant: a session that never asks for the fixture imports nothing
of this package but this module.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cloudckpt.crashtest.gauntlet import Options, Report

MARK = (
    "gauntlet(**options): options of cloudckpt.crashtest.Options for the fixture gauntlet, such as kills=12"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take a seed for all gauntlets."""
    group = parser.getgroup("cloudckpt")
    group.addoption("--gauntlet-seed", type=int, help="seed of the gauntlets that name none")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARK)


class Gauntlet:
    """What a test tries agents with.

    Attributes:
        options: From the marker; `run` can change each of them.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def run(self, target: Sequence[str] | Callable[..., Any], *arguments: Any, **options: Any) -> Report:
        """Try an agent; the test fails unless it passes.

        Args:
            target: The command that runs it, or a function at the top of a file.
            *arguments: The function's, as JSON values; a command has its own.
            **options: Others than the marker's.

        Raises:
            GauntletError: It fails without any kill.
        """
        report = self.report(target, *arguments, **options)
        if not report.ok:
            from cloudckpt.crashtest.shapes import text

            pytest.fail(text(report), pytrace=False)
        return report

    def report(self, target: Sequence[str] | Callable[..., Any], *arguments: Any, **options: Any) -> Report:
        """Try an agent as `run` does, and return the report also when it fails."""
        from cloudckpt.crashtest.gauntlet import run_gauntlet
        from cloudckpt.crashtest.target import function_command

        command = function_command(target, arguments) if callable(target) else [*target, *map(str, arguments)]
        return run_gauntlet(command, replace(self.options, **options))


def _is_told(path: str) -> bool:
    """Whether a folder is on the path because somebody said so: another process has the others by itself."""
    library = os.path.dirname(os.__file__)
    own = (library, *site.getsitepackages(), site.getusersitepackages())
    return bool(path) and path not in own and not path.startswith(library + os.sep) and os.path.isdir(path)


@pytest.fixture
def gauntlet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Gauntlet:
    """Kill agents, and see them come to what they come to alone."""
    from cloudckpt.crashtest.gauntlet import Options

    # An agent that is a function of a test file finds what the test file finds.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(_is_told, sys.path)))
    mark = request.node.get_closest_marker("gauntlet")
    told = dict(mark.kwargs) if mark is not None else {}
    told.setdefault("seed", request.config.getoption("--gauntlet-seed"))
    return Gauntlet(Options(**told))
