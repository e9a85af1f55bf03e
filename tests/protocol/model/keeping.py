"""Rules of operators with a store: runs as a whole, and runs of two stores."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from cloudckpt import Retention, Store, keys
from cloudckpt.testing.driver import by_hand
from tests.protocol.model import surface
from tests.protocol.model.frame import ALL_IDS, Opened, ats, fates, picks, rules, ways, which_of
from tests.protocol.model.working import WorkingRules
from tests.protocol.oracle import Fate, Fates, collect, copy, delete, export, fork, import_
from tests.protocol.oracle.keeping import may_copy


class KeepingRules(WorkingRules):
    """What operators do with runs as a whole."""

    @rule(at=ats, to=ats, of=ats, new=st.sampled_from(ALL_IDS), pick=picks, way=ways, chosen=fates)
    def fork(
        self,
        at: int,
        to: int,
        of: int,
        new: str,
        pick: tuple[str, int],
        way: str,
        chosen: tuple[Fate, ...],
    ) -> None:
        here, there = self.a_store(at), self.a_store(to)
        run = self.a_run_id(here.spot, of)
        which = which_of(here.spot.world.get(run), pick, "seq", "tag", "step")
        away = {} if there is here else {"to": there.store}
        told = self._between(
            here,
            there,
            chosen,
            lambda fates: fork(here.desk, run, which, there.desk, new, fates),
            lambda: self.call(way, here.store, "fork", run, new, **which, **away),
        )
        if told is not None:
            self.same_info(new, *told)
            report = there.store.run(new).verify()
            assert report.ok, report.problems
            self.figures["forks"] += 1

    @rule(
        at=ats,
        of=ats,
        sure=st.integers(0, 4),
        how=st.sampled_from(("delete", "forget")),
        way=ways,
        chosen=fates,
    )
    def delete(self, at: int, of: int, sure: int, how: str, way: str, chosen: tuple[Fate, ...]) -> None:
        opened = self.a_store(at)
        run = self.a_run_id(opened.spot, of)
        self.count += 1
        why, dry_run, world = f"no {self.count}", sure > 0, opened.spot.world
        left = world.get(run) is None and bool(by_hand(opened.spot.raw.list(keys.objects_prefix(run))).rows)
        told = self.both(
            opened,
            chosen,
            lambda fates: delete(world, run, by="me", why=why, dry_run=dry_run, left=left, fates=fates),
            lambda: self.call(way, opened.store, how, run, why=why, by="me", dry_run=dry_run),
        )
        if told is None:
            return
        got, life = told
        if not dry_run:
            opened.machine.arm()
            assert opened.store.collect(run).objects == 0
        if how == "forget":
            tomb = got.deleted and (got.deleted.by, got.deleted.why)
            assert (tomb, got.dry_run, got.complete) == (life.tomb, dry_run, not dry_run)

    @rule(at=ats, of=ats, dry_run=st.booleans(), way=ways, chosen=fates)
    def collect(self, at: int, of: int, dry_run: bool, way: str, chosen: tuple[Fate, ...]) -> None:
        """Whether there is something to collect is not the oracle's to say, but that it is gone then."""
        opened = self.a_store(at)
        run = self.a_run_id(opened.spot, of)
        opened.machine.arm()
        doomed = run in opened.spot.world.lives and opened.store.collect(run, dry_run=True).removed > 0
        told = self.both(
            opened,
            chosen,
            lambda fates: collect(opened.spot.world, run, doomed=doomed and not dry_run, fates=fates),
            lambda: self.call(way, opened.store, "collect", run, dry_run=dry_run),
        )
        if told is not None:
            assert (told[0].removed > 0) == doomed
            if not dry_run:
                assert opened.store.collect(run, dry_run=True).removed == 0
                self.figures["objects collected"] += told[0].removed

    # ---- two stores

    @rule(at=ats, to=ats, of=ats, dry_run=st.integers(0, 3), way=ways, chosen=fates)
    def copy(self, at: int, to: int, of: int, dry_run: int, way: str, chosen: tuple[Fate, ...]) -> None:
        """What rides may differ between two that are the same to the oracle, which a dry run tells."""
        here, there = self.a_store(at), self._elsewhere(at, to)
        run = self.a_run_id(here.spot, of)
        world = there.spot.world

        def plan(_: Fates) -> bool:
            return may_copy(here.spot.world, run, world)

        planned = self._between(
            here, there, (), plan, lambda: self.call(way, here.store, "copy", run, there.store, dry_run=True)
        )
        if planned is None:
            return
        changed = planned[0].changed
        assert changed or not planned[1]
        if dry_run == 0:
            return
        told = self._between(
            here,
            there,
            chosen,
            lambda fates: copy(here.spot.world, run, there.desk, changed=changed, fates=fates),
            lambda: self.call(way, here.store, "copy", run, there.store),
        )
        if told is not None:
            assert (told[0].changed, told[0].seq) == (changed, told[1].seq)
            self.figures["copies"] += changed

    @rule(at=ats, to=ats, of=ats, way=ways, chosen=fates)
    def archive(self, at: int, to: int, of: int, way: str, chosen: tuple[Fate, ...]) -> None:
        """Out of one store and into another, where no run is changed."""
        here, there = self.a_store(at), self._elsewhere(at, to)
        run = self.a_run_id(here.spot, of)
        told = self.both(
            here, (), lambda _: export(here.spot.world, run), lambda: self.exported(way, here, run)
        )
        if told is None:
            return
        file, point = told
        old = there.spot.world.get(run)
        if old is not None and old.same_as(point):
            return  # what rides may differ
        told = self._between(
            here,
            there,
            chosen,
            lambda fates: import_(point, run, there.desk, fates),
            lambda: self.call(way, there.store, "import_", file),
        )
        if told is not None:
            assert [(one.run, one.seq, one.was_there) for one in told[0]] == [(run, point.seq, told[1])]
            self.figures["imports"] += 1

    def exported(self, way: str, opened: Opened, run: str) -> Any:
        raise NotImplementedError

    def _elsewhere(self, at: int, to: int) -> Opened:
        """Return a store of another place, if there is one."""
        here = self.a_store(at)
        others = [opened for opened in self.opened if opened.spot is not here.spot]
        if not others or to % 8 == 0:
            return self.a_store(to)
        return others[to % len(others)]

    def _between(self, here: Opened, there: Opened, chosen: tuple[Fate, ...], oracle: Any, call: Any) -> Any:
        """Let both act on two stores, of which the one that is written to has the faults."""
        here.machine.arm()
        return self.both(there, chosen, oracle, call)

    # ---- a store

    @rule(at=ats, own=st.none() | rules, then=st.booleans(), way=ways)
    def set_retention(self, at: int, own: Any, then: bool, way: str) -> None:
        """And perhaps a run begins, which has these rules."""
        opened = self.a_store(at)
        opened.machine.arm()
        self.call(way, opened.store, "set_retention", None if own is None else Retention(**own))
        opened.desk.set_rules(own)
        if then:
            self.count += 1
            held = self.take_from(opened, f"n{self.count}", None)
            self.both(opened, (), held.oracle.acquire, lambda: self.call(way, held.run, "acquire"))

    @rule(at=ats, way=ways)
    def get_retention(self, at: int, way: str) -> None:
        opened = self.a_store(at)
        opened.machine.arm()
        own = opened.spot.world.rules
        got = self.call(way, opened.store, "get_retention")
        assert got == (None if own is None else Retention(**own))

    @rule(at=ats, prefix=st.sampled_from(("", "a")))
    def each(self, at: int, prefix: str) -> None:
        """A run that fails is told as such, and hides no other."""
        opened = self.a_store(at)
        opened.machine.arm()
        surface.note(opened.store, "each")
        got = list(opened.store.each(seq_of, prefix=prefix, threads=2))
        lives = {run: life for run, life in opened.spot.world.lives.items() if run.startswith(prefix)}
        assert sorted(one.run for one in got) == sorted(lives)
        for one in got:
            life = lives[one.run]
            name = "RunDeletedError" if life.deleted else None if life.kept else "CheckpointNotFoundError"
            assert (one.value, one.error and type(one.error).__name__) == (None if name else life.seq, name)


def seq_of(store: Store, run: str) -> int:
    return store.run(run).find().seq
