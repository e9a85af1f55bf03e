"""The kill gauntlet: anybody's agent, killed again and again, must come to what it comes to alone.

    gauntlet.py   runs an agent undisturbed and under kills; what all of it came to
    aims.py       where a life's kills are meant to fall, from a seed
    lives.py      one life: process after process, until one ends by itself
    machine.py    one process on an empty disk
    places.py     a fresh store for each life, and what is in it
    verdict.py    what differs between a killed life and an undisturbed one
    shapes.py     a report as JSON, as rows and as text
    hook.py       inside a Python agent: knows its lines, dies at one
    points.py     inside the agent's store: numbers its calls, dies at one
    effects.py    inside the agent: tells what it does to the world
    target.py     a function as an agent
    pytest_plugin.py   the marker and the fixture `gauntlet`

Invariant: a name is imported when it is first used, since agents import `effect` and
pytest imports the plugin, and neither needs the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudckpt.crashtest.effects import effect as effect
    from cloudckpt.crashtest.gauntlet import Options as Options
    from cloudckpt.crashtest.gauntlet import Report as Report
    from cloudckpt.crashtest.gauntlet import run_gauntlet as run_gauntlet
    from cloudckpt.crashtest.machine import GauntletError as GauntletError

_HOMES = {
    "effect": "effects",
    "GauntletError": "machine",
    "Options": "gauntlet",
    "Report": "gauntlet",
    "run_gauntlet": "gauntlet",
}

__all__ = ["GauntletError", "Options", "Report", "effect", "run_gauntlet"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
