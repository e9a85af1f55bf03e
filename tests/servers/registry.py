"""The session's servers: each started when first asked for, counted, ended, and listed in the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.servers import azurite, fake_gcs, minio, moto, seaweedfs
from tests.servers.base import PortTaken, Server, Unavailable

STARTS: dict[str, Callable[[], Server]] = {
    "moto": moto.start,
    "seaweedfs": seaweedfs.start,
    "minio": minio.start,
    "fake_gcs": fake_gcs.start,
    "azurite": azurite.start,
}

PREPARES: dict[str, Callable[[Callable[[str], None]], None]] = {
    "minio": minio.prepare,
    "fake_gcs": fake_gcs.prepare,
    "azurite": azurite.prepare,
}
"""What a server's program may need before its first start, and how to get it."""


TRIES = 3


class Servers:
    """What was asked for in this session, and what came of it."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Server | Unavailable] = {}
        self._tests: Counter[str] = Counter()

    def get(self, name: str) -> Server:
        """Return the server, started if this is the first call for it.

        Raises:
            Unavailable: It can't run here. The reason of the first try is kept.
        """
        if name not in self._outcomes:
            self._outcomes[name] = _start(name)
        outcome = self._outcomes[name]
        if isinstance(outcome, Unavailable):
            raise outcome
        return outcome

    def refuse(self, name: str, reason: Unavailable) -> None:
        """Let every `get` of this server raise `reason`."""
        self._outcomes[name] = reason

    def count(self, name: str) -> None:
        """Note that one more test runs on this server."""
        self._tests[name] += 1

    def lines(self) -> list[str]:
        """Return one line a server for the summary."""
        return [f"{name:<10} {self._line(name)}" for name in STARTS]

    def _line(self, name: str) -> str:
        outcome = self._outcomes.get(name)
        if outcome is None:
            return "not asked for"
        if isinstance(outcome, Unavailable):
            return f"skipped: {outcome}"
        return f"ran: {self._tests[name]} tests, ready after {outcome.start_seconds:.1f} s"

    def stop(self) -> None:
        """End every one that was started."""
        for outcome in self._outcomes.values():
            if isinstance(outcome, Server):
                outcome.stop()


def _start(name: str) -> Server | Unavailable:
    outcome: Unavailable | None = None
    for _ in range(TRIES):
        try:
            return STARTS[name]()
        except PortTaken as error:
            outcome = error
        except Unavailable as error:
            return error
    assert outcome is not None
    return outcome
