"""Checkpoints for long-running agents: a crash costs at most the last step.

    import cloudckpt

    store = cloudckpt.open("s3://bucket/agents")
    with store.run("nightly-42") as run:
        state = run.load(Research) or Research.new(task)
        while not state.done:
            state.advance()
            run.save(state)

Importing this is light: what a name needs is imported when the name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudckpt.archive import verify_archive as verify_archive
    from cloudckpt.clock import Clock as Clock
    from cloudckpt.codec import Record as Record
    from cloudckpt.codec import migration as migration
    from cloudckpt.codec import register as register
    from cloudckpt.codec.diffing import Change as Change
    from cloudckpt.codec.redaction import Redacted as Redacted
    from cloudckpt.codec.sizes import measure as measure
    from cloudckpt.errors import *  # noqa: F403 - the tree, as listed in its __all__
    from cloudckpt.fingerprints import fingerprint as fingerprint
    from cloudckpt.measured import Size as Size
    from cloudckpt.model import CheckpointInfo as CheckpointInfo
    from cloudckpt.model import RunInfo as RunInfo
    from cloudckpt.pending import Pending as Pending
    from cloudckpt.progress import Progress as Progress
    from cloudckpt.progress import progress_bar as progress_bar
    from cloudckpt.retention import Retention as Retention
    from cloudckpt.run import Run as Run
    from cloudckpt.state import Checkpoint as Checkpoint
    from cloudckpt.store import Store as Store
    from cloudckpt.store import open as open

__version__ = "0.1.0"

_HOMES = {
    "Change": "codec.diffing",
    "Checkpoint": "state",
    "CheckpointInfo": "model",
    "Clock": "clock",
    "Progress": "progress",
    "Record": "codec",
    "Redacted": "codec.redaction",
    "Run": "run",
    "Retention": "retention",
    "Pending": "pending",
    "RunInfo": "model",
    "Size": "measured",
    "Store": "store",
    "fingerprint": "fingerprints",
    "measure": "codec.sizes",
    "migration": "codec",
    "open": "store",
    "progress_bar": "progress",
    "register": "codec",
    "verify_archive": "archive",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"cloudckpt.{_HOMES[name]}"), name)
    elif name.endswith("Error"):
        value = getattr(importlib.import_module("cloudckpt.errors"), name, None)
    else:
        value = None
    if value is None:
        raise AttributeError(f"module 'cloudckpt' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from cloudckpt import errors

    return sorted([*globals(), *_HOMES, *errors.__all__])
