"""What of the public API the model has called, and what it can't."""

from __future__ import annotations

from cloudckpt import Run, Store

TWINS = {
    "wait": "await_answer",
    "wait_for": "await_for",
    "import_": "aimport",
    "sync_before_return": "async_before_return",
    "__enter__": "__aenter__",
}
"""Names of async twins that are not the sync one's with a leading a."""

EXCEPTIONS = {
    "Run.access": "the run as this package's own operations have it; every operator's rule goes through it",
    "Run.on_sigterm": "handlers of signals belong to the whole process, and end it",
}
"""What has no rule, and why."""

called: set[str] = set()
"""What was called, as ``Run.save``."""


def note(on: object, name: str) -> None:
    """Note that something is called, or read."""
    called.add(f"{type(on).__name__}.{name}")


def uncalled() -> list[str]:
    """Return all that is public, has no reason to be left out, and was not called yet."""
    public = {
        f"{cls.__name__}.{name}" for cls in (Run, Store) for name in dir(cls) if not name.startswith("_")
    }
    return sorted(public - EXCEPTIONS.keys() - called)
