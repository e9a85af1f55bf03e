"""One call of `once`, under way, and which keys are.

Owns: that an action is done by one thread or task of a process at a time, and what those who
listen are told of it. Invariant: once a call has ended, however that was, its key is free; an
interrupt may strike anywhere. It commits nothing.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cloudckpt.calls import check_key, idempotency_key, parameters_of, type_of
from cloudckpt.errors import InvalidInputError
from cloudckpt.hooks import tell
from cloudckpt.late import Late

if TYPE_CHECKING:
    from cloudckpt import events
    from cloudckpt.codec.intake import Intake
    from cloudckpt.commit import RunWriter
else:  # made for those who listen only
    events = Late("cloudckpt.events")

POLICIES = ("fail", "retry", "ask")


class Keys:
    """The keys of one run. Safe from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def alone(self, key: str) -> AbstractContextManager[Any]:
        """Return what to hold while an action is done: a lock, which an interrupt can't part from its block.

        Raises:
            InvalidInputError: The action is being done now.
        """
        with self._guard:
            lock = self._locks.get(key) or self._locks.setdefault(key, threading.Lock())
        if lock.locked():
            raise InvalidInputError("another thread or task is doing this action now", key=key)
        held: AbstractContextManager[Any] = lock
        return held


class Call:
    """One call of `once`, under way.

    Attributes:
        attempt: Names this try in the ledger.
        writer: Began it.
        known: Whether its result is recorded.
        recorded: Whether it was before this call.
        extra: What its function is handed besides its arguments.
    """

    def __init__(
        self,
        key: str,
        fn: Any,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        policy: str,
        *,
        run: str,
        intake: Intake,
    ) -> None:
        args, kwargs = arguments
        self.key = check_key(key)
        if not callable(fn):
            raise InvalidInputError("what is done once must be callable", key=key, got=type(fn).__name__)
        if policy not in POLICIES:
            raise InvalidInputError("unknown policy", got=policy, known=list(POLICIES))
        self.run = run
        self.policy = policy
        self.digest = _digest(intake, args, kwargs)
        self.type = type_of(fn)
        self.attempt = ""
        self.writer: RunWriter | None = None
        self.known = False
        self.recorded = False
        takes = "idempotency_key" in parameters_of(fn) and "idempotency_key" not in kwargs
        self.extra = {"idempotency_key": idempotency_key(run, key)} if takes else {}

    def __enter__(self) -> None:
        tell(lambda: events.Acting(self.run, self.key, self))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        tell(lambda: events.Acted(self.run, self.key, self, known=self.recorded, error=error))


def _digest(intake: Intake, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    data = intake.result([list(args), dict(sorted(kwargs.items()))], "the arguments of an action")
    return hashlib.sha256(data).hexdigest()
