"""Rules of agents: stores and handles, becoming the writer, saving, loading."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from cloudckpt import CheckpointInfo, Retention, Run
from cloudckpt.errors import CloudckptError
from tests.protocol.model import surface
from tests.protocol.model.frame import (
    ASYNC,
    IDS,
    SYNC,
    TAGS,
    Held,
    Opened,
    Plan,
    ats,
    fates,
    faults,
    forms,
    loaded,
    metadata,
    outcome,
    picks,
    plain,
    rules,
    ways,
    which_of,
    wrongs,
)
from tests.protocol.model.laws import Laws
from tests.protocol.oracle import Fate, Fates, Handle, Refused, Saved

MOST_STORES = 5
MOST_HANDLES = 6
LEASE = 7200.0
SOON = 60.0
"""Seconds to wait for what is behind; nothing takes so long."""

tags = st.lists(st.sampled_from(TAGS), max_size=2)
gaps = st.sampled_from((0, 0, 60, 1800, 30_000, 200_000))
"""Seconds between saves."""

code_rules = st.one_of(st.none(), rules)


class WorkingRules(Laws):
    """What agents do."""

    # ---- stores, handles, time

    @precondition(lambda self: len(self.opened) < MOST_STORES)
    @rule(away=st.booleans(), wrong=wrongs, own=st.none() | rules)
    def open_store(self, away: bool, wrong: int, own: Any) -> None:
        self.open_at(self.spots[away], wrong, own)

    @precondition(lambda self: len(self.opened) == MOST_STORES)
    @rule(at=ats, way=ways)
    def close_store(self, at: int, way: str) -> None:
        """Every call of its own and of its runs is refused from then on."""
        opened = self.opened.pop(at % MOST_STORES)
        store = opened.store
        opened.machine.arm()
        self.call(way, store, "close")
        assert store.closed
        surface.note(store, "closed")
        late: list[Callable[[], Any]] = [
            lambda: store.run("a"),
            lambda: list(store.runs()),
            lambda: store.collect("a"),
            store.get_retention,
        ]
        for held in [held for held in self.held if held.opened is opened]:
            self.held.remove(held)
            held.oracle.release()
            late += [held.run.load, held.run.history, held.run.acquire, held.run.summary, held.run.retain]
            late.append(lambda held=held: held.run.save({"n": 1}))
        for call in late:
            self.refused(Refused("ClosedError"), call)

    @rule(
        at=ats,
        run=st.sampled_from(IDS),
        own=code_rules,
        lease=st.sampled_from((None, None, LEASE)),
        pushes=st.booleans(),
    )
    def take(self, at: int, run: str, own: Any, lease: float | None, pushes: bool) -> None:
        """Some hold their runs by a lease, and some take those that others hold."""
        self.take_from(self.a_store(at), run, own, lease=lease, busy="take" if pushes else "raise")

    def take_from(self, opened: Opened, run: str, own: Any, **options: Any) -> Held:
        surface.note(opened.store, "run")
        handle = opened.store.run(run, retention=None if own is None else Retention(**own), **options)
        return self.hold_on_to(handle, opened, own, options.get("lease"), options.get("busy") == "take")

    def hold_on_to(self, run: Run, opened: Opened, own: Any, lease: float | None, pushes: bool) -> Held:
        """Keep a handle, and let go of the oldest."""
        oracle = Handle(opened.desk, run.id, own)
        oracle.lease, oracle.pushes = lease, pushes
        if len(self.held) == MOST_HANDLES:
            oldest = self.held.pop(0)
            oldest.opened.machine.arm()
            oldest.run.close()
            oldest.oracle.close()
        self.held.append(Held(run, oracle, opened))
        return self.held[-1]

    def a_run(self, at: int) -> Held:
        return self.held[at % len(self.held)] if self.held else self.take_from(self.opened[0], IDS[0], None)

    @rule(seconds=st.sampled_from((60, 3600, 3 * 3600, 86_400, 8 * 86_400, 40 * 86_400)))
    def time_passes(self, seconds: int) -> None:
        self.seconds += seconds

    # ---- becoming the writer

    @rule(at=ats, way=ways, chosen=fates)
    def acquire(self, at: int, way: str, chosen: tuple[Fate, ...]) -> None:
        held = self.a_run(at)
        self.both(held.opened, chosen, held.oracle.acquire, lambda: self.call(way, held.run, "acquire"))

    @rule(at=ats, way=ways, chosen=fates)
    def enter(self, at: int, way: str, chosen: tuple[Fate, ...]) -> None:
        held = self.a_run(at)
        self.both(held.opened, chosen, held.oracle.enter, lambda: self.call(way, held.run, "__enter__"))

    @rule(at=ats, way=ways, again=st.integers(0, 7))
    def close(self, at: int, way: str, again: int) -> None:
        held = self.a_run(at)
        self.both(held.opened, (), lambda _: held.oracle.close(), lambda: self.call(way, held.run, "close"))
        if again:
            self.enter(at, way, ())

    # ---- saving

    @rule(
        at=ats,
        form=forms,
        step=st.none() | st.integers(0, 6),
        tags=tags,
        metadata=metadata,
        expect=st.sampled_from((None, None, 0, -1, -2, 1)),
        way=ways,
        chosen=fates,
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
        chosen: tuple[Fate, ...],
    ) -> None:
        held = self.a_run(at)
        options = {"step": step, "tags": tags, "metadata": metadata}
        options["expect"] = None if expect is None else max(0, held.oracle.life.seq + expect)
        self._save(held, form, way, chosen, **options)

    @rule(at=ats, times=st.integers(3, 6), tagged=st.integers(0, 9), gap=gaps)
    def save_on_and_on(self, at: int, times: int, tagged: int, gap: int) -> None:
        """As an agent does most of the time."""
        held = self.a_run(at)
        for turn in range(times):
            self.seconds += gap
            if not self._save(held, ("plain", 1), SYNC, (), tags=TAGS[:1] if turn == tagged else ()):
                break
            self.all_is_as_the_oracle_says()

    @rule(at=ats, form=forms, way=ways, fault=faults)
    def save_until_it_is_told(self, at: int, form: tuple[str, int], way: str, fault: Fate) -> None:
        """Again on top of what was known, after a doubt: one's own earlier try is no stranger."""
        held = self.a_run(at)
        newest = held.oracle.life.seq
        if not self._save(held, form, way, (fault,), expect=newest):
            self._save(held, form, way, (), expect=newest)

    def _save(
        self, held: Held, form: tuple[str, int], way: str, chosen: tuple[Fate, ...], **options: Any
    ) -> bool:
        wanted = self.state(form)
        wanted = replace(
            wanted,
            step=wanted.step if options.get("step") is None else options["step"],
            tags=tuple(dict.fromkeys(options.get("tags", ()))),
            metadata=options.get("metadata", {}),
        )
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.save(wanted, fates, expect=options.get("expect")),
            lambda: self.saved_by(held, way, wanted.state, **options),
        )
        if told is None:
            return False
        self.same_info(held.run.id, *told)
        assert told[0].inline == (form[1] < 3)
        return True

    def saved_by(self, held: Held, way: str, state: Any, **options: Any) -> Any:
        """Save; of an async one the state changes between the call and the await."""
        if way == SYNC:
            return self.call(way, held.run, "save", state, **options)
        surface.note(held.run, "asave")

        async def saving() -> Any:
            mine = replace(state) if isinstance(state, Plan) else dict(state)
            made = held.run.asave(mine, **options)
            vars(mine).clear() if isinstance(mine, Plan) else mine.clear()  # it is encoded already
            return await made

        return asyncio.run(saving())

    @rule(at=ats, form=forms, times=st.integers(2, 3))
    def save_at_once(self, at: int, form: tuple[str, int], times: int) -> None:
        """In which order they land is theirs to say; that each lands, or none, is not."""
        held = self.a_run(at)
        if held.oracle.closed:
            return
        made = [self.state(form) for _ in range(times)]

        async def saves() -> list[Any]:
            asked = [held.run.asave(one.state) for one in made]
            return await asyncio.gather(*asked, return_exceptions=True)

        held.opened.machine.arm()
        self.sound = False
        told = list(zip(asyncio.run(saves()), made, strict=True))
        told.sort(key=lambda one: getattr(one[0], "seq", 0))
        for answer, wanted in told:
            new, refusal = outcome(lambda one=wanted: held.oracle.save(one, Fates()))
            if refusal is not None:
                assert type(answer).__name__ in refusal.names, answer
            else:
                assert isinstance(answer, CheckpointInfo), answer
                self.same_info(held.run.id, answer, new)
        self.sound = True

    @rule(at=ats, form=forms, way=ways, chosen=fates)
    def finish(self, at: int, form: tuple[str, int], way: str, chosen: tuple[Fate, ...]) -> None:
        held, wanted = self.a_run(at), self.state(form)
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.save(wanted, fates, status="done"),
            lambda: self.call(way, held.run, "finish", wanted.state),
        )
        if told is not None:
            self.same_info(held.run.id, *told)

    @precondition(lambda self: self.count % 8 == 1)
    @rule(at=ats)
    def save_what_can_not_be_carried(self, at: int) -> None:
        held = self.a_run(at)
        error = "ClosedError" if held.oracle.closed else "SerializationError"
        self.refused(Refused(error), lambda: held.run.save({"f": print}))

    @rule(
        at=ats,
        cadence=st.sampled_from(("selective", "background")),
        times=st.integers(1, 3),
        way=ways,
        end=st.sampled_from(("flush", "drain", "drained", "sync_before_return", "load")),
    )
    def save_behind(self, at: int, cadence: str, times: int, way: str, end: str) -> None:
        """What is not due gives way to what is newer; what is behind is made in order, or none of it."""
        held = self.a_run(at)
        if held.oracle.closed:
            return
        run, made = held.run, [self.state(("plain", 1)) for _ in range(times)]
        more = {"every": 99} if cadence == "selective" else {"queue": times}
        surface.note(run, "pace")
        run.pace(cadence, **more)  # type: ignore[arg-type]
        assert run.cadence == cadence
        surface.note(run, "cadence")
        durable = made[-1:] if cadence == "selective" else made
        stopped = held.oracle.conflict

        def behind() -> Any:
            asked = [self.saved_by(held, way, one.state) for one in made]
            if cadence == "selective":
                assert run.pending == times
            surface.note(run, "pending")
            waits = [SOON] if end in ("drain", "drained") else []
            told = self.call(SYNC if end == "drained" else way, run, end, *waits)
            if end == "drained" and told is not None:
                raise told
            return [asked[made.index(one)].wait() for one in durable]

        def oracle(fates: Fates) -> list[Saved]:
            new = [held.oracle.save_behind(one, fates) for one in durable]
            if end == "load":
                held.oracle.load({})
            return new

        try:
            told = self.both(held.opened, (), oracle, behind)
        finally:
            with contextlib.suppress(CloudckptError):  # of those behind the first, which was told
                run.flush()
            run.pace("step")
        assert run.pending == 0
        if told is not None:
            for info, new in zip(*told, strict=True):
                self.same_info(run.id, info, new)
        elif stopped is None:
            self.figures["saves behind that were refused"] += 1

    # ---- loading

    @rule(at=ats, pick=picks, way=ways, type_=st.sampled_from((None, None, Plan, dict)))
    def load(self, at: int, pick: tuple[str, int], way: str, type_: type | None) -> None:
        held = self.a_run(at)
        which = which_of(held.oracle.life, pick, "seq", "tag", "step")

        def oracle(_: Fates) -> Any:
            saved = held.oracle.load(which)
            return None if saved is None else loaded(saved, type_)

        told = self.both(held.opened, (), oracle, lambda: self.call(way, held.run, "load", type_, **which))
        if told is not None:
            got, wanted = plain(told[0]), told[1]
            assert (type(got), got) == (type(wanted), wanted), f"{got!r:.200}\n{wanted!r:.600}"

    @rule(at=ats, prefix=st.sampled_from(("", "a", "a/", "A", "b")), way=ways)
    def runs(self, at: int, prefix: str, way: str) -> None:
        opened = self.a_store(at)
        opened.machine.arm()
        found = [info.id for info in self.call(way, opened.store, "runs", prefix)]
        assert sorted(found) == sorted(run for run in opened.spot.world.lives if run.startswith(prefix))


__all__ = ["ASYNC", "WorkingRules"]
