"""Runs an agent twice undisturbed and many times under kills, and compares.

Owns: which lives are lived, and the report. Invariant: what is told of a failed life
replays it: its own seed and number of kills, or its crash point.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cloudckpt.crashtest.aims import Aim, AtCall, Line, every_call, random_aims
from cloudckpt.crashtest.lives import Lab, Life, Stay, lab
from cloudckpt.crashtest.machine import GauntletError
from cloudckpt.crashtest.places import Places, places
from cloudckpt.crashtest.verdict import (
    Baseline,
    Kill,
    Problem,
    baseline,
    by_run,
    judge,
    kills_of,
    same_effects,
)
from cloudckpt.errors import InvalidInputError

KILLS: Final = 12

RESULTS: Final = ("line", "stdout", "none")

SEEDS: Final = 1_000_000

PATIENCE: Final = 10
"""Lives in a row that end before their kill falls, until it is said that no more fall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an agent is tried.

    Attributes:
        kills: How many kills fall at random.
        seed: Decides where; None for any.
        every_call: Also die before and after each storage call, in a life each.
        calls: Or only at these, such as ``7:before``.
        result: What the agent ends with: the last "line" of stdout, all of "stdout", or "none".
        result_file: Or a file in its folder.
        bring: Files and folders that each process finds in its folder, as from an image.
        keep_home: Leave HOME as it is.
        redo: How many steps a kill may cost; a step is what is between two saved states.
        allow_doubled: Whether an effect may happen again in a step that is done again.
        timeout: Seconds that each process has.
        url, engine, storage_options: The store, as `cloudckpt.open` takes it; each life has a
            prefix of its own, which is removed unless it failed. By default a temporary folder.

    Raises:
        InvalidInputError: One of them is not usable.
    """

    kills: int = KILLS
    seed: int | None = None
    every_call: bool = False
    calls: tuple[AtCall, ...] = ()
    result: str = "line"
    result_file: str | None = None
    bring: tuple[Path, ...] = ()
    keep_home: bool = False
    redo: int = 1
    allow_doubled: bool = False
    timeout: float = 300.0
    url: str | None = None
    engine: str | None = None
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.kills < 0 or self.redo < 0:
            raise InvalidInputError("kills and redo are numbers from 0", kills=self.kills, redo=self.redo)
        if self.timeout <= 0:
            raise InvalidInputError("a process needs some seconds", timeout=self.timeout)
        if self.result not in RESULTS:
            raise InvalidInputError(f"a result is one of {', '.join(RESULTS)}", got=self.result)
        for path in self.bring:
            if not path.exists():
                raise InvalidInputError("there is no such file or folder to bring", path=str(path))


@dataclass(slots=True)
class Report:
    """What a gauntlet came to.

    Attributes:
        command: The agent.
        seed: Of its first life.
        url: Where the stores of failed lives are; None when nothing is left.
        seconds: An undisturbed life's.
        saves: How many states that one saved, and
        calls: How many calls its store got.
        lines: The agent's own lines that it came to.
        wanted: How many random kills were asked for.
        lives: How many lives were killed or meant to be.
        fallen: How many kills fell at random.
        kills: All kills, in order.
        problems: What is wrong, in order.
        notes: What could not be compared.
    """

    command: tuple[str, ...]
    seed: int
    url: str | None
    seconds: float
    saves: int
    calls: int
    lines: tuple[Line, ...]
    wanted: int
    lives: int = 0
    fallen: int = 0
    kills: list[Kill] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and as many kills fell as were asked for."""
        return not self.problems and self.fallen == self.wanted

    @property
    def covered(self) -> set[str]:
        """The agent's own lines at which kills fell."""
        return {kill.line for kill in self.kills if kill.line is not None}


@dataclass(frozen=True, slots=True)
class Tried:
    """A life that was lived: its kills, and what is wrong with it."""

    kills: list[Kill]
    problems: list[Problem]


class Trial:
    """An agent that was run undisturbed and is ready to be killed. Made by `trial`.

    Attributes:
        report: Grows with each life.
        total: How many kills are meant to fall.
    """

    def __init__(self, room: Lab, options: Options, seed: int) -> None:
        self._lab = room
        self._options = options
        first, second = room.live(0), room.live(1)
        self._base, notes = _baseline(first, second, options, room.where)
        self._profile = room.profile(first)
        self._seconds = min(first.work, second.work)
        self._calls = (*options.calls, *(every_call(self._profile) if options.every_call else ()))
        self.total = options.kills + len(self._calls)
        self.report = Report(
            command=room.command,
            seed=seed,
            url=room.where.root if room.where.kept else None,
            seconds=first.seconds,
            saves=len(first.saved),
            calls=self._profile.calls,
            lines=self._profile.lines,
            wanted=options.kills,
            notes=notes,
        )
        room.where.remove(second.url)

    def lives(self) -> Iterator[Tried]:
        """Live one life after the other, and tell of each. To be used up once."""
        numbers, missed = itertools.count(2), 0
        for seed in itertools.count(self.report.seed):
            left = self._options.kills - self.report.fallen
            if left == 0 or missed == PATIENCE:
                break
            aims = itertools.islice(random_aims(seed, self._profile), left)
            tried = self._live(next(numbers), aims, seed)
            self.report.fallen += len(tried.kills)
            missed = 0 if tried.kills else missed + 1
            yield tried
        for point in self._calls:
            yield self._live(next(numbers), [point], point)
        self._lab.where.remove(self._base.life.url)
        if not self.report.problems:
            self.report.url = None

    def _live(self, number: int, aims: Iterable[Aim], origin: int | AtCall) -> Tried:
        where, options = self._lab.where, self._options
        life = self._lab.live(number, aims, lines=bool(self._profile.lines), seconds=self._seconds)
        kills = kills_of(self._base, life)
        if not kills:  # it was faster than the undisturbed ones: the next kill by time comes sooner
            self._seconds = min(self._seconds, life.work)
        at_call = isinstance(origin, AtCall)
        replay = f"--kills 0 --call {origin}" if at_call else f"--kills {max(1, len(kills))} --seed {origin}"
        result = _result(life.stays[-1], options) or ""
        found = judge(self._base, life, result, redo=options.redo, doubled=options.allow_doubled)
        problems = [replace(self._explained(problem, life), life=number, replay=replay) for problem in found]
        self.report.lives += 1
        self.report.kills += kills
        self.report.problems += problems
        if not problems:
            where.remove(life.url)
        return Tried(kills, problems)

    def _explained(self, problem: Problem, life: Life) -> Problem:
        """Say at which paths the newest state is another one."""
        if problem.kind != "final-state" or problem.run is None:
            return problem
        paths = self._lab.where.compared(self._base.life.url, life.url, problem.run)
        return replace(problem, text=f"{problem.text}: {_few(paths)}")


@contextmanager
def trial(command: Sequence[str], options: Options) -> Iterator[Trial]:
    """Run an agent twice undisturbed, and have it ready for `Trial.lives`.

    Raises:
        GauntletError: It fails, hangs or saves nothing without any kill, or has no two equal ends.
        InvalidInputError: There is no command, or the store ends with its process.
        UnsupportedStoreError: Nothing serves the URL.
    """
    if not command:
        raise InvalidInputError("name the command that runs the agent")
    seed = secrets.randbelow(SEEDS) if options.seed is None else options.seed
    with (
        places(options.url, engine=options.engine, storage_options=options.storage_options) as where,
        lab(
            command,
            where,
            bring=options.bring,
            keep_home=options.keep_home,
            timeout=options.timeout,
            result_file=options.result_file,
        ) as room,
    ):
        yield Trial(room, options, seed)


def run_gauntlet(command: Sequence[str], options: Options | None = None) -> Report:
    """Try an agent, and return the report. Raises as `trial`."""
    with trial(command, options or Options()) as tried:
        for _ in tried.lives():
            pass
        return tried.report


def _baseline(first: Life, second: Life, options: Options, where: Places) -> tuple[Baseline, list[str]]:
    for stay in (first.stays[0], second.stays[0]):
        _check_end(stay, options)
    result = _result(first.stays[0], options)
    if result is None:
        raise GauntletError("the agent left no result file", file=options.result_file)
    if not first.saved:
        raise GauntletError(
            "the agent saved nothing in the store that CLOUDCKPT_URL names: nothing can resume"
        )
    runs, others = sorted(by_run(first.saved)), sorted(by_run(second.saved))
    if runs != others:
        raise GauntletError(
            "each process of the agent saves under another run id: give it one that stays",
            runs=[*runs, *others],
        )
    if result != _result(second.stays[0], options):
        raise GauntletError(
            "two undisturbed lives have different results: make it repeatable, or compare another "
            "(--result none, --result-file)"
        )
    if not same_effects(first.effects, second.effects):
        raise GauntletError("two undisturbed lives have different effects: leave out of them what varies")
    base = baseline(first, second, result)
    return base, [*_differing(base, second, where)]


def _differing(base: Baseline, second: Life, where: Places) -> Iterator[str]:
    for run, track in base.tracks.items():
        if base.ends[run] is None:
            paths = _few(where.compared(base.life.url, second.url, run))
            yield f"run {run!r}: undisturbed lives end in different states ({paths}), so it is not compared"
        elif None in track.digests.values():
            yield f"run {run!r}: some states differ between undisturbed lives, and are not compared"


def _check_end(stay: Stay, options: Options) -> None:
    if stay.hung:
        error = GauntletError("the agent does not end, also when nobody kills it", seconds=options.timeout)
    elif stay.code != 0:
        said = (stay.said.splitlines() or ["it said nothing"])[-1]
        error = GauntletError(f"the agent fails, also when nobody kills it: {said}", code=stay.code)
    else:
        return
    error.add_note(stay.said)
    raise error


def _result(stay: Stay, options: Options) -> str | None:
    if options.result_file is not None:
        return stay.file
    if options.result == "none":
        return ""
    lines = [line for line in stay.output.splitlines() if line.strip()]
    return stay.output if options.result == "stdout" else lines[-1] if lines else ""


def _few(paths: Sequence[str], most: int = 3) -> str:
    return ", ".join(paths[:most]) + (", ..." if len(paths) > most else "")
