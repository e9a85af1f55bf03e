"""Modules that are imported when they are first used.

Owns: how a module says so at its top. A process that starts only to load waits for
every import, and a load needs neither an event loop nor what encodes and commits.
"""

from __future__ import annotations

import importlib
from typing import Any


class Late:
    """Stands for a module that may never be needed.

    if TYPE_CHECKING:
        import asyncio
    else:
        asyncio = Late("asyncio")
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
