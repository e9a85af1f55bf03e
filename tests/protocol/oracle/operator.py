"""What operators do with a run, by whichever handle of it they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.protocol.oracle.acting import Acting
from tests.protocol.oracle.rules import DEFAULT, survivors
from tests.protocol.oracle.values import Act, Fates, Hold, Life, Refused, Saved
from tests.protocol.oracle.world import found

Which = Mapping[str, Any]


class Handle(Acting):
    """Who holds a run, as agent or as operator."""

    # ---- looking

    def find(self, which: Which) -> Saved:
        return found(self.world.existing(self.run), which)

    def history(
        self,
        *,
        since: datetime | None,
        until: datetime | None,
        step: int | None,
        tag: str | None,
        limit: int | None,
    ) -> list[Saved]:
        """Return what is wanted, newest first."""
        wanted = [
            saved
            for saved in self.life.kept[::-1]
            if (since is None or saved.time >= since)  # type: ignore[operator]
            and (until is None or saved.time < until)  # type: ignore[operator]
            and step in (None, saved.step)
            and (tag is None or tag in saved.tags)
        ]
        return wanted[:limit]

    # ---- saying something

    def _edit(self, which: Which, change: Callable[[Saved], Saved], fates: Fates) -> Saved:
        target: list[Saved] = []

        def edit(life: Life) -> Life:
            target[:] = [change(found(life, which))]
            return life.with_changed(target[0])

        self.adopt(self.world.amend(self.run, edit, fates))
        return target[0]

    def tag(self, tag: str, which: Which, fates: Fates) -> Saved:
        return self._edit(which, lambda one: replace(one, tags=tuple(dict.fromkeys((*one.tags, tag)))), fates)

    def untag(self, tag: str, seq: int | None, fates: Fates) -> Saved:
        which = {"tag": tag} if seq is None else {"seq": seq}
        return self._edit(
            which, lambda one: replace(one, tags=tuple(old for old in one.tags if old != tag)), fates
        )

    def annotate(self, notes: Mapping[str, Any], which: Which, fates: Fates) -> Saved:
        def change(one: Saved) -> Saved:
            both = {**one.notes, **notes}
            return replace(one, notes={name: both[name] for name in both if both[name] is not None})

        return self._edit(which, change, fates)

    def hold(self, hold: Hold | None, which: Which, *, whole: bool, fates: Fates) -> None:
        """Put a hold, or with None take it off."""

        def changed(old: Hold | None) -> Hold | None:
            return old or hold if hold else None

        if whole:
            self.adopt(self.world.amend(self.run, lambda life: replace(life, hold=changed(life.hold)), fates))
        else:
            self._edit(which, lambda one: replace(one, hold=changed(one.hold)), fates)

    def answer(self, attempt: int, value: Any, by: str, fits: Callable[[Act], bool], fates: Fates) -> Act:
        """Answer a question; `fits` says whether the answer is as it asks for."""
        target: list[Act] = []

        def edit(life: Life) -> Life:
            act = next((one for one in life.actions if one.attempt == attempt), None)
            if act is None:
                raise Refused("NotFoundError")
            if act.child is not None or (not act.ended and not fits(act)) or self.expired(act):
                raise Refused("InvalidInputError")
            if act.ended:
                raise Refused("ConflictError")
            target.append(act)
            return life.with_action(replace(act, ended=True, result=value, by=by))

        self.adopt(self.world.amend(self.run, edit, fates))
        return target[0]

    # ---- rules, and going back

    def retain(
        self, rules: Mapping[str, Any] | None, *, default: bool, dry_run: bool, fates: Fates
    ) -> tuple[Mapping[str, Any], list[int], list[int]]:
        """Apply rules; return them, and the seqs of what stays and what goes, newest first."""
        told: list[Any] = []

        def edit(life: Life) -> Life | None:
            own = life.rules
            given = rules
            if rules is not None and not (default and own is not None and own[0] != "store"):
                own = ("store" if default else "operator"), rules
            else:
                given = DEFAULT if own is None else own[1]
            newest_first = life.kept[::-1]
            stay = survivors(
                newest_first, given or {}, epoch=life.epoch, now=self.desk.now(), held=life.hold is not None
            )
            seqs = [saved.seq for saved in newest_first]
            told[:] = given, [n for n in seqs if n in stay], [n for n in seqs if n not in stay]
            kept = tuple(saved for saved in life.kept if saved.seq in stay)
            return None if dry_run else replace(life, kept=kept, rules=own)

        life = self.world.amend(self.run, edit, fates)
        if not dry_run:
            self.adopt(life)
        return told[0], told[1], told[2]

    def rollback(self, which: Which, metadata: Mapping[str, Any], fates: Fates) -> Saved:
        """Make an older checkpoint the newest once more."""
        old = self.find(which)
        self.check_open()
        again = replace(
            old, tags=(), hold=None, notes={}, metadata=metadata, origin=(self.run, old.seq, None)
        )
        return self.save(again, fates, again=old.seq)
