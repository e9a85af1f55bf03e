"""Who holds a run and writes it: what it knows, and what becomes of its commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from tests.protocol.oracle.rules import DEFAULT, survivors
from tests.protocol.oracle.values import Fates, Life, Refused, Saved
from tests.protocol.oracle.world import Desk, chosen, numbers

T = TypeVar("T")


class Writer:
    """One holder of a run, such as a process.

    Attributes:
        epoch: Of which it became the writer, or None.
        base: The run as it last saw it; None when it must look.
        conflict: The error that it raises until it loads the run.
        doubts: Commits of its own of which it was not told whether they happened.
        lease: Seconds for which others leave the run alone, if it asks for that.
        pushes: Whether it takes a run that another one holds.
    """

    lease: float | None = None
    pushes = False
    offers = False

    def __init__(self, desk: Desk, run: str, rules: Mapping[str, Any] | None) -> None:
        self.desk = desk
        self.world = desk.world
        self.run = run
        self.rules = rules or desk.rules
        self.closed = False
        self._lost_before: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._writes = False
        self._gives_back = False
        self._lost: str | None = None
        self.epoch: int | None = None
        self.base: Life | None = None
        self.conflict: str | None = None
        self.stopped: str | None = None
        self.doubts: set[int] = set()
        self._tried: set[int] = set()

    @property
    def life(self) -> Life:
        """The run as it stands in the store."""
        return self.world.get(self.run) or Life()

    @property
    def view(self) -> Life | None:
        """The run as far as it knows it to be its own."""
        return self.base if self.base is not None and self.base.epoch == self.epoch else None

    @property
    def fenced(self) -> str | None:
        """The name of why it can't commit any more, once it has learned so."""
        return self._lost if self._writes else self._lost_before

    # ---- what its user does

    def enter(self, fates: Fates) -> None:
        self.closed = False
        self.acquire(fates)

    def acquire(self, fates: Fates) -> None:
        self.check_open()
        self.become(fates)
        self.look()

    def close(self) -> None:
        """Be the writer no more."""
        self.release()
        self.closed = True
        if self._writes:
            self._lost_before = self._lost
        self._forget()

    def release(self) -> None:
        """Leave the run free for the next one, if it was held, or was when it was taken over."""
        view = self.view
        if view is None or view.status in ("done", "failed"):
            return
        if self._gives_back if view.lease is None else view.lease[0] is not None:
            offers, self.offers = self.offers, True
            with suppress(Refused):
                self.commit(lambda base: (base, None), Fates())
            self.offers = offers

    def save(
        self,
        saved: Saved,
        fates: Fates,
        *,
        expect: int | None = None,
        status: str | None = None,
        again: int | None = None,
        also: Callable[[Life], Life] = lambda life: life,
    ) -> Saved:
        """Save; return the checkpoint.

        Args:
            saved: What is saved.
            fates: Of its writes.
            expect: The seq that must be the newest.
            status: Of the run from then on.
            again: The seq whose state it is, which must be there still.
            also: What else the commit says.
        """
        self.check_open()
        commit = next(numbers)

        def make(base: Life) -> tuple[Life, Saved]:
            if again is not None:
                chosen(base, {"seq": again})
            new = replace(saved, seq=base.seq + 1, epoch=base.epoch, commit=commit, time=self.desk.now())
            return also(self._thinned(base.with_saved(new, status))), new

        return self.commit(make, fates, commit=commit, expect=expect)

    def save_behind(self, saved: Saved, fates: Fates) -> Saved:
        """Save aside; one that has lost the run there says so from then on, whatever became of the run."""
        if self.stopped is not None:
            raise Refused(self.stopped)
        try:
            return self.save(saved, fates)
        except Refused as refusal:
            if refusal.names[0] in ("FencedError", "RunDeletedError"):
                self.stopped = refusal.names[0]
            raise

    def load(self, which: Mapping[str, Any]) -> Saved | None:
        """Load; the store is asked, and one that was overtaken learns of it."""
        if self.epoch is None:
            return self.world.load(self.run, which)
        self.newest()
        assert self.base is not None
        return chosen(self.base, which)

    # ---- how that goes

    def check_open(self) -> None:
        if self.closed:
            raise Refused("ClosedError")
        self._writes = True

    def look(self) -> Life:
        """Return the run as it is known; ask the store when it is not."""
        if self.base is None:
            self.base = self.world.get(self.run)
        assert self.base is not None
        return self.base

    def newest(self) -> Life:
        self.base, self.conflict = None, None
        return self.look()

    def reread(self) -> Life:
        """Return what stands; a conflict stays one."""
        self.base = None
        return self.look()

    def adopt(self, life: Life) -> None:
        """Take note of what it wrote itself without a commit."""
        if life.epoch == self.epoch:
            self.base = life

    def become(self, fates: Fates, expect: int | None = None, *, claimed: bool = False) -> None:
        if self.epoch is not None:
            return
        life = self.world.get(self.run)
        if life is None:
            rules = self._settled(None, self.desk.prepare())
        elif life.deleted:
            raise Refused("RunDeletedError")
        else:
            rules = self._settled(life.rules, None)
        stood = life or Life()
        self._check_expected(stood, expect)
        others = life is not None and life.writer not in self._tried
        if others and not claimed and not self.pushes and self.desk.is_busy(self.run, stood):
            raise Refused("RunBusyError")
        lease = None if self.lease is None else (self.lease, 1)
        new = replace(
            stood, epoch=stood.epoch + 1, writer=next(numbers), rules=rules, copied=None, lease=lease
        )
        self._tried.add(new.writer)
        self.world.write(self.run, life, new, fates.next())
        self.base = self.life
        self.epoch = self.base.epoch
        self._gives_back = stood.lease is not None

    def _settled(self, own: Any, store: Mapping[str, Any] | None) -> Any:
        if own is not None and own[0] == "operator":
            return own
        if self.rules is not None:
            return "code", self.rules
        return own if own is not None or store is None else ("store", store)

    def commit(
        self,
        make: Callable[[Life], tuple[Life, T]],
        fates: Fates,
        *,
        commit: int = 0,
        expect: int | None = None,
    ) -> T:
        """Write what is made of the newest that is known, again after a write that is no commit."""
        if self.conflict is not None:
            raise Refused(self.conflict)
        self.become(fates, expect)
        while True:
            base = self.look()
            self._check_ours(base)
            self._check_expected(base, expect)
            new, made = make(base)
            self.base = None
            self.doubts.add(commit)
            new = replace(new, lease=self._renewed(new), copied=None)
            landed = self.world.write(self.run, base, new, fates.next())
            self.doubts.discard(commit)
            stands = self.life
            if not landed and made is None and stands.epoch == new.epoch and stands.lease == new.lease:
                landed = True  # somebody else has let it go just so
            if not landed:
                self._check_ours(stands)
                if not set(stands.commits[base.seq :]) <= self.doubts:
                    self.conflict = "ConflictError"
                    raise Refused(self.conflict)
            self.base = stands
            if landed:
                return made

    def _renewed(self, life: Life) -> tuple[float | None, int] | None:
        if life.status in ("done", "failed") or (self.lease is None and not self.offers):
            return None
        return None if self.offers else self.lease, (life.lease[1] if life.lease else 0) + 1

    def _check_ours(self, life: Life) -> None:
        if life.deleted:
            self.base, self._lost = None, "RunDeletedError"
        elif life.epoch != self.epoch:
            self.base, self.conflict, self._lost = None, "FencedError", "FencedError"
        else:
            return
        raise Refused(self._lost)

    def _check_expected(self, life: Life, expect: int | None) -> None:
        if expect is None or expect == life.seq:
            return
        if expect > life.seq or not set(life.commits[expect:]) <= self.doubts:
            raise Refused("StaleStateError")

    def _thinned(self, life: Life) -> Life:
        rules = DEFAULT if life.rules is None else life.rules[1]
        stay = survivors(
            life.kept[::-1], rules, epoch=life.epoch, now=self.desk.now(), held=life.hold is not None
        )
        gone = tuple(saved for saved in life.kept if saved.seq not in stay)
        kept = tuple(saved for saved in life.kept if saved.seq in stay)
        return replace(life, kept=kept, lingering=(*life.lingering, *gone))
