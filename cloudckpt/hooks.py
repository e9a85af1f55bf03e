"""Who is told what happens to runs: telemetry, a log, a test.

Owns: the list of those who listen, and the log `cloudckpt`. Invariants: a listener is called
where the thing happens (the caller's thread, or the IO thread with the caller's context), right
after it is done, so it must be quick and must not call cloudckpt; what it raises comes
out of the call that it was told of, which is done by then; with nobody listening, nothing is
even made to be told, and nothing is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cloudckpt.late import Late

if TYPE_CHECKING:
    from cloudckpt import events
    from cloudckpt.events import Event
else:  # a load that nobody listens to needs none
    events = Late("cloudckpt.events")

DEBUG, INFO = 10, 20
"""As in `logging`, which a process without a log need not import."""

Hook: TypeAlias = Callable[["Event"], Any]

_hooks: tuple[Hook, ...] = ()


def listen(hook: Hook) -> Callable[[], None]:
    """Tell a hook of every event of this process (`cloudckpt.events`) from now on; return what ends that."""
    global _hooks  # noqa: PLW0603 - replaced whole, so that telling needs no lock
    _hooks = (*_hooks, hook)

    def end() -> None:
        global _hooks  # noqa: PLW0603
        _hooks = tuple(one for one in _hooks if one is not hook)

    return end


def tell(make: Callable[[], Event], level: int = DEBUG) -> None:
    """Tell everybody who listens, and the log.

    Args:
        make: Returns the event; called when somebody listens.
        level: Of its line in the log.
    """
    logged = False
    if "logging" in sys.modules:  # else nobody can have asked for a line
        log = sys.modules["logging"].getLogger("cloudckpt")
        logged = log.isEnabledFor(level)
    if not logged and not _hooks:
        return
    event = make()
    for hook in _hooks:
        hook(event)
    if logged:
        about = {"run": event.run, "seq": getattr(event, "seq", None)}
        log.log(level, "%s", events.line(event), extra=about)
