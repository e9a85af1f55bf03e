"""The one exception tree, grouped by what a handler would do.

    CloudckptError
    ├── ConflictError            somebody else committed: reload, then decide
    │   ├── FencedError          another process is the run's writer now: stop
    │   └── StaleStateError      the state is not the run's newest: load, fork or delete
    ├── InFlightError            an action may have happened: look whether it did, or ask
    ├── WaitingError             the run waits for an answer: end, and resume after it
    ├── RunBusyError             somebody holds the lease: wait, or work on another run
    ├── NotFoundError (KeyError)
    │   ├── RunNotFoundError
    │   └── CheckpointNotFoundError
    ├── RunDeletedError          the run has a tombstone: use another id
    ├── HeldError                a hold forbids it: release first
    ├── StorageError             the store failed: try later
    │   ├── OutcomeUnknownError  a commit may or may not have happened: read first
    │   ├── PreconditionFailedError   (engines) the condition of a write did not hold
    │   ├── AmbiguousError       (engines) no answer that tells: it may have happened
    │   ├── ThrottledError       slow down
    │   ├── PermissionDeniedError     credentials or rights: a person must act
    │   └── ArchivedError        the object is in a cold tier: restore first
    ├── DataError                what is stored is not what it should be
    │   ├── CorruptCheckpointError    damaged bytes: go back to an intact checkpoint
    │   ├── UnsupportedFormatError    written by newer code: upgrade
    │   └── SchemaError          intact bytes that don't fit the wanted type
    ├── SerializationError (TypeError)   the state can't be carried; has the paths
    ├── UnsupportedStoreError    the store can't keep the promise, or its engine is missing
    ├── InvalidInputError (ValueError)
    └── ClosedError              the store or run was closed

Where two failures are handled alike they share a class and differ in `kind`, a
stable word for programs (``"no-such-bucket"``). A message is a lowercase
sentence that says what to do, then ``key=value`` facts. Every error pickles.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AmbiguousError",
    "ArchivedError",
    "CheckpointNotFoundError",
    "ClosedError",
    "CloudckptError",
    "ConflictError",
    "CorruptCheckpointError",
    "DataError",
    "FencedError",
    "HeldError",
    "InFlightError",
    "InvalidInputError",
    "NotFoundError",
    "OutcomeUnknownError",
    "PermissionDeniedError",
    "PreconditionFailedError",
    "RunBusyError",
    "RunDeletedError",
    "RunNotFoundError",
    "SchemaError",
    "SerializationError",
    "StaleStateError",
    "StorageError",
    "ThrottledError",
    "UnsupportedFormatError",
    "UnsupportedStoreError",
    "WaitingError",
]


class CloudckptError(Exception):
    """Base of every error that this package raises on purpose.

    Args:
        message: A lowercase sentence that says what happened and what to do.
        kind: A stable word for programs, where one class covers several cases.
        **facts: Shown after the message as ``key=value`` and kept in `facts`;
            a fact that is None is left out.
    """

    def __init__(self, message: str, *, kind: str | None = None, **facts: Any) -> None:
        self.message = message
        self.kind = kind
        self.facts = {name: value for name, value in facts.items() if value is not None}
        super().__init__(message)

    def __str__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self.facts.items()]
        return " ".join([self.message, *shown])

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with self.args and lose the keywords.
        return _rebuild, (type(self), self.message, self.kind, self.facts, dict(self.__dict__))


def _rebuild(
    cls: type[CloudckptError],
    message: str,
    kind: str | None,
    facts: dict[str, Any],
    attributes: dict[str, Any],
) -> CloudckptError:
    error = cls.__new__(cls)
    CloudckptError.__init__(error, message, kind=kind, **facts)
    error.__dict__.update(attributes)
    return error


class ConflictError(CloudckptError):
    """Another commit was made on top of the base; nothing of ours was written."""


class FencedError(ConflictError):
    """Another process became the run's writer; this one must stop saving to it."""


class StaleStateError(ConflictError):
    """The state does not continue the run's newest checkpoint; it was not saved."""


class InFlightError(CloudckptError):
    """An action was begun, and nobody knows whether it happened; it was not done again."""


class WaitingError(CloudckptError):
    """The run waits for an answer, which is asked for in the store; this process may end.

    Attributes:
        token: What `Run.answer` takes; None when it waits for another run.
    """

    def __init__(self, message: str, *, token: str | None = None, **facts: Any) -> None:
        super().__init__(message, token=token, **facts)
        self.token = token


class RunBusyError(CloudckptError):
    """Another worker holds the run's lease, or was faster to claim it; the run was left alone.

    Attributes:
        left: Seconds after which the lease has expired, unless it is renewed; as seen by this process.
    """

    def __init__(self, message: str, *, left: float = 0.0, **facts: Any) -> None:
        super().__init__(message, left=round(left, 3), **facts)
        self.left = left


class NotFoundError(CloudckptError, KeyError):
    """A run or a checkpoint does not exist."""

    __str__ = CloudckptError.__str__  # KeyError would show the repr of the message


class RunNotFoundError(NotFoundError):
    """The run does not exist in this store."""


class CheckpointNotFoundError(NotFoundError):
    """The run has no such checkpoint: it never existed, or it expired."""


class RunDeletedError(CloudckptError):
    """The run was deleted; its tombstone refuses every later commit."""


class HeldError(CloudckptError):
    """A hold keeps the checkpoint or the run from expiry and deletion."""


class StorageError(CloudckptError):
    """The store could not do it now; what was saved before is intact."""


class OutcomeUnknownError(StorageError):
    """A commit may or may not have happened; read the run before going on.

    Attributes:
        commit: The commit id to look for in the run's history.
    """

    def __init__(self, message: str, *, commit: str | None = None, **facts: Any) -> None:
        super().__init__(message, commit=commit, **facts)
        self.commit = commit


class PreconditionFailedError(StorageError):
    """An engine's conditional write was refused, or its own success was answered late."""


class AmbiguousError(StorageError):
    """A request got no answer that tells whether it happened; asking again may work."""


class ThrottledError(StorageError):
    """The store asks to slow down."""


class PermissionDeniedError(StorageError):
    """Missing, wrong or expired credentials, or a right that is not granted."""


class ArchivedError(StorageError):
    """The object is in a cold storage tier and must be restored before it is read."""


class DataError(CloudckptError):
    """What is stored is not what it should be."""


class CorruptCheckpointError(DataError):
    """Damaged or missing bytes; nothing was decoded from them.

    Attributes:
        run, seq, key: Where the damage is; seq is None for a manifest.
        newest_intact: seq of the newest checkpoint that still verifies, if known.
    """

    def __init__(
        self,
        message: str,
        *,
        run: str | None = None,
        seq: int | None = None,
        key: str | None = None,
        newest_intact: int | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, run=run, seq=seq, key=key, newest_intact=newest_intact, **facts)
        self.run = run
        self.seq = seq
        self.key = key
        self.newest_intact = newest_intact


class UnsupportedFormatError(DataError):
    """Intact bytes in a format, codec or version that this release does not know."""


class SchemaError(DataError):
    """Intact bytes that do not fit the type that was asked for."""


class SerializationError(CloudckptError, TypeError):
    """The state holds values that can't be carried; nothing was written.

    Attributes:
        paths: Where they are, such as ``state.plan[3].callback``, one per fault.
    """

    def __init__(self, message: str, *, paths: tuple[str, ...] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.paths = paths


class UnsupportedStoreError(CloudckptError):
    """The store can't keep the promise, or the engine for it is not installed."""


class InvalidInputError(CloudckptError, ValueError):
    """An argument is not usable; the message says what is."""


class ClosedError(CloudckptError):
    """The store or the run was closed; open it again."""
