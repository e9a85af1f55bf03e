"""Rules of those who want proof: that nothing is damaged, what differs, what can be carried away."""

from __future__ import annotations

import hashlib
import io
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from cloudckpt import verify_archive
from tests.protocol.model.frame import Opened, ats, picks, ways, which_of
from tests.protocol.model.keeping import KeepingRules
from tests.protocol.oracle import Fates, Refused, Saved

depths = st.integers(1, 3)


class AuditingRules(KeepingRules):
    """What auditors do."""

    def exported(self, way: str, opened: Opened, run: str) -> Any:
        """Export a run into a file that verifies by itself; return it."""
        file = io.BytesIO()
        self.call(way, opened.store, "export", [run], file)
        file.seek(0)
        report = verify_archive(file)
        assert report.ok, report.problems
        assert [one.run for one in report.runs] == [run]
        file.seek(0)
        return file

    @rule(at=ats, depth=depths, way=ways)
    def verify(self, at: int, depth: int, way: str) -> None:
        held = self.a_run(at)
        if _is_half_there(held.opened, held.run.id):
            return
        told = self.both(
            held.opened,
            (),
            lambda _: held.oracle.world.existing(held.run.id, deleted=True),
            lambda: self.call(way, held.run, "verify", depth=depth),
        )
        if told is not None:
            got, life = told
            assert got.ok, got.problems
            assert (got.checkpoints, got.deleted) == (len(life.kept), life.deleted)

    @rule(at=ats, prefix=st.sampled_from(("", "a")), depth=depths, way=ways)
    def verify_all(self, at: int, prefix: str, depth: int, way: str) -> None:
        opened = self.a_store(at)
        opened.machine.arm()
        got = self.call(way, opened.store, "verify", prefix, depth=depth)
        got = [one for one in got if not _is_half_there(opened, one.run)]
        assert all(one.ok for one in got), [one.problems for one in got]
        lives = {run: life for run, life in opened.spot.world.lives.items() if run.startswith(prefix)}
        assert {one.run: one.checkpoints for one in got} == {run: len(one.kept) for run, one in lives.items()}

    @rule(at=ats, pick=picks, way=ways)
    def payload(self, at: int, pick: tuple[str, int], way: str) -> None:
        held = self.a_run(at)
        which = which_of(held.oracle.life, pick, "seq", "tag", "step")
        told = self.both(
            held.opened,
            (),
            lambda _: self._there(held, which),
            lambda: self.call(way, held.run, "payload", **which),
        )
        if told is not None:
            got, saved = told
            self.same_info(held.run.id, got.info, saved)
            assert (len(got.data), hashlib.sha256(got.data).hexdigest()) == (got.info.size, got.info.digest)

    def _there(self, held: Any, which: Any) -> Saved:
        saved: Saved | None = held.oracle.load(which)
        if saved is None:
            held.oracle.world.existing(held.run.id)
            raise Refused("CheckpointNotFoundError")
        return saved

    @rule(at=ats, old=picks, new=picks, way=ways)
    def diff(self, at: int, old: tuple[str, int], new: tuple[str, int], way: str) -> None:
        held = self.a_run(at)
        life = held.oracle.life
        before, after = (which_of(life, pick, "seq", "tag") for pick in (old, new))
        before = before or {"seq": max(1, life.seq)}

        def oracle(_: Fates) -> bool:
            one, other = self._there(held, before), self._there(held, after)
            return (one.kind, one.state) != (other.kind, other.state)

        names = [*before.values(), *after.values()]
        told = self.both(held.opened, (), oracle, lambda: self.call(way, held.run, "diff", *names))
        if told is not None:
            assert bool(told[0]) == told[1]


def _is_half_there(opened: Opened, run: str) -> bool:
    """Whether a copy that did not get to its end may have left objects, which is told as damage."""
    world = opened.spot.world
    return run in world.arriving and run not in world.lives
