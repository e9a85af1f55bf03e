"""The demo's parent: has the job done once undisturbed and once under kills, and compares.

Owns: the choice of each kill, and the verdict. Invariant: where a kill fell is
what the dead process's own marks say, not what was meant. It prints nothing:
`show.py` is told through `Watcher`.
"""

from __future__ import annotations

import itertools
import json
import random
import secrets
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import cloudckpt
from cloudckpt.demo import survey
from cloudckpt.demo.agent import Survey
from cloudckpt.demo.process import Agent, DemoError, Mark
from cloudckpt.errors import InvalidInputError

KILLS = 12

PHASES = ("tool", "save", "step")
"""What an agent is killed in the middle of, equally often: the last is any moment of a step."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, and what became of the run.

    Attributes:
        number: From 1.
        worker: Who was killed.
        step: The step that it was at, from 0.
        where: What it was doing, by its own marks.
        by, at: Who resumed the run and at which step; None until then.
        redone: Steps that were begun and had to be done again; None until then.
    """

    number: int
    worker: str
    step: int
    where: str
    by: str | None = None
    at: int | None = None
    redone: int | None = None

    def resumed(self, worker: str, step: int) -> Kill:
        """Return this with who goes on at which step.

        A step whose save had landed is not done again, though nobody was told that it had.
        """
        return replace(self, by=worker, at=step, redone=self.step + 1 - step)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a demo came to.

    Attributes:
        url, run: Where the killed run's checkpoints are.
        kept: Whether they are still there.
        seed: What decided the kills.
        steps: Steps of the job.
        wanted: How many kills were asked for.
        kills: Those that were made, in order.
        report, expected: The killed run's report and the undisturbed one's.
        seconds, plain_seconds: How long each took.
    """

    url: str
    run: str
    kept: bool
    seed: int
    steps: int
    wanted: int
    kills: tuple[Kill, ...]
    report: str
    expected: str
    seconds: float
    plain_seconds: float

    @property
    def equal(self) -> bool:
        """Whether the reports are the same, byte for byte."""
        return self.report.encode() == self.expected.encode()

    @property
    def ok(self) -> bool:
        """Whether the reports are equal, all kills were made and none cost more than a step."""
        return (
            self.equal
            and len(self.kills) == self.wanted
            and all(kill.redone in (0, 1) for kill in self.kills)
        )


class Watcher:
    """Is told what happens, as it happens; this one keeps it to itself."""

    def begun(self, url: str, run: str, *, modules: int, kills: int, seed: int) -> None:
        """The demo starts."""

    def undisturbed(self, steps: int, seconds: float) -> None:
        """The run without kills has ended."""

    def loaded(self, worker: str, pid: int, step: int) -> None:
        """An agent has loaded the run and goes on at `step`."""

    def saved(self, worker: str, steps: int) -> None:
        """A save has returned, of a state with `steps` steps done."""

    def killed(self, kill: Kill) -> None:
        """An agent is dead."""

    def resumed(self, kill: Kill) -> None:
        """The run that `kill` interrupted goes on."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of the job and its store."""

    url: str
    run: str
    task: str

    def result(self) -> str:
        """Return the report, read from the store by this process."""
        with cloudckpt.open(self.url) as store:
            state = store.run(self.run).load(Survey)
        if state is None or not state.done:
            raise DemoError("the run has no result", run=self.run)
        return str(state.result)


@dataclass(frozen=True, slots=True)
class Done:
    """How a run of the job went."""

    steps: int
    kills: tuple[Kill, ...]
    marks: tuple[Mark, ...]
    seconds: float


Times: TypeAlias = dict[tuple[str, str | None], float]


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a kill is meant to fall.

    Attributes:
        step: The first step that it may fall in, from 0.
        phase: One of `PHASES`.
        name: The tool, where it is one.
        delay: Seconds to wait once that has begun.
    """

    step: int
    phase: str
    name: str | None
    delay: float

    def hits(self, mark: Mark) -> bool:
        """Whether what is aimed at begins with `mark`."""
        begins = "model" if self.phase == "step" else self.phase
        return mark.step >= self.step and (mark.at, mark.edge, mark.name) == (begins, "begin", self.name)


class Killer:
    """Chooses the kills of one run, from a seed and from how long things took in an undisturbed one."""

    def __init__(self, seed: int, *, kills: int, steps: int, typical: Times) -> None:
        self._random = random.Random(seed)
        self._targets = sorted(self._random.sample(range(steps), kills))
        self._typical = typical
        self._tools = sorted(name for at, name in typical if at == "tool" and name)
        self._fell: Counter[str] = Counter()

    def next_aim(self, made: int) -> Aim | None:
        """Return where the next kill is meant to fall after `made` kills; None when all were made."""
        if made == len(self._targets):
            return None
        phase = min(PHASES, key=lambda phase: self._fell[phase])
        name = self._random.choice(self._tools) if phase == "tool" else None
        return Aim(self._targets[made], phase, name, self._random.random() * self._typical[phase, name])

    def count(self, aim: Aim, last: Mark) -> str:
        """Note a kill, and return in words what it interrupted: by the agent's last mark, not by the aim."""
        inside = last.at if last.edge == "begin" else "nothing"
        self._fell[aim.phase if aim.phase == "step" else inside] += 1
        what = f"tool {last.name}" if last.at == "tool" else f"the {last.at}"
        if inside == "nothing":
            return f"after {what}" if last.at != "loaded" else "after loading"
        return "waiting for the model" if inside == "model" else f"inside {what}"


def run_demo(
    watcher: Watcher,
    *,
    url: str | None = None,
    kills: int = KILLS,
    seed: int | None = None,
    modules: int = survey.MODULES,
) -> Outcome:
    """Do the job once undisturbed and once under `kills` kills; return both reports.

    Args:
        watcher: Is told what happens.
        url: The store; by default a temporary folder, removed at the end.
        kills: How many; at most one for each module.
        seed: Decides where they fall, as far as timing lets it.
        modules: Size of the job.

    Raises:
        InvalidInputError: No module, more kills than modules, or a store inside one process.
        UnsupportedStoreError: Nothing serves the URL.
        DemoError: An agent failed by itself; a note has all that it said.
    """
    if modules < 1:
        raise InvalidInputError("the job is a module or more", kills=kills, modules=modules)
    if not 0 <= kills <= modules:
        raise InvalidInputError("ask for at most one kill a module", kills=kills, modules=modules)
    if url is not None and url.startswith("memory:"):
        raise InvalidInputError("a memory:// store ends with its process: use a folder or a bucket", url=url)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    run = f"demo-{secrets.token_hex(4)}"
    task = json.dumps({"job": "report on the standard library", "modules": survey.pick_modules(modules)})
    with _store(url) as place:
        watcher.begun(place, run, modules=modules, kills=kills, seed=seed)
        plain_job, job = Job(place, f"{run}-undisturbed", task), Job(place, run, task)
        plain = _do(plain_job, watcher, None)
        watcher.undisturbed(plain.steps, plain.seconds)
        done = _do(job, watcher, Killer(seed, kills=kills, steps=modules, typical=_typical(plain.marks)))
        report, expected = job.result(), plain_job.result()
    return Outcome(
        url=place,
        run=run,
        kept=url is not None,
        seed=seed,
        steps=plain.steps,
        wanted=kills,
        kills=done.kills,
        report=report,
        expected=expected,
        seconds=done.seconds,
        plain_seconds=plain.seconds,
    )


def _do(job: Job, watcher: Watcher, killer: Killer | None) -> Done:
    """Have the job done, by as many agents as it takes."""
    began = time.monotonic()
    kills: list[Kill] = []
    marks: list[Mark] = []
    for number in itertools.count(1):
        worker = f"worker-{number}"
        aim = killer.next_aim(len(kills)) if killer else None
        with Agent(job.url, job.run, job.task) as agent:
            for mark in agent.marks():
                marks.append(mark)
                if mark.at == "loaded":
                    watcher.loaded(worker, agent.pid, mark.step)
                    if kills:
                        kills[-1] = kills[-1].resumed(worker, mark.step)
                        watcher.resumed(kills[-1])
                elif mark.at == "save" and mark.edge == "end":
                    watcher.saved(worker, mark.step + 1)
                if aim and not agent.killed and aim.hits(mark):
                    time.sleep(aim.delay)
                    agent.kill()
        last = marks[-1]
        if killer is None or aim is None or last.at == "done":
            break
        kills.append(Kill(number, worker, last.step, killer.count(aim, last)))
        watcher.killed(kills[-1])
    return Done(last.step, tuple(kills), tuple(marks), time.monotonic() - began)


def _typical(marks: Sequence[Mark]) -> Times:
    """Return how many seconds each thing took, in the middle; a step by the time to the next."""
    took: dict[tuple[str, str | None], list[float]] = {}
    for begin, end in itertools.pairwise(marks):
        if begin.edge == "begin":
            took.setdefault((begin.at, begin.name), []).append((end.ms - begin.ms) / 1000)
    starts = [mark.ms / 1000 for mark in marks if (mark.at, mark.edge) == ("model", "begin")]
    took["step", None] = [later - earlier for earlier, later in itertools.pairwise(starts)]
    return {key: statistics.median(values) for key, values in took.items()}


@contextmanager
def _store(url: str | None) -> Iterator[str]:
    if url is not None:
        cloudckpt.open(url).close()  # a URL that nothing serves is better told here than by an agent
        yield url if "://" in url else str(Path(url).absolute())  # the agents work in other folders
        return
    folder = tempfile.mkdtemp(prefix="cloudckpt-demo-store-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
