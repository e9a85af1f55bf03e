"""Rules of operators with one run."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from cloudckpt import Retention
from tests.protocol.model.frame import SYNC, TAGS, ats, fates, metadata, picks, rules, ways, which_of
from tests.protocol.model.working import WorkingRules
from tests.protocol.oracle import Fate, Fates, Hold

seldom = st.sampled_from((False, False, True))
notes = st.dictionaries(st.sampled_from("xy"), st.none() | st.integers(0, 3), min_size=1, max_size=2)


class CuratingRules(WorkingRules):
    """What operators say of checkpoints, by any handle, that of an agent at work too."""

    # ---- looking

    @rule(
        at=ats,
        since=st.none() | st.integers(0, 11),
        until=st.none() | st.integers(0, 11),
        step=st.none() | st.integers(0, 6),
        tag=st.none() | st.sampled_from(TAGS),
        limit=st.none() | st.integers(1, 5),
        only=st.sampled_from(("", "time", "step", "tag", "limit", "all")),
        way=ways,
    )
    def history(self, at: int, only: str, way: str, **options: Any) -> None:
        held = self.a_run(at)
        times = [saved.time for saved in held.oracle.life.kept] or [self.time()]
        for name in ("since", "until"):
            which = options[name] if only in ("time", "all") else None
            options[name] = which if which is None else times[which % len(times)]
        for name in ("step", "tag", "limit"):
            options[name] = options[name] if only in (name, "all") else None
        told = self.both(
            held.opened,
            (),
            lambda _: held.oracle.history(**options),
            lambda: self.call(way, held.run, "history", **options),
        )
        assert told is not None
        infos, wanted = told
        assert [info.seq for info in infos] == [saved.seq for saved in wanted]
        for info, saved in zip(infos, wanted, strict=True):
            self.same_info(held.run.id, info, saved)

    @rule(at=ats, pick=picks, way=ways)
    def find(self, at: int, pick: tuple[str, int], way: str) -> None:
        held = self.a_run(at)
        which = which_of(held.oracle.life, pick, "seq", "tag", "step")
        told = self.both(
            held.opened,
            (),
            lambda _: held.oracle.find(which),
            lambda: self.call(way, held.run, "find", **which),
        )
        if told is not None:
            self.same_info(held.run.id, *told)

    @rule(at=ats, way=ways)
    def summary(self, at: int, way: str) -> None:
        held = self.a_run(at)
        told = self.both(
            held.opened,
            (),
            lambda _: held.oracle.world.existing(held.run.id, deleted=True),
            lambda: self.call(way, held.run, "summary"),
        )
        if told is None:
            return
        got, life = told
        assert (got.id, got.status, got.seq, got.epoch) == (held.run.id, life.status, life.seq, life.epoch)
        assert (got.checkpoints, got.oldest) == (len(life.kept), life.kept[0].seq if life.kept else None)
        assert got.held == sum(saved.hold is not None for saved in life.kept)
        assert (got.hold is not None, got.tombstone is not None) == (life.hold is not None, life.deleted)
        assert got.set_by == (life.rules and life.rules[0])
        assert got.retention == Retention(**(life.rules[1] if life.rules else {}))
        assert (got.newest is not None) == bool(life.kept)

    # ---- saying something

    @rule(at=ats, tag=st.sampled_from(TAGS), pick=picks, way=ways, chosen=fates)
    def tag(self, at: int, tag: str, pick: tuple[str, int], way: str, chosen: tuple[Fate, ...]) -> None:
        held = self.a_run(at)
        which = which_of(held.oracle.life, pick, "seq", "step")
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.tag(tag, which, fates),
            lambda: self.call(way, held.run, "tag", tag, **which),
        )
        if told is not None:
            self.same_info(held.run.id, *told)

    @rule(at=ats, tag=st.integers(0, 1))
    def find_one_of_two_with_a_tag(self, at: int, tag: int) -> None:
        for back in (-2, -1):
            self.tag(at, TAGS[tag], ("kept", back), SYNC, ())
            self.all_is_as_the_oracle_says()
        self.find(at, ("tag", tag), SYNC)

    @rule(at=ats, tag=st.sampled_from(TAGS), pick=picks, way=ways, chosen=fates)
    def untag(self, at: int, tag: str, pick: tuple[str, int], way: str, chosen: tuple[Fate, ...]) -> None:
        held = self.a_run(at)
        seq = which_of(held.oracle.life, pick, "seq").get("seq")
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.untag(tag, seq, fates),
            lambda: self.call(way, held.run, "untag", tag, seq=seq),
        )
        if told is not None:
            self.same_info(held.run.id, *told)

    @rule(at=ats, notes=notes, pick=picks, way=ways, chosen=fates)
    def annotate(
        self, at: int, notes: dict[str, Any], pick: tuple[str, int], way: str, chosen: tuple[Fate, ...]
    ) -> None:
        held = self.a_run(at)
        which = which_of(held.oracle.life, pick, "seq", "tag")
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.annotate(notes, which, fates),
            lambda: self.call(way, held.run, "annotate", notes, **which),
        )
        if told is not None:
            self.same_info(held.run.id, *told)

    @rule(
        at=ats,
        whole=st.integers(0, 3),
        pick=picks,
        times=st.integers(1, 2),
        then=st.booleans(),
        way=ways,
        chosen=fates,
    )
    def hold(
        self,
        at: int,
        whole: int,
        pick: tuple[str, int],
        times: int,
        then: bool,
        way: str,
        chosen: tuple[Fate, ...],
    ) -> None:
        """Once or twice, of which the first counts; and what is not held may expire then."""
        held = self.a_run(at)
        which = {} if whole == 0 else which_of(held.oracle.life, pick, "seq", "tag")
        for _ in range(times):
            self.count += 1
            hold = Hold("me", f"case {self.count}", held.opened.desk.now())
            self.both(
                held.opened,
                chosen,
                lambda fates, hold=hold: held.oracle.hold(hold, which, whole=whole == 0, fates=fates),
                lambda hold=hold: self.call(
                    way, held.run, "hold", hold.why, by="me", whole=whole == 0, **which
                ),
            )
        if then:
            self.all_is_as_the_oracle_says()
            self.retain(at, {"keep_last": 1}, default=False, dry_run=False, way=way, chosen=())

    @rule(at=ats, way=ways, chosen=fates)
    def release(self, at: int, way: str, chosen: tuple[Fate, ...]) -> None:
        """All that is held, as far as it goes: else soon nothing expires any more."""
        held = self.a_run(at)
        life = held.oracle.life
        seqs = [saved.seq for saved in life.kept if saved.hold] or [life.seq or 1]
        for options in (
            *({"whole": True} for _ in range(life.hold is not None)),
            *({"seq": n} for n in seqs),
        ):
            which = {"seq": options["seq"]} if "seq" in options else {}
            self.both(
                held.opened,
                chosen,
                lambda fates, w=which: held.oracle.hold(None, w, whole=not w, fates=fates),
                lambda o=options: self.call(way, held.run, "release", **o),
            )

    # ---- rules, and going back

    @rule(at=ats, own=st.none() | rules, default=st.booleans(), dry_run=seldom, way=ways, chosen=fates)
    def retain(
        self, at: int, own: Any, default: bool, dry_run: bool, way: str, chosen: tuple[Fate, ...]
    ) -> None:
        held = self.a_run(at)
        given = None if own is None else Retention(**own)
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.retain(own, default=default, dry_run=dry_run, fates=fates),
            lambda: self.call(way, held.run, "retain", given, default=default, dry_run=dry_run),
        )
        if told is not None:
            got, (applied, kept, dropped) = told
            assert (list(got.why), list(got.dropped)) == (kept, dropped)
            assert got.rules == Retention(**applied)
            self.figures["expired at once"] += len(dropped)

    @rule(at=ats, pick=picks, metadata=metadata, way=ways, chosen=fates)
    def rollback(
        self, at: int, pick: tuple[str, int], metadata: dict[str, Any], way: str, chosen: tuple[Fate, ...]
    ) -> None:
        held = self.a_run(at)
        life, base = held.oracle.life, held.oracle.base
        which = which_of(life, pick, "seq", "tag", "step") or {"seq": max(1, life.seq)}
        if base is not None and base.version != life.version:
            chosen = ()  # it may learn that from a page which is gone, without a write
        told = self.both(
            held.opened,
            chosen,
            lambda fates: held.oracle.rollback(which, metadata, fates),
            lambda: self.call(way, held.run, "rollback", metadata=metadata, **which),
        )
        if told is not None:
            self.same_info(held.run.id, *told)
            self.figures["rolled back"] += 1

    # ---- nothing is damaged, and nothing is cold

    @rule(at=ats, pick=picks, way=ways)
    def restore(self, at: int, pick: tuple[str, int], way: str) -> None:
        held = self.a_run(at)
        which = which_of(held.oracle.life, pick, "seq", "tag", "step")
        told = self.both(
            held.opened,
            (),
            lambda _: held.oracle.find(which),
            lambda: self.call(way, held.run, "restore", **which),
        )
        if told is not None:
            assert (told[0].seq, told[0].ready) == (told[1].seq, True)

    @rule(at=ats, drop=st.booleans(), dry_run=st.booleans(), way=ways)
    def repair(self, at: int, drop: bool, dry_run: bool, way: str) -> None:
        """Of what is whole nothing is changed, and nobody is fenced."""
        held = self.a_run(at)

        def oracle(_: Fates) -> Any:
            life = held.oracle.world.existing(held.run.id)
            return life.seq, None, None, (), 0, ()

        told = self.both(
            held.opened,
            (),
            oracle,
            lambda: self.call(way, held.run, "repair", depth=3, drop_damaged=drop, dry_run=dry_run),
        )
        if told is not None:
            got, wanted = told
            assert (got.newest, got.back_to, got.seq, got.dropped, got.lost, got.left) == wanted
