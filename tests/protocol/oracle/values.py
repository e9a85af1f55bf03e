"""What there is to know of a run, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any


class Refused(Exception):
    """The product must raise the error of one of these names."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


class Waiting(Refused):
    """The product must raise `WaitingError`, with the token of this question."""

    def __init__(self, attempt: int, kind: str | None = None) -> None:
        super().__init__("WaitingError")
        self.attempt = attempt
        self.kind = kind


@dataclass(frozen=True)
class Fate:
    """What becomes of a conditional write of a manifest.

    Attributes:
        arrives: Whether it reaches the store at all.
        answer: "right"; "none"; or "second", that of a repetition by the network.
        readable: Whether the reading that follows a doubtful answer succeeds.
    """

    arrives: bool = True
    answer: str = "right"
    readable: bool = True


FINE = Fate()
FAULTS = tuple(
    Fate(arrives, answer, readable)
    for arrives, answer in ((False, "none"), (True, "none"), (True, "second"))
    for readable in (True, False)
)


class Fates:
    """What becomes of the next such writes, one after the other; afterwards all goes well."""

    def __init__(self, *fates: Fate) -> None:
        self._left = list(fates)

    def next(self) -> Fate:
        return self._left.pop(0) if self._left else FINE


@dataclass(frozen=True)
class Hold:
    """Who holds something, why, and since when."""

    by: str
    why: str
    since: datetime


@dataclass(frozen=True)
class Saved:
    """One checkpoint. `kind` says what its state is an instance of; `origin` is (run, seq, store)."""

    state: Any
    kind: str
    step: int | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    epoch: int = 0
    commit: int = 0
    time: datetime | None = None
    origin: tuple[str, int, str | None] | None = None
    hold: Hold | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Act:
    """An action, or a question, of which `asked` and `expires` may be known."""

    number: int
    key: str
    args: tuple[str, Any]
    attempt: int
    tries: int = 1
    ended: bool = False
    result: Any = None
    by: str | None = None
    prompt: str | None = None
    schema: Any = None
    expires: float | None = None
    asked: datetime | None = None
    expired: bool = False
    child: str | None = None


@dataclass(frozen=True)
class Life:
    """A run as it stands.

    Attributes:
        version: Another one after every write.
        kept: Oldest first.
        lingering: Those that have expired, and may be kept a little longer all the same.
        commits: Of every checkpoint that there ever was.
        rules: Who gave them, and the rules; None when nobody did.
        tomb: Who deleted it, and why.
        writer: Who became the writer last.
        lease: For how many seconds (None: anybody may have it) and the number of its last renewal.
    """

    version: int = 0
    seq: int = 0
    epoch: int = 0
    writer: int = 0
    kept: tuple[Saved, ...] = ()
    lingering: tuple[Saved, ...] = ()
    commits: tuple[int, ...] = ()
    actions: tuple[Act, ...] = ()
    status: str = "running"
    hold: Hold | None = None
    rules: tuple[str, Mapping[str, Any]] | None = None
    tomb: tuple[str, str] | None = None
    copied: str | None = None
    lease: tuple[float | None, int] | None = None

    @property
    def deleted(self) -> bool:
        return self.tomb is not None

    def same_as(self, other: Life) -> bool:
        """Whether the two differ by nothing but when they were written."""
        return replace(self, version=0) == replace(other, version=0)

    def action(self, key: str) -> Act | None:
        return next((act for act in self.actions if act.key == key), None)

    def with_action(self, act: Act) -> Life:
        """Return the run with an action, a new one or a newer form of one that it has."""
        if self.action(act.key) is None:
            actions = (*self.actions, replace(act, number=len(self.actions) + 1))
        else:
            actions = tuple(act if one.key == act.key else one for one in self.actions)
        return replace(self, actions=actions, status=_status(self.status, actions))

    def with_saved(self, saved: Saved, status: str | None) -> Life:
        """Return the run with one more checkpoint, and nothing expired yet."""
        return replace(
            self,
            seq=saved.seq,
            kept=(*self.kept, saved),
            commits=(*self.commits, saved.commit),
            status=status or _status("running", self.actions),
        )

    def with_changed(self, saved: Saved) -> Life:
        """Return the run with another form of one of its checkpoints."""
        return replace(self, kept=tuple(saved if one.seq == saved.seq else one for one in self.kept))


def _status(status: str, actions: tuple[Act, ...]) -> str:
    if status not in ("running", "waiting"):
        return status
    return "waiting" if any(act.prompt is not None and not act.ended for act in actions) else "running"
