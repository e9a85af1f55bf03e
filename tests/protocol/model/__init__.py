"""A state machine of the whole public API beside an oracle that shares no code with it.

`frame.py` has what the rules share: places, stores and runs, how the answers are compared, the
laws after each step. Each other file has the rules of one kind of caller: `working.py` of an
agent that saves and loads, `acting.py` of one that does things once and waits, `curating.py`
of operators with one run, `keeping.py` of operators with a store, `auditing.py` of those who
want proof. `surface.py` says what of the public API has no rule.

Several stores on a place stand for machines with clocks of their own, several handles of a run for
its writers; there are two places, so that runs are copied. Some writes go wrong.
"""

from tests.protocol.model.acting import ActingRules
from tests.protocol.model.auditing import AuditingRules
from tests.protocol.model.curating import CuratingRules


class Model(ActingRules, CuratingRules, AuditingRules):
    """All rules together. Subclassed with a place, see `Frame.make_place`."""


__all__ = ["Model"]
