"""What differs between a killed life and an undisturbed one. Pure.

Owns: the words for what can be wrong with an agent, and the judgement of a life. Invariant:
nothing is called wrong that differs between two undisturbed lives as well.

What is compared: the result, each effect, the newest state of each run, and each state
that was saved on the way, by its step where steps rise and by its bytes elsewhere.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cloudckpt.crashtest.effects import Happened
from cloudckpt.crashtest.lives import Life, Stay
from cloudckpt.crashtest.places import Saved

MEANINGS: Final = {
    "failed": "a resumed process ended with an error",
    "hung": "a resumed process did not end",
    "result": "another result",
    "final-state": "another state at the end",
    "state": "another state on the way",
    "runs": "other runs in the store",
    "redone": "a kill cost more steps than it may",
    "skipped": "a step that was never saved was not done again",
    "effect-doubled": "an effect happened more often",
    "effect-missing": "an effect did not happen, or not as often",
    "effect-other": "an effect that no undisturbed run has, or one key for two effects",
}
"""Kinds of problems. Stable words, for programs."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a life.

    Attributes:
        kind: One of `MEANINGS`.
        text: What.
        run: Which run's state, where it is one's.
        life: Number of the life.
        replay: Options of the command that live it again.
    """

    kind: str
    text: str
    run: str | None = None
    life: int = 0
    replay: str = ""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, and what it cost.

    Attributes:
        life, number: Which life's, and which of its kills, from 1.
        aim: What was meant.
        line, source, call: Where it fell, see `Fell`.
        redone: Steps that were begun or saved before it and done again after it. A step is what is
            between two saved states.
        doubled: Effects that happened again after it.
        lost: Seconds of work since the newest saved state, or since the process was started.
    """

    life: int
    number: int
    aim: str
    line: str | None
    source: str | None
    call: str | None
    redone: int
    doubled: int
    lost: float


@dataclass(frozen=True, slots=True)
class Track:
    """One run as the undisturbed lives saved it.

    Attributes:
        digests: What was saved, by step where steps rise, else by place in the order; None where
            two undisturbed lives differ.
        steps: The steps in order; None where they don't rise.
        exact: Whether the undisturbed lives saved at the same steps.
        again: Digests that they committed twice in a row, such as with `save` and then `finish`.
    """

    digests: Mapping[int, str | None]
    steps: tuple[int, ...] | None
    exact: bool
    again: frozenset[str] = frozenset()

    def places(self, saved: Sequence[Saved]) -> list[int | None]:
        """Return the place of each state in the undisturbed order: how many were saved up to it."""
        if self.steps is not None:
            return [None if one.step is None else bisect.bisect_right(self.steps, one.step) for one in saved]
        known = {digest: place + 1 for place, digest in self.digests.items() if digest is not None}
        return [known.get(one.digest) for one in saved]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an agent comes to when nobody kills it, from two such lives.

    Attributes:
        life: The first of them.
        tracks: Of each run.
        result: What it ended with.
        ends: The digest of each run's newest state; None where the two differ.
    """

    life: Life
    tracks: Mapping[str, Track]
    result: str
    ends: Mapping[str, str | None]


def baseline(one: Life, other: Life, result: str) -> Baseline:
    """Return what two undisturbed lives have in common."""
    runs, others = by_run(one.saved), by_run(other.saved)
    return Baseline(
        life=one,
        tracks={run: _track(saved, others.get(run, [])) for run, saved in runs.items()},
        result=result,
        ends={
            run: saved[-1].digest
            if [saved[-1].digest] == [s.digest for s in others.get(run, [])[-1:]]
            else None
            for run, saved in runs.items()
        },
    )


def by_run(saved: Sequence[Saved]) -> dict[str, list[Saved]]:
    """Return states by their run, in their order."""
    found: dict[str, list[Saved]] = defaultdict(list)
    for one in saved:
        found[one.run].append(one)
    return dict(found)


def _track(saved: Sequence[Saved], other: Sequence[Saved]) -> Track:
    again = frozenset(one.digest for one, then in itertools.pairwise(saved) if one.digest == then.digest)
    saved, other = _apart(saved, again), _apart(other, again)
    steps = [one.step for one in saved]
    rising = tuple(step for step in steps if step is not None)
    if len(rising) == len(steps) and all(a < b for a, b in itertools.pairwise(rising)):
        there = {one.step: one.digest for one in other}
        digests = {
            step: one.digest if there.get(step) == one.digest else None
            for step, one in zip(rising, saved, strict=True)
        }
        return Track(digests, rising, exact=[one.step for one in other] == steps, again=again)
    same = [one.digest for one in saved] == [one.digest for one in other]
    once = Counter(one.digest for one in saved)
    found = {place: one.digest if same and once[one.digest] == 1 else None for place, one in enumerate(saved)}
    return Track(found, None, exact=same, again=again)


def _apart(saved: Iterable[Saved], again: frozenset[str], before: str | None = None) -> list[Saved]:
    """Return states without those that only commit the one before them again."""
    found = []
    for one in saved:
        if one.digest != before or one.digest not in again:
            found.append(one)
        before = one.digest
    return found


def kills_of(base: Baseline, life: Life) -> list[Kill]:
    """Return what each kill of a life cost."""
    doubled = _doubled_by_stay(base.life.effects, life)
    found = []
    for n, stay in enumerate(life.stays):
        if stay.fell is not None:
            found.append(
                Kill(
                    life=life.number,
                    number=n + 1,
                    aim=str(stay.aim),
                    line=stay.fell.line,
                    source=stay.fell.source,
                    call=stay.fell.call,
                    redone=_redone(base, life.stays, n),
                    doubled=doubled[n + 1],
                    lost=stay.lost,
                )
            )
    return found


def _jumps(base: Baseline, stays: Sequence[Stay], n: int) -> Iterator[tuple[str, int, int]]:
    """Yield run, place of the newest state before the kill of stay `n`, and of the first one after it."""
    before = by_run([saved for stay in stays[: n + 1] for saved in stay.saved])
    after = by_run(stays[n + 1].saved) if n + 1 < len(stays) else {}
    for run, track in base.tracks.items():
        done = before.get(run, [])
        went_on = _apart(after.get(run, []), track.again, done[-1].digest if done else None)
        if went_on:
            newest = max((place for place in track.places(done) if place is not None), default=0)
            first = track.places(went_on)[0]
            if first is not None:
                yield run, newest, max(first, newest + 1) if _goes_on(track, done, went_on[0]) else first


def _goes_on(track: Track, done: Sequence[Saved], first: Saved) -> bool:
    """Whether a step is after all that were saved; one may lie between two that undisturbed lives saved."""
    if track.steps is None or first.step is None:
        return False
    return first.step > max((one.step for one in done if one.step is not None), default=first.step)


def _redone(base: Baseline, stays: Sequence[Stay], n: int) -> int:
    again = sum(max(0, newest - first + 1) for _, newest, first in _jumps(base, stays, n))
    ends = by_run([saved for stay in stays[: n + 1] for saved in stay.saved])
    over = all(
        run in ends and track.places(ends[run])[-1] == len(track.digests)
        for run, track in base.tracks.items()
    )
    return again + (1 if stays[n].working and not over else 0)


def judge(base: Baseline, life: Life, result: str, *, redo: int, doubled: bool) -> list[Problem]:
    """Return what is wrong with a life.

    Args:
        base: What it should have come to.
        life: What was lived.
        result: What it ended with.
        redo: How many steps a kill may cost.
        doubled: Whether an effect may happen more often.
    """
    last = life.stays[-1]
    if last.hung or last.code != 0:
        said = (last.said.splitlines() or ["it said nothing"])[-1]
        how = "did not end" if last.hung else f"ended with code {last.code}"
        return [Problem("hung" if last.hung else "failed", f"the last process {how}: {said}")]
    found = [*_effects(base.life.effects, life.effects, doubled=doubled)]
    if result != base.result:
        found.append(Problem("result", f"{_short(result)} instead of {_short(base.result)}"))
    return [*found, *_states(base, life), *_places(base, life, redo)]


def _states(base: Baseline, life: Life) -> Iterator[Problem]:
    runs = by_run(life.saved)
    if runs.keys() != base.tracks.keys():
        yield Problem("runs", f"{sorted(runs)} instead of {sorted(base.tracks)}")
    for run, track in base.tracks.items():
        saved = runs.get(run, [])
        if not saved:
            continue
        if base.ends[run] not in (None, saved[-1].digest):
            yield Problem("final-state", f"run {run!r} ends in another state", run)
        wrong = next((one for one in saved if _is_other(track, one)), None)
        if wrong is not None:
            where = f"seq {wrong.seq}" if track.steps is None else f"step {wrong.step}, seq {wrong.seq}"
            yield Problem("state", f"run {run!r}, {where}: undisturbed another state is saved here", run)


def _is_other(track: Track, saved: Saved) -> bool:
    if track.steps is not None:
        return saved.step is not None and track.digests.get(saved.step) not in (None, saved.digest)
    known = set(track.digests.values())
    return track.exact and None not in known and saved.digest not in known


def _places(base: Baseline, life: Life, redo: int) -> Iterator[Problem]:
    for n, stay in enumerate(life.stays):
        if stay.fell is None:
            continue
        kill = f"kill {n + 1} at {stay.fell.line or 'a moment'}"
        redone = _redone(base, life.stays, n)
        if redone > redo:
            yield Problem("redone", f"{kill}: {redone} steps are done again")
        for run, newest, first in _jumps(base, life.stays, n):
            if base.tracks[run].exact and first > newest + 1:
                yield Problem("skipped", f"{kill}: steps left out: {first - newest - 1}", run)


def same_effects(one: Sequence[Happened], other: Sequence[Happened]) -> bool:
    """Whether two lives did the same to the world."""
    return not [*_effects(one, other, doubled=False)]


def _effects(wanted: Sequence[Happened], told: Sequence[Happened], *, doubled: bool) -> Iterator[Problem]:
    should, did = Counter(wanted), Counter(told)
    facts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in told:
        if each.key is not None:
            facts[each.name, each.key].add(each.facts)
    for (name, key), different in sorted(facts.items()):
        if len(different) > 1:
            yield Problem("effect-other", f"{name} key={key!r} stands for {len(different)} different ones")
    for each, count in did.items():
        if each not in should:
            yield Problem("effect-other", f"{each} happened, and never does undisturbed")
        elif count > should[each] and each.key is None and not doubled:
            yield Problem("effect-doubled", f"{each} happened {count} times instead of {should[each]}")
    for each, count in should.items():
        least = count if each.key is None else 1
        if did[each] < least:
            yield Problem("effect-missing", f"{each} happened {did[each]} times instead of {least}")


def _doubled_by_stay(wanted: Sequence[Happened], life: Life) -> list[int]:
    """Return for each process how many effects it had that should not have happened again."""
    left = Counter(wanted)
    found, start = [], 0
    for stay in life.stays:
        count = 0
        for each in life.effects[start : stay.effects]:
            left[each] -= 1
            count += left[each] < 0 and each.key is None
        found.append(count)
        start = stay.effects
    return [*found, 0]


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
