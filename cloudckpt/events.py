"""What happens to runs, as values that listeners get. Pure.

Owns: the events, and a line of a log for each. Who is told, and when, is in `hooks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is durable.

    Attributes:
        run: The run's id.
        seq: The checkpoint's number.
        step: Its step, or None.
        size: Bytes as stored.
        seconds: What the commit took.
    """

    run: str
    seq: int
    step: int | None
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state was read and verified.

    Attributes:
        run: The run's id.
        seq: The checkpoint's number.
        step: Its step, or None.
        size: Bytes as stored.
        seconds: What reading took.
        lost: How many newer checkpoints were damaged.
    """

    run: str
    seq: int
    step: int | None
    size: int
    seconds: float
    lost: int


@dataclass(frozen=True, slots=True)
class Acting:
    """`once` begins, on the thread and in the task that `Acted` will follow on.

    Attributes:
        run: The run's id.
        key: The action's name.
        call: The same object in both.
    """

    run: str
    key: str
    call: object


@dataclass(frozen=True, slots=True)
class Acted:
    """`once` has ended.

    Attributes:
        run: The run's id.
        key: The action's name.
        call: That of its `Acting`.
        known: Whether the result was recorded before, and nothing was done.
        error: What it raised, or None.
    """

    run: str
    key: str
    call: object
    known: bool
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Conflicted:
    """A writer was refused, since another one wrote.

    Attributes:
        run: The run's id.
        host: Of whoever is the writer now.
        pid: Likewise.
        fenced: Whether another process became the writer; else somebody committed in between.
    """

    run: str
    host: str
    pid: int
    fenced: bool


@dataclass(frozen=True, slots=True)
class Resumed:
    """A process became the writer of a run that has checkpoints.

    Attributes:
        run: The run's id.
        seq: Number of the newest checkpoint.
        step: Its step, or None.
        age: How long ago it was saved, by the two machines' clocks: for people.
        host: Of the writer before.
        pid: Likewise.
        epoch: Number of the writer now.
    """

    run: str
    seq: int
    step: int | None
    age: timedelta
    host: str
    pid: int
    epoch: int


Event: TypeAlias = Saved | Loaded | Acting | Acted | Conflicted | Resumed


def line(event: Event) -> str:
    """Return what a log says of an event."""
    match event:
        case Resumed(run, seq, step, age, host, pid, epoch):
            from_ = f"seq={seq}" if step is None else f"step={step} (seq={seq})"
            return (
                f"resumed run={run!r} from {from_}, saved {_ago(age)} ago; "
                f"before: host={host!r} pid={pid}; epoch={epoch}"
            )
        case Saved(run, seq, step, size, seconds):
            return f"saved run={run!r} seq={seq} step={step} bytes={size} ms={seconds * 1e3:.1f}"
        case Loaded(run, seq, step, size, seconds, lost):
            behind = f" lost={lost}" if lost else ""
            return f"loaded run={run!r} seq={seq} step={step} bytes={size} ms={seconds * 1e3:.1f}{behind}"
        case Acting(run, key):
            return f"once begins run={run!r} key={key!r}"
        case Acted(run, key, _, known, error):
            how = "failed" if error is not None else "was known" if known else "done"
            return f"once {how} run={run!r} key={key!r}"
        case Conflicted(run, host, pid, fenced):
            why = "fenced" if fenced else "lost a race"
            return f"{why} run={run!r}; writer now: host={host!r} pid={pid}"


def _ago(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
