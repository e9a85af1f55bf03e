"""What the rules of the model share.

Owns: places, stores and handles of runs; how two answers are compared. What must hold after
each step is in `laws.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from cloudckpt import CheckpointInfo, Record, Retention, Run, Store
from cloudckpt.errors import CloudckptError, WaitingError
from cloudckpt.storage.contract import Page, Storage
from cloudckpt.storage.versions import OneVersion
from tests.protocol.model import surface
from tests.protocol.oracle import FAULTS, FINE, Desk, Fate, Fates, Handle, Hold, Life, Refused, Saved, Waiting
from tests.protocol.oracle import World as OracleWorld
from tests.protocol.scripted import ScriptedStorage, echoed, fine, lost, meanwhile, unanswered

IDS = ("a", "a", "a", "a/b", "A")
ALL_IDS = ("A", "a", "a/b", "b")
TAGS = ("best", "ü")
MOSTLY = 50
"""Of the 60 numbers in `ats`."""

START = datetime(2030, 1, 1, 10, 30, tzinfo=UTC)
SYNC, ASYNC = "sync", "async"

ats = st.integers(0, 59)
ways = st.sampled_from((SYNC, SYNC, ASYNC))
faults = st.sampled_from(FAULTS)
fates = st.one_of(st.just(()), st.just(()), st.tuples(faults), st.tuples(st.just(FINE), faults))
"""Of the next writes of a manifest."""

forms = st.tuples(st.sampled_from(("plain", "Plan")), st.integers(0, 3))
"""Of a state: its type, and which of the sizes."""

metadata = st.dictionaries(
    st.sampled_from("ab"), st.none() | st.integers(1 - 2**63, 2**63 - 1) | st.text(max_size=3), max_size=2
)
picks = st.one_of(
    st.just(("newest", 0)),
    st.tuples(st.just("kept"), st.integers(0, 11)),
    st.tuples(st.just("seq"), st.integers(1, 12)),
    st.tuples(st.just("tag"), st.integers(0, 1)),
    st.tuples(st.just("step"), st.integers(0, 6)),
)
"""Of a checkpoint."""

wrongs = st.sampled_from((0, 0, -5400, 100_000))
"""Seconds by which a machine's clock is wrong."""

_count = st.integers(1, 4)
rules = st.one_of(
    st.builds(lambda n: {"keep_last": n}, st.integers(1, 12)),
    st.builds(lambda n: {"keep_last": n}, _count),
    st.fixed_dictionaries(
        {},
        optional={
            "keep_last": _count,
            "keep_within": st.sampled_from((60.0, 7200.0, 200_000.0)),
            "hourly": _count,
            "daily": _count,
            "weekly": _count,
            "monthly": _count,
            "yearly": _count,
            "min_keep": st.integers(2, 4),
        },
    ).filter(lambda rules: rules.keys() - {"min_keep"}),
)
"""Of retention, as plain values."""


class Boom(Exception):
    """What an agent does has failed."""


@dataclass
class Plan:
    """A state of a class of its own."""

    n: int
    step: int
    pad: bytes


class Machine(ScriptedStorage, OneVersion):
    """One machine's way to a place; the place has a clock of its own."""

    def __init__(self, inner: Storage, time: Callable[[], datetime]) -> None:
        super().__init__()
        self.inner = inner  # type: ignore[assignment]
        self.url = inner.url
        self._time = time

    def arm(self, chosen: tuple[Fate, ...] = ()) -> None:
        """Let the next conditional writes of manifests go so."""
        self.writes.clear()
        self.reads.clear()
        for fate in chosen:
            act = fine
            if fate != FINE:
                act = lost if not fate.arrives else unanswered if fate.answer == "none" else echoed
            if not fate.readable:
                act = meanwhile(act, lambda: self.reads.append(lost))
            self.writes.append(act)

    async def list(self, prefix: str, *, cursor: str | None = None) -> Page:
        page = await self.inner.list(prefix, cursor=cursor)
        return Page(tuple(replace(row, modified=self._time()) for row in page.rows), page.cursor)


class MachineClock:
    """A clock that is wrong by so many seconds. Gets on when the model says so."""

    def __init__(self, time: Callable[[], datetime], wrong: int) -> None:
        self._time = time
        self._wrong = timedelta(seconds=wrong)
        self._ticks = itertools.count()

    def now(self) -> datetime:
        return self._time() + self._wrong

    def monotonic(self) -> float:
        return (self._time() - START).total_seconds() + next(self._ticks) * 1e-6


@dataclass(eq=False)
class Spot:
    """A place, what throws it away, and what the oracle says of it."""

    engine: Callable[[], Storage]
    forget: Callable[[], object]
    raw: Storage
    world: OracleWorld


@dataclass(frozen=True, eq=False)
class Opened:
    """A store beside what the oracle says of it."""

    store: Store
    machine: Machine
    desk: Desk
    spot: Spot


@dataclass(frozen=True, eq=False)
class Held:
    """A run's handle beside what the oracle says of it."""

    run: Run
    oracle: Handle
    opened: Opened


class Frame(RuleBasedStateMachine):
    """Subclassed with a place: `make_place`.

    Attributes:
        figures: Calls by their answer, over all runs of the model.
        sizes: Bytes of states that won't compress. The last is too large to ride.
    """

    figures: ClassVar[Counter[str]] = Counter()
    sizes: ClassVar[tuple[int, ...]] = (0, 900, 15_000, 40_000)

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0
        self.spots = [self._spot() for _ in range(2)]
        self.opened: list[Opened] = []
        self.held: list[Held] = []
        self.count = 0
        self.tokens: dict[int, str] = {}
        self.sound = True  # the oracle is not ahead of the product, after a failure

    def make_place(self) -> tuple[Callable[[], Storage], Callable[[], object]]:
        """Return what makes an engine of a new place, and what throws the place away."""
        raise NotImplementedError

    def _spot(self) -> Spot:
        engine, forget = self.make_place()
        raw = engine()
        return Spot(engine, forget, raw, OracleWorld(raw.url, self.time))

    def time(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def open_at(self, spot: Spot, wrong: int = 0, own: Mapping[str, Any] | None = None) -> Opened:
        """Open a store; no time to try again, so a doubt that one look does not settle stays one."""
        machine, clock = Machine(spot.engine(), self.time), MachineClock(self.time, wrong)
        retention = None if own is None else Retention(**own)
        store = Store(lambda: machine, timeout=0.0, clock=clock, retention=retention)
        self.opened.append(Opened(store, machine, Desk(spot.world, clock.now, own), spot))
        return self.opened[-1]

    def state(self, form: tuple[str, int]) -> Saved:
        """Return a new state, as the oracle has it."""
        self.count += 1
        kind, size = form
        pad = random.Random(self.count).randbytes(self.sizes[size])
        if kind == "Plan":
            return Saved(Plan(self.count, self.count % 7, pad), kind, self.count % 7)
        return Saved({"n": self.count, "pad": pad}, kind)

    def a_store(self, at: int) -> Opened:
        return self.opened[at % len(self.opened)]

    def a_run_id(self, spot: Spot, which: int) -> str:
        """Return the id of a run, mostly of one that is there."""
        there = sorted(spot.world.lives)
        return there[which % len(there)] if there and which < MOSTLY else IDS[which % len(IDS)]

    # ---- comparing

    def call(self, way: str, on: Any, name: str, *args: Any, **options: Any) -> Any:
        """Call a method by its name, or its async twin; return all that it answers."""
        if way == SYNC:
            surface.note(on, name)
            got = getattr(on, name)(*args, **options)
            return list(got) if isinstance(got, Iterator) else got
        twin = surface.TWINS.get(name, f"a{name}")
        surface.note(on, twin)

        async def awaited() -> Any:
            got = getattr(on, twin)(*args, **options)
            return [one async for one in got] if hasattr(got, "__aiter__") else await got

        return asyncio.run(awaited())

    def both(
        self,
        opened: Opened,
        chosen: tuple[Fate, ...],
        oracle: Callable[[Fates], Any],
        call: Callable[[], Any],
    ) -> tuple[Any, Any] | None:
        """Let both act; return their answers, or None when both refuse alike."""
        opened.machine.arm(chosen)
        self.sound = False
        wanted, refusal = outcome(lambda: oracle(Fates(*chosen)))
        if refusal is not None:
            self.refused(refusal, call)
            self.sound = True
            return None
        got = call()
        self.sound = True
        self.figures["answers"] += 1
        self.figures["answers in spite of a fault"] += bool(chosen)
        return got, wanted

    def refused(self, refusal: Refused | Boom, call: Callable[[], Any]) -> None:
        """Make a call that must be refused so."""
        names = refusal.names if isinstance(refusal, Refused) else ("Boom",)
        told: BaseException | None = None
        try:
            got = call()
        except (CloudckptError, Boom) as error:
            if type(error).__name__ not in names:
                raise
            told = error
        assert told is not None, f"{names} was due, and not {got!r}"
        self.figures[f"refused, {type(told).__name__}"] += 1
        if isinstance(refusal, Waiting) and isinstance(told, WaitingError):
            assert told.kind == refusal.kind
            self.is_token(refusal.attempt, told.token)

    def is_token(self, attempt: int, token: str | None) -> None:
        """Check that a question keeps its token, and shares it with no other."""
        assert token is not None
        assert self.tokens.setdefault(attempt, token) == token
        assert list(self.tokens.values()).count(token) == 1

    def same_info(self, run: str, info: CheckpointInfo, saved: Saved) -> None:
        assert (info.run, info.seq, info.epoch, info.time) == (run, saved.seq, saved.epoch, saved.time)
        assert info.parent == (saved.seq - 1 or None)
        assert (info.step, info.tags, info.metadata) == (saved.step, saved.tags, saved.metadata)
        assert info.schema == ("Plan" if saved.kind == "Plan" else None)
        origin = info.origin and (info.origin.run, info.origin.seq, info.origin.store)
        assert (origin, held(info.hold), info.notes) == (saved.origin, saved.hold, saved.notes)

    def seen(self, saved: Saved | None) -> Any:
        """Return what a load without a type gives."""
        return None if saved is None else loaded(saved, None)


def outcome(act: Callable[[], Any]) -> tuple[Any, Refused | Boom | None]:
    """Return what the oracle answers, or what is due instead."""
    try:
        return act(), None
    except (Refused, Boom) as refusal:
        return None, refusal


def held(hold: Any) -> Hold | None:
    """Return a hold as the oracle has it."""
    return None if hold is None else Hold(hold.by, hold.why, hold.since)


def loaded(saved: Saved, type_: type | None) -> Any:
    """Return what a load as this type gives; a `Record` as its tag and fields."""
    if type_ is None:
        return saved.state if saved.kind == "plain" else ("Plan", vars(saved.state))
    if not isinstance(saved.state, type_):
        raise Refused("SchemaError")
    return saved.state


def plain(got: Any) -> Any:
    """Return what was loaded, a `Record` as its tag and fields."""
    return (got.tag, dict(got.fields)) if isinstance(got, Record) else got


def which_of(life: Life | None, pick: tuple[str, int], *by: str) -> dict[str, Any]:
    """Return how a checkpoint is named, by the names that are allowed; else the newest is meant."""
    kind, value = pick
    if kind == "kept":
        kept = () if life is None else life.kept
        kind, value = ("seq", kept[value % len(kept)].seq) if kept else ("newest", 0)
    if kind not in by:
        return {}
    return {kind: TAGS[value] if kind == "tag" else value}
