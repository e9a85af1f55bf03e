"""A state machine of the whole public API beside an oracle that shares no code with it.

`frame.py` has what the rules share: places, stores and runs, how the answers are compared, the
laws after each step. Each other file has the rules of one kind of caller: `working.py` of an
agent that saves and loads, `acting.py` of one that does things once and waits, `curating.py`
of operators with one run, `keeping.py` of operators with a store, `auditing.py` of those who
want proof, `sharing.py` of workers that share runs. `surface.py` says what of the public API has no rule.

Several stores on a place stand for machines with clocks of their own, several handles of a run for
its writers; there are two places, so that runs are copied. Some writes go wrong.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from tests.protocol.model.acting import ActingRules
from tests.protocol.model.auditing import AuditingRules
from tests.protocol.model.curating import CuratingRules
from tests.protocol.model.frame import IDS, SYNC, rules, wrongs
from tests.protocol.model.sharing import SharingRules
from tests.protocol.model.working import gaps


class Model(ActingRules, CuratingRules, AuditingRules, SharingRules):
    """All rules together. Subclassed with a place, see `Frame.make_place`."""

    @initialize(
        first=rules,
        second=rules,
        wrong=wrongs,
        saves=st.tuples(st.integers(0, 6), st.integers(0, 4)),
        gap=gaps,
        more=st.integers(0, 3),
    )
    def begin(self, first: Any, second: Any, wrong: int, saves: tuple[int, int], gap: int, more: int) -> None:
        """Two machines hold the same run, which mostly has a past, and perhaps a copy."""
        self.take_from(self.open_at(self.spots[0], wrong), IDS[0], first)
        self.take_from(self.open_at(self.spots[0]), IDS[0], second)
        self.open_at(self.spots[1])
        for at in range(2):
            self.save_on_and_on(at, saves[at], 1, gap)
        if all(saves) and more:
            self.annotate(0, {"x": more}, ("newest", 0), SYNC, ())
            self.act_on_and_on(0, more)
        if more == 1:
            self.copy(0, 1, 0, 1, SYNC, ())


__all__ = ["Model"]
