"""Modules that are imported when they are first used.

Owns: how a module says so at its top. A process that starts only to load waits for
every import, and a load needs neither an event loop nor what encodes and commits.
Invariant: no such import is under way at a fork, since in the child it would never end.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

_importing = threading.RLock()

os.register_at_fork(
    before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
)


def imported(*names: str) -> None:
    """Import modules, one after the other, with no fork in between."""
    with _importing:
        for name in names:
            importlib.import_module(name)


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
        if self._name not in sys.modules:
            imported(self._name)
        return getattr(importlib.import_module(self._name), attribute)
