"""Recorded histories against the store that they were made on.

Owns: `check_recorded`, one call for both halves of the proof: that one order explains
what the processes of a run were told (`linearity.py`), and that what stands in the
store is whole (`invariants.py`). It reads the store by the contract alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloudckpt.storage.contract import Storage
from cloudckpt.testing.histories import Operation, Save
from cloudckpt.testing.invariants import Ask, Ledger, check_laws
from cloudckpt.testing.linearity import Figures, check_history


async def check_recorded(
    storage: Storage, operations: Sequence[Operation], *, keep_last: int | None = None
) -> Figures:
    """Check all that was recorded of one run, when nobody works on it any more.

    Args:
        storage: The store, without faults.
        operations: Everything that anybody asked of the run: one value of `by_run`.
        keep_last: The smallest of any of its writers; None when nothing may have expired.

    Raises:
        HistoryBrokenError: No order explains what the processes were told.
        LawBrokenError: What stands in the store breaks a law.
        ValueError: These are the operations of several runs, or of none, or of equal states.
    """
    runs = {op.run for op in operations}
    if len(runs) != 1:
        raise ValueError(f"the operations must be of one run, see by_run; they are of {sorted(runs)}")
    [run] = runs
    manifest = await check_laws(storage, run, _ledger(operations))
    return check_history(operations, manifest, keep_last=keep_last)


def _ledger(operations: Sequence[Operation]) -> Ledger:
    """Return a ledger for the laws on what is stored. What was told is the history's matter."""
    ledger = Ledger()
    for op in operations:
        if isinstance(op, Save):
            ledger.asked.append(Ask(op.state, None, op.held, told=False if op.refused else None))
    return ledger
