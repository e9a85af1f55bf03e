"""What must hold after each step: the laws of a run, and that it is what the oracle says.

Invariant: the store is read raw, so nothing of what users call hides a fault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis.stateful import invariant

from cloudckpt import Retention, Store, keys
from cloudckpt.codec import encode
from cloudckpt.model import Entry, Manifest
from cloudckpt.testing.driver import by_hand
from cloudckpt.testing.invariants import Ask, Ledger, check_laws
from tests.protocol.model import surface
from tests.protocol.model.frame import ALL_IDS, Frame, Spot, held, plain
from tests.protocol.oracle import Life, Saved


class Laws(Frame):
    """The frame with its laws."""

    def __init__(self) -> None:
        super().__init__()
        self._stood: dict[tuple[str, str], tuple[str | None, int | None]] = {}
        self._digests: dict[int, tuple[Any, str]] = {}

    @invariant()
    def each_knows_what_it_should(self) -> None:
        """Without a request: what `head`, `epoch` and `fenced` say is known, or is not."""
        for one in self.held:
            view = one.oracle.view
            known = (None, None) if view is None else (view.seq, one.oracle.epoch)
            assert (one.run.head, one.run.epoch) == known
            fenced = one.run.fenced and type(one.run.fenced).__name__
            assert fenced == one.oracle.fenced
            for name in ("head", "epoch", "fenced"):
                surface.note(one.run, name)

    @invariant()
    def all_is_as_the_oracle_says(self) -> None:
        sound, self.sound = self.sound, False
        for spot in self.spots:
            for run in sorted({*ALL_IDS, *spot.world.lives}):
                self._check(spot, run)
        self.sound = sound

    def _check(self, spot: Spot, run: str) -> None:
        stored = by_hand(spot.raw.read(keys.manifest_key(run)))
        life = spot.world.get(run)
        before = self._stood.get((spot.world.url, run), (None, None))
        now = (stored and stored.token, life and life.version)
        if now == before:
            return
        assert now[0] != before[0], f"{run!r} was to be written, and was not"
        assert now[1] != before[1], f"{run!r} was written, and was not to be"
        self._stood[spot.world.url, run] = now
        assert life is not None
        ledger = Ledger(keep_last=1)
        ledger.asked = [Ask(self._digest(one), None, None) for one in (*life.kept, *life.lingering)]
        manifest = by_hand(check_laws(spot.raw, run, ledger))
        spot.world.lives[run] = new = self._compared(life, manifest)
        for one in self.held:
            if one.oracle.base is not None and one.oracle.base.version == new.version:
                one.oracle.base = new
        self.figures["laws checked"] += 1

    def _compared(self, life: Life, manifest: Manifest) -> Life:
        """Hold a manifest against the oracle; return the run with what has lingered, if it has."""
        assert (manifest.seq, manifest.epoch, manifest.status) == (life.seq, life.epoch, life.status)
        assert (held(manifest.hold), manifest.copied) == (life.hold, life.copied)
        assert (manifest.lease and (manifest.lease.seconds, manifest.lease.beat)) == life.lease
        rules = manifest.retention and (manifest.retention["set_by"], manifest.retention["rules"])
        assert rules == (life.rules and (life.rules[0], Retention(**life.rules[1]).to_json()))
        tomb = manifest.tombstone and (manifest.tombstone.by, manifest.tombstone.why)
        assert tomb == life.tomb
        there = {entry.seq: entry for entry in manifest.checkpoints}
        lingering = tuple(one for one in life.lingering if one.seq in there)
        in_pages = max((page.newest for page in manifest.history), default=0)
        assert all(one.seq <= in_pages for one in lingering), "what has expired stays in pages only"
        kept = tuple(sorted((*life.kept, *lingering), key=lambda one: one.seq))
        assert sorted(there) == [one.seq for one in kept]
        for one in kept:
            self._same_entry(there[one.seq], one)
        self.figures["checkpoints in pages"] += sum(page.count for page in manifest.history)
        self.figures["actions in pages"] += sum(page.count for page in manifest.ledger)
        open_ = [act.key for act in manifest.actions[::-1] if act.ended is None]
        assert len(open_) == sum(not act.ended for act in life.actions)
        return replace(life, kept=kept, lingering=())

    def _same_entry(self, entry: Entry, one: Saved) -> None:
        assert (entry.epoch, entry.step, entry.tags, entry.time) == (one.epoch, one.step, one.tags, one.time)
        assert (held(entry.hold), entry.notes, entry.metadata) == (one.hold, one.notes, one.metadata)
        assert entry.encoded_digest == self._digest(one)

    def _digest(self, one: Saved) -> str:
        known = self._digests.get(id(one.state))
        if known is None:  # with the state, so that its id stays its own
            known = self._digests[id(one.state)] = (one.state, encode(one.state).encoded_digest)
        return known[1]

    def teardown(self) -> None:
        """Whoever comes later, on a machine of its own, finds all of it."""
        try:
            for one in self.held:
                one.opened.machine.arm()
                one.run.close()
            for opened in self.opened:
                opened.store.close()
            if self.sound:
                for spot in self.spots:
                    self._found_by_who_comes_later(spot)
            self.figures["sequences"] += 1
        finally:
            for spot in self.spots:
                spot.forget()

    def _found_by_who_comes_later(self, spot: Spot) -> None:
        with Store(spot.engine) as store:
            assert sorted(info.id for info in store.runs()) == sorted(spot.world.lives)
            for run, life in spot.world.lives.items():
                handle = store.run(run)
                infos = handle.history()
                assert len(infos) == len(life.kept)
                for info, saved in zip(infos, life.kept[::-1], strict=True):
                    self.same_info(run, info, saved)
                    assert plain(handle.load(type(saved.state), seq=saved.seq)) == saved.state
