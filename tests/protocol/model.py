"""A state machine of the whole public API beside an oracle that shares no code with it.

Owns: which calls there are, and how the answers are compared. Several stores on one place
stand for machines, several handles of a run for its writers. Some writes go wrong.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloudckpt import CheckpointInfo, Record, Run, Store
from cloudckpt.errors import CloudckptError
from cloudckpt.storage.contract import Storage
from tests.protocol.oracle import FAULTS, FINE, Fate, Handle, Refused, Saved, World
from tests.protocol.scripted import ScriptedStorage, echoed, lost, meanwhile, unanswered

IDS = ("a", "a", "a", "a/b", "A")
MOST_STORES = 3
MOST_HANDLES = 5
LARGE = 40_000
SYNC, ASYNC = "sync", "async"


@dataclass
class Plan:
    """A state of a class of its own."""

    n: int
    step: int
    pad: bytes


class Machine(ScriptedStorage):
    """One machine's way to the place."""

    def __init__(self, inner: Storage) -> None:
        super().__init__()
        self.inner = inner  # type: ignore[assignment]
        self.url = inner.url

    def arm(self, fate: Fate) -> None:
        """Let the next conditional write of a manifest go so."""
        self.writes.clear()
        self.reads.clear()
        if fate == FINE:
            return
        act = lost if not fate.arrives else unanswered if fate.answer == "none" else echoed
        self.writes.append(act if fate.readable else meanwhile(act, lambda: self.reads.append(lost)))


@dataclass(frozen=True, eq=False)
class Held:
    """A run's handle beside what the oracle says of it."""

    run: Run
    oracle: Handle
    store: Store
    machine: Machine


forms = st.tuples(st.sampled_from(("plain", "Plan")), st.sampled_from((0, 900, 15_000, LARGE)))
"""Of a state: its type, and so many bytes that won't compress."""

which = st.integers(0, 59)
ways = st.sampled_from((SYNC, SYNC, ASYNC))
fates = st.one_of(st.just(FINE), st.just(FINE), st.sampled_from(FAULTS))
seqs = st.integers(1, 12)
tags = st.lists(st.sampled_from(("best", "ü")), max_size=3)
metadata = st.dictionaries(
    st.sampled_from("ab"), st.none() | st.integers(1 - 2**63, 2**63 - 1) | st.text(max_size=3), max_size=2
)


class Model(RuleBasedStateMachine):
    """Subclassed with a place: `place`, and what is done to it afterwards.

    Attributes:
        figures: Calls by their answer, over all runs of the model.
    """

    figures: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.place, self.forget = self.make_place()
        self.opened: list[tuple[Store, Machine]] = []
        self.held: list[Held] = []
        self.count = 0
        self.sound = True  # the oracle is not ahead of the product, after a failure

    def make_place(self) -> tuple[Callable[[], Storage], Callable[[], object]]:
        """Return what makes an engine of a new place, and what throws the place away."""
        raise NotImplementedError

    # ---- stores and handles

    @initialize(keep_last=st.integers(1, 4))
    def begin(self, keep_last: int) -> None:
        """Two machines hold the same run."""
        for _ in range(2):
            self.open_store()
            self._take(self.opened[-1], IDS[0], keep_last)

    @precondition(lambda self: len(self.opened) < MOST_STORES)
    @rule()
    def open_store(self) -> None:
        machine = Machine(self.place())
        # No time to try again: so a doubt that one look does not settle stays one.
        self.opened.append((Store(lambda: machine, timeout=0.0), machine))

    @precondition(lambda self: len(self.opened) == MOST_STORES)
    @rule(at=which, way=ways)
    def close_store(self, at: int, way: str) -> None:
        """Every call of its own and of its runs is refused from then on."""
        store, machine = self.opened.pop(at % MOST_STORES)
        machine.arm(FINE)
        self._do(way, store.close, store.aclose)
        assert store.closed
        late: list[Callable[[], Any]] = [lambda: store.run("a"), lambda: list(store.runs())]
        for held in [held for held in self.held if held.store is store]:
            self.held.remove(held)
            late += [held.run.load, held.run.history, held.run.acquire]
            late.append(lambda held=held: held.run.save({"n": 1}))
        for call in late:
            self._refused("ClosedError", call)

    @rule(at=which, run=st.sampled_from(IDS), keep_last=st.integers(1, 4))
    def take(self, at: int, run: str, keep_last: int) -> None:
        self._take(self.opened[at % len(self.opened)], run, keep_last)

    def _take(self, opened: tuple[Store, Machine], run: str, keep_last: int) -> None:
        store, machine = opened
        self.held.append(
            Held(store.run(run, keep_last=keep_last), Handle(self.world, run, keep_last), store, machine)
        )
        del self.held[:-MOST_HANDLES]

    def _held(self, at: int) -> Held:
        if not self.held:
            self._take(self.opened[0], IDS[0], 2)
        return self.held[at % len(self.held)]

    @rule(at=which, way=ways, fate=fates)
    def acquire(self, at: int, way: str, fate: Fate) -> None:
        held = self._held(at)
        self._both(held, fate, lambda: held.oracle.acquire(fate), way, held.run.acquire, held.run.aacquire)

    @rule(at=which, way=ways, fate=fates)
    def enter(self, at: int, way: str, fate: Fate) -> None:
        held = self._held(at)
        self._both(held, fate, lambda: held.oracle.enter(fate), way, held.run.__enter__, held.run.__aenter__)

    @rule(at=which, way=ways, again=st.integers(0, 3))
    def close(self, at: int, way: str, again: int) -> None:
        held = self._held(at)
        self._both(held, FINE, held.oracle.close, way, held.run.close, held.run.aclose)
        if again:
            self.enter(at, way, FINE)

    # ---- saving

    def _state(self, kind: str, size: int) -> tuple[Any, int | None]:
        self.count += 1
        pad = random.Random(self.count).randbytes(size)
        if kind == "Plan":
            return Plan(self.count, self.count % 7, pad), self.count % 7
        return {"n": self.count, "pad": pad}, None

    @rule(
        at=which,
        form=forms,
        step=st.none() | st.integers(0, 9),
        tags=tags,
        metadata=metadata,
        expect=st.sampled_from((None, None, 0, -1, -2, 1)),
        way=ways,
        fate=fates,
    )
    def save(
        self,
        at: int,
        form: tuple[str, int],
        step: int | None,
        tags: list[str],
        metadata: dict[str, Any],
        expect: int | None,
        way: str,
        fate: Fate,
    ) -> None:
        held = self._held(at)
        newest = held.oracle.life.seq
        options = {"step": step, "tags": tags, "metadata": metadata}
        options["expect"] = None if expect is None else max(0, newest + expect)
        self._save(held, form, way, fate, **options)

    @rule(at=which, form=forms, way=ways, fate=st.sampled_from(FAULTS))
    def save_until_it_is_told(self, at: int, form: tuple[str, int], way: str, fate: Fate) -> None:
        """Again on top of what was known, after a doubt: one's own earlier try is no stranger."""
        held = self._held(at)
        newest = held.oracle.life.seq
        if not self._save(held, form, way, fate, expect=newest):
            self._save(held, form, way, FINE, expect=newest)

    def _save(self, held: Held, form: tuple[str, int], way: str, fate: Fate, **options: Any) -> bool:
        state, step = self._state(*form)
        step = step if options.get("step") is None else options["step"]
        tags = tuple(dict.fromkeys(options.get("tags", ())))
        wanted = Saved(state, form[0], step, tags, options.get("metadata", {}))

        def asave() -> Awaitable[CheckpointInfo]:
            mine = replace(state) if isinstance(state, Plan) else dict(state)
            saving = held.run.asave(mine, **options)
            vars(mine).clear() if isinstance(mine, Plan) else mine.clear()  # it is encoded already
            return saving

        told = self._both(
            held,
            fate,
            lambda: held.oracle.save(wanted, options.get("expect"), fate),
            way,
            lambda: held.run.save(state, **options),
            asave,
        )
        if told is None:
            return False
        self._same_info(held, *told)
        assert told[0].inline == (form[1] < LARGE)
        return True

    @rule(at=which, form=forms, times=st.integers(2, 3))
    def save_at_once(self, at: int, form: tuple[str, int], times: int) -> None:
        """In which order they land is theirs to say; that each lands, or none, is not."""
        held = self._held(at)
        if held.oracle.closed:
            return
        made = [self._state(*form) for _ in range(times)]

        async def saves() -> list[CheckpointInfo | BaseException]:
            asked = [held.run.asave(state) for state, _ in made]
            return await asyncio.gather(*asked, return_exceptions=True)

        held.machine.arm(FINE)
        self.sound = False
        told = list(zip(asyncio.run(saves()), made, strict=True))
        told.sort(key=lambda one: getattr(one[0], "seq", 0))
        for answer, (state, step) in told:
            wanted, refusal = _outcome(
                lambda s=state, n=step: held.oracle.save(Saved(s, form[0], n), None, FINE)
            )
            if wanted is None:
                assert type(answer).__name__ == refusal, answer
            else:
                assert isinstance(answer, CheckpointInfo), answer
                self._same_info(held, answer, wanted)
        self.sound = True

    @rule(at=which)
    def save_what_can_not_be_carried(self, at: int) -> None:
        held = self._held(at)
        error = "ClosedError" if held.oracle.closed else "SerializationError"
        self._refused(error, lambda: held.run.save({"f": print}))

    # ---- loading

    @rule(at=which, seq=st.none() | seqs, way=ways, type_=st.sampled_from((None, None, Plan, dict)))
    def load(self, at: int, seq: int | None, way: str, type_: type | None) -> None:
        held = self._held(at)
        held.machine.arm(FINE)
        right = [_loaded(one, type_) if isinstance(one, Saved) else one for one in held.oracle.load(seq)]
        try:
            got = self._do(way, lambda: held.run.load(type_, seq=seq), lambda: held.run.aload(type_, seq=seq))
        except CloudckptError as error:
            got = type(error).__name__
            if got not in right:
                raise
        if isinstance(got, Record):
            got = (got.tag, dict(got.fields))
        assert (type(got), got) in [(type(one), one) for one in right], f"{got!r:.200}\n{right!r:.600}"
        self.figures["loads"] += 1

    @rule(at=which, way=ways)
    def history(self, at: int, way: str) -> None:
        held = self._held(at)
        infos = self._do(way, held.run.history, held.run.ahistory)
        kept = held.oracle.life.kept[::-1]
        assert len(infos) == len(kept), f"{infos}\n{kept}"
        for info, saved in zip(infos, kept, strict=True):
            self._same_info(held, info, saved)
        self.figures["histories"] += 1

    @rule(at=which, prefix=st.sampled_from(("", "a", "a/", "A", "b")), way=ways)
    def runs(self, at: int, prefix: str, way: str) -> None:
        store, _ = self.opened[at % len(self.opened)]

        async def listed() -> list[Any]:
            return [info async for info in store.aruns(prefix)]

        found = [info.id for info in self._do(way, lambda: list(store.runs(prefix)), listed)]
        assert sorted(found) == sorted(run for run in self.world.runs if run.startswith(prefix))
        self.figures["listings"] += 1

    # ---- comparing

    def _do(self, way: str, call: Callable[[], Any], twin: Callable[[], Awaitable[Any]]) -> Any:
        async def awaited() -> Any:
            return await twin()

        return call() if way == SYNC else asyncio.run(awaited())

    def _both(
        self,
        held: Held,
        fate: Fate,
        oracle: Callable[[], Any],
        way: str,
        call: Callable[[], Any],
        twin: Callable[[], Awaitable[Any]],
    ) -> tuple[Any, Any] | None:
        """Let both act; return their answers, or None when both refuse alike."""
        held.machine.arm(fate)
        self.sound = False
        wanted, refusal = _outcome(oracle)
        if refusal is not None:
            self._refused(refusal, lambda: self._do(way, call, twin))
            self.sound = True
            return None
        got = self._do(way, call, twin)
        self.sound = True
        self.figures["writes, done"] += 1
        self.figures["writes, done in spite of a fault"] += fate != FINE
        return got, wanted

    def _refused(self, name: str, call: Callable[[], Any]) -> None:
        try:
            got = call()
        except CloudckptError as error:
            if type(error).__name__ != name:
                raise
            self.figures[f"refused, {name}"] += 1
        else:
            raise AssertionError(f"{name} was due, and not {got!r}")

    def _same_info(self, held: Held, info: CheckpointInfo, saved: Saved) -> None:
        assert (info.run, info.seq, info.epoch) == (held.oracle.run, saved.seq, saved.epoch)
        assert info.parent == (saved.seq - 1 or None)
        assert (info.step, info.tags, info.metadata) == (saved.step, saved.tags, saved.metadata)
        assert info.schema == ("Plan" if saved.kind == "Plan" else None)

    @invariant()
    def each_knows_what_it_should(self) -> None:
        """Without a request: what `head` and `epoch` say is known, or is not."""
        for held in self.held:
            view = held.oracle.view
            known = (None, None) if view is None else (view.seq, held.oracle.epoch)
            assert (held.run.head, held.run.epoch) == known

    def teardown(self) -> None:
        """Whoever comes later, on a machine of its own, finds all of it."""
        try:
            for store, machine in self.opened:
                machine.arm(FINE)
                store.close()
            if self.sound:
                self._found_by_who_comes_later()
            self.figures["sequences"] += 1
        finally:
            self.forget()

    def _found_by_who_comes_later(self) -> None:
        with Store(self.place) as store:
            assert sorted(info.id for info in store.runs()) == sorted(self.world.runs)
            for run, life in self.world.runs.items():
                held = store.run(run)
                assert [info.seq for info in held.history()] == [saved.seq for saved in life.kept][::-1]
                for saved in life.kept:
                    assert held.load(type(saved.state), seq=saved.seq) == saved.state


def _loaded(saved: Saved, type_: type | None) -> Any:
    """Return what a load as this type gives; a `Record` as its tag and fields."""
    if type_ is None:
        return saved.state if saved.kind == "plain" else ("Plan", vars(saved.state))
    return saved.state if isinstance(saved.state, type_) else "SchemaError"


def _outcome(act: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return what the oracle answers, or the error that is due."""
    try:
        return act(), None
    except Refused as refusal:
        return None, str(refusal)
