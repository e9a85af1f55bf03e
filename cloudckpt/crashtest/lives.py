"""One life of an agent: a process, and after each kill another on an empty disk, until one ends by itself.

Owns: `Lab`, in which lives are lived, and what is known of a life when it is over. Invariant:
where a kill fell is what the dead process left behind says (its lines, its store's calls,
what is in the store), not what was meant.
"""

from __future__ import annotations

import itertools
import json
import linecache
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cloudckpt.crashtest import hook
from cloudckpt.crashtest.aims import Aim, AtCall, AtLine, AtTime, Line, Profile, near
from cloudckpt.crashtest.effects import EFFECTS, Happened, read_effects
from cloudckpt.crashtest.machine import PACKAGE, Machine
from cloudckpt.crashtest.places import Places, Saved
from cloudckpt.crashtest.points import CRASH_AT, CRASH_LOG, NEVER, read_calls

LOOK: Final = 0.002
"""Seconds between two looks at a process that is awaited."""

_SITECUSTOMIZE: Final = """\
with open({hook!r}, encoding="utf-8") as file:
    space = {{"__name__": "cloudckpt_gauntlet_hook"}}
    exec(compile(file.read(), {hook!r}, "exec"), space)
space["install"]({folder!r})
"""


@dataclass(frozen=True, slots=True)
class Fell:
    """Where a kill fell: the agent's own line, its text, and the storage call that was under way."""

    line: str | None
    source: str | None
    call: str | None


@dataclass(frozen=True, slots=True)
class Stay:
    """One process of a life.

    Attributes:
        aim: Where it was to be killed; None when it was not.
        fell: Where it was killed; None when it ended by itself.
        code: Its exit code; None when it was killed.
        hung: Whether it was ended because it did not end.
        began, ended: By the monotonic clock.
        begun: When its own first line was, where that is known; else when it began.
        saved: The states that landed, in order.
        lost: Seconds since the last of them, or since the start.
        working: Whether the agent's own code has run since, and after the first storage call.
        effects: How many effects of the life there were at its end.
        calls: How many calls its store got.
        output: Its stdout.
        file: The result file's text, if there is one.
        said: Its stderr.
    """

    aim: Aim | None
    fell: Fell | None
    code: int | None
    hung: bool
    began: float
    begun: float
    ended: float
    saved: tuple[Saved, ...]
    lost: float
    working: bool
    effects: int
    calls: int
    output: str
    file: str | None
    said: str


@dataclass(frozen=True, slots=True)
class Life:
    """All processes of a life, the store that they shared, and what they did to the world."""

    number: int
    url: str
    stays: tuple[Stay, ...]
    effects: tuple[Happened, ...]

    @property
    def saved(self) -> list[Saved]:
        """Every state that landed, in order."""
        return [saved for stay in self.stays for saved in stay.saved]

    @property
    def kills(self) -> int:
        """How often it was killed."""
        return sum(stay.fell is not None for stay in self.stays)

    @property
    def work(self) -> float:
        """How long its last process worked, from its own first line to its end."""
        return self.stays[-1].ended - self.stays[-1].begun

    @property
    def seconds(self) -> float:
        """How long its processes took."""
        return sum(stay.ended - stay.began for stay in self.stays)


@dataclass(frozen=True, slots=True)
class Lab:
    """What all lives have in common.

    Attributes:
        command: The agent; ``{url}`` in an argument becomes the store's URL.
        where: The stores.
        scratch: A folder for what the agents don't see.
        bring, keep_home: As `Machine` takes them.
        timeout: Seconds that a process has.
        result_file: A file in the agent's folder.
    """

    command: tuple[str, ...]
    where: Places
    scratch: Path
    bring: tuple[Path, ...] = ()
    keep_home: bool = False
    timeout: float = 300.0
    result_file: str | None = None

    def live(
        self, number: int, aims: Iterable[Aim] = (), *, lines: bool = True, seconds: float = 0.0
    ) -> Life:
        """Live a life whose processes are killed at `aims`, one each, and whose last is left alone.

        Args:
            number: Of the life.
            aims: Where its kills are to fall; it ends early when one is missed.
            lines: Whether the agent's own lines can be seen.
            seconds: What a process takes from its own first line to its end.
        """
        url = self.where.fresh(number)
        folder = self.scratch / str(number)
        folder.mkdir()
        stays: list[Stay] = []
        known: set[tuple[str, int]] = set()
        for n, aim in enumerate(itertools.chain(aims, [None])):
            stays.append(self._stay(url, folder, n, aim, known, lines=lines, seconds=seconds))
            if stays[-1].fell is None:
                break
        return Life(number, url, tuple(stays), tuple(read_effects(folder / "effects")))

    def profile(self, life: Life) -> Profile:
        """Return what a life's first process was like."""
        folder, stay = self.scratch / str(life.number), life.stays[0]
        told = _text(folder / "lines-0")
        first = min((call["at"] for call in read_calls(folder / "calls-0")), default=0.0)
        lines = tuple(
            Line(file, number, count, at >= first) for file, number, count, at in json.loads(told or "[]")
        )
        return Profile(lines, stay.calls)

    def _stay(
        self,
        url: str,
        folder: Path,
        n: int,
        aim: Aim | None,
        known: set[tuple[str, int]],
        *,
        lines: bool,
        seconds: float,
    ) -> Stay:
        status, calls, output = folder / f"status-{n}", folder / f"calls-{n}", folder / f"output-{n}"
        status.write_bytes(bytes(hook.SIZE))
        plan = {
            "status": str(status),
            "lines": str(folder / f"lines-{n}"),
            "taken": str(folder / f"taken-{n}"),
            "kill": [aim.file, aim.line, aim.count] if isinstance(aim, AtLine) else None,
            "skip": [str(PACKAGE)],
        }
        environment = {
            "CLOUDCKPT_URL": url,
            EFFECTS: str(folder / "effects"),
            CRASH_AT: str(aim) if isinstance(aim, AtCall) else NEVER,
            CRASH_LOG: str(calls),
            hook.GAUNTLET: json.dumps(plan),
        }
        with (
            open(output, "w") as out,
            Machine(
                [argument.replace("{url}", url) for argument in self.command],
                environment=environment,
                bring=self.bring,
                keep_home=self.keep_home,
                ahead=self.scratch / "hook",
                output=out,
            ) as machine,
        ):
            after = aim.share * seconds if isinstance(aim, AtTime) else None
            hung = _attend(machine, after, status if lines else None, self.timeout)
            ended = time.monotonic()
            code = machine.process.returncode
            line = _read_status(status)
            fell_at = Fell(line.place, _source(line, machine.disk), None)
            file = _text(machine.disk / self.result_file) if self.result_file else None
            said = machine.complaints()
        log = read_calls(calls)
        killed = line.last or (isinstance(aim, AtTime) and machine.killed and not hung)
        moment, since = ended, machine.began
        if log and log[-1]["edge"] == "killed":
            killed, moment = True, log[-1]["at"]
        elif line.last:
            moment = line.time
        saved, last = _landed(log, self.where.states(url), known)
        since = max(since, last)
        loaded = max(since, min((call["at"] for call in log), default=moment))
        return Stay(
            aim=aim,
            fell=Fell(fell_at.line, fell_at.source, _under_way(log)) if killed else None,
            code=None if killed or hung else code,
            hung=hung,
            began=machine.began,
            begun=line.first or machine.began,
            ended=moment,
            saved=saved,
            lost=max(0.0, moment - since),
            working=not lines or (line.before if line.last else line.time) > loaded,
            effects=len(read_effects(folder / "effects")),
            calls=sum(call["edge"] == "begin" for call in log),
            output=output.read_text(errors="replace"),
            file=file,
            said=said,
        )


@contextmanager
def lab(command: Sequence[str], where: Places, **options: Any) -> Iterator[Lab]:
    """Have a lab, in a temporary folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="cloudckpt-gauntlet-lab-") as name:
        ahead = Path(name) / "hook"
        ahead.mkdir()
        text = _SITECUSTOMIZE.format(hook=os.path.abspath(hook.__file__), folder=str(ahead))
        (ahead / "sitecustomize.py").write_text(text)
        yield Lab(tuple(command), where, Path(name), **options)


def _attend(machine: Machine, after: float | None, status: Path | None, timeout: float) -> bool:
    """Wait until a process has ended, or kill it so many seconds after it has begun to work.

    Returns:
        Whether it had to be stopped.
    """
    until = machine.began + timeout
    if after is not None:
        begun = machine.began
        while status is not None and machine.process.poll() is None and time.monotonic() < until:
            begun = _read_status(status).first
            if begun:
                break
            time.sleep(LOOK)
        until = min(until, begun + after) if begun else until
    try:
        machine.process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        machine.kill()
        machine.process.wait()
        return until == machine.began + timeout
    return False


@dataclass(frozen=True, slots=True)
class _Line:
    """The newest of an agent's own lines: see `hook.HEAD`."""

    first: float
    time: float
    before: float
    number: int
    file: str
    last: bool

    @property
    def place(self) -> str | None:
        return f"{near(self.file)}:{self.number}" if self.time else None


def _read_status(path: Path) -> _Line:
    data = path.read_bytes()
    first, moment, before, number, length, last = hook.HEAD.unpack_from(data)
    file = data[hook.HEAD.size : hook.HEAD.size + length].decode("utf-8", "surrogateescape")
    return _Line(first, moment, before, number, file, last)


def _source(line: _Line, disk: Path) -> str | None:
    if not line.time or line.file.startswith("<"):
        return None
    path = str(disk / line.file)
    linecache.checkcache(path)
    return linecache.getline(path, line.number).strip() or None


def _text(path: Path) -> str | None:
    return path.read_text(errors="replace") if path.is_file() else None


def _under_way(log: Sequence[dict[str, Any]]) -> str | None:
    """Return what the newest storage call was that had begun and not ended."""
    ended = {call["n"] for call in log if call["edge"] in ("end", "failed")}
    for call in reversed(log):
        if call["edge"] == "begin" and call["n"] not in ended:
            return f"{call['op']} {call['key'].partition('/')[0]}"
    if log and log[-1]["edge"] == "killed":
        return f"{log[-1]['op']} {log[-1]['key'].partition('/')[0]}, answered"
    return None


def _landed(
    log: Sequence[dict[str, Any]], there: Sequence[Saved], known: set[tuple[str, int]]
) -> tuple[tuple[Saved, ...], float]:
    """Return the states that are new in the store, in order, and when the last one's write was answered.

    A write that nobody saw answered counts when its state is in the store.
    """
    answered = {call["n"]: call["at"] for call in log if call["edge"] == "end"}
    found: list[Saved] = []
    last = 0.0
    for call in log:
        if call["edge"] != "begin" or call["saved"] is None:
            continue
        saved = Saved(*call["saved"])
        if (saved.run, saved.seq) in known or (call["n"] not in answered and saved not in there):
            continue
        known.add((saved.run, saved.seq))
        found.append(saved)
        last = answered.get(call["n"], call["at"])
    for saved in there:  # by a process that strips its environment
        if (saved.run, saved.seq) not in known:
            known.add((saved.run, saved.seq))
            found.append(saved)
    return tuple(found), last
