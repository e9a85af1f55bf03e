"""Rules of workers that share the runs of a store."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.protocol.model.frame import ALL_IDS, MOSTLY, SYNC, ats, fates, forms, ways
from tests.protocol.model.working import LEASE, WorkingRules
from tests.protocol.oracle import Fate, Fates, Refused, free, offer, submit


class SharingRules(WorkingRules):
    """What workers do."""

    @rule(at=ats, run=st.sampled_from(ALL_IDS), form=st.none() | forms, way=ways, chosen=fates)
    def submit(
        self, at: int, run: str, form: tuple[str, int] | None, way: str, chosen: tuple[Fate, ...]
    ) -> None:
        opened = self.a_store(at)
        saved = None if form is None else self.state(form)
        told = self.both(
            opened,
            chosen,
            lambda fates: submit(opened.desk, run, saved, fates),
            lambda: self.call(way, opened.store, "submit", run, saved and saved.state),
        )
        if told is not None:
            assert (told[0] is None) == (told[1] is None)
            if told[1] is not None:
                self.same_info(run, *told)
            self.figures["runs submitted"] += 1

    @rule(at=ats, of=ats, way=ways, chosen=fates)
    def offer(self, at: int, of: int, way: str, chosen: tuple[Fate, ...]) -> None:
        opened = self.a_store(at)
        run = self.a_run_id(opened.spot, of)
        self.both(
            opened,
            chosen,
            lambda fates: offer(opened.desk, run, fates),
            lambda: self.call(way, opened.store, "offer", run),
        )

    @rule(at=ats, prefix=st.sampled_from(("", "", "a")), offered=ats, way=ways)
    def claim(self, at: int, prefix: str, offered: int, way: str) -> None:
        """Which of several is chance; it is one that is free, and it is got."""
        if offered < MOSTLY:
            self.offer(at, offered, way, ())
            self.all_is_as_the_oracle_says()
        opened = self.a_store(at)
        opened.machine.arm()
        self.sound = False
        wanted = free(opened.desk, prefix)
        run = self.call(way, opened.store, "claim", prefix, lease=LEASE)
        assert (run.id in wanted) if run is not None else not wanted
        if run is not None:
            held = self.hold_on_to(run, opened, None, LEASE, pushes=False)
            held.oracle.check_open()
            held.oracle.become(Fates(), claimed=True)
            self.figures["runs claimed"] += 1
        self.sound = True

    @precondition(lambda self: self.count % 4 == 1)
    @rule(at=ats)
    def handover(self, at: int) -> None:
        """By whoever holds a run by a lease, and by nobody else."""
        held = self.a_run(at)
        if held.oracle.epoch is None or held.oracle.lease is None:
            self.refused(Refused("InvalidInputError"), lambda: self.call(SYNC, held.run, "handover"))
            return
        assert held.run.id in self.call(SYNC, held.run, "handover").values()
