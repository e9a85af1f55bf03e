"""How long a connection is kept for the next request.

Owns: that time, for every engine. Stores close a connection that was idle for 5
to 20 seconds, and an agent saves every 10 to 60: a write that crosses the
store's goodbye has a lost answer. Invariant: what an engine sends goes over a
connection that was used a moment ago, or over a new one. A kept one may break
all the same; what its request then did is the protocol's to find out.
"""

from __future__ import annotations

from typing import Any

IDLE_SECONDS = 4.0
"""Less than any store's own, with a second for the request to arrive. A new one costs two round trips."""


def limit_idle(session: Any) -> None:
    """Let a session of aiohttp's keep no idle connection for longer."""
    # A connector takes the time when it is made, and gcsfs and Azure's library make their own.
    session.connector._keepalive_timeout = IDLE_SECONDS
