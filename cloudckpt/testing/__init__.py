"""What proves a store or an engine right, for this package's tests and for anybody's.

Owns: `StorageConformance` and `RunConformance`, the laws of an engine and of runs on
it as pytest classes; `FaultyStorage`, which fails on purpose; `Ledger` and
`check_laws`, the laws of a run; `Recorder` and `check_recorded`, whether one order
explains what processes were told. docs/engines.md shows them at work on an engine.

Invariant: nothing in the product imports it. A name is imported when it is first
used, so that only the two classes need pytest.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudckpt.testing.conformance import StorageConformance as StorageConformance
    from cloudckpt.testing.driver import Client as Client
    from cloudckpt.testing.driver import Driver as Driver
    from cloudckpt.testing.faults import Call as Call
    from cloudckpt.testing.faults import Effect as Effect
    from cloudckpt.testing.faults import Fault as Fault
    from cloudckpt.testing.faults import FaultyStorage as FaultyStorage
    from cloudckpt.testing.faults import Plan as Plan
    from cloudckpt.testing.faults import SimulatedCrash as SimulatedCrash
    from cloudckpt.testing.faults import every_fault as every_fault
    from cloudckpt.testing.histories import Operation as Operation
    from cloudckpt.testing.histories import Recorder as Recorder
    from cloudckpt.testing.histories import by_run as by_run
    from cloudckpt.testing.histories import read_history as read_history
    from cloudckpt.testing.invariants import LAWS as LAWS
    from cloudckpt.testing.invariants import LawBrokenError as LawBrokenError
    from cloudckpt.testing.invariants import Ledger as Ledger
    from cloudckpt.testing.invariants import check_laws as check_laws
    from cloudckpt.testing.linearity import RULES as RULES
    from cloudckpt.testing.linearity import Figures as Figures
    from cloudckpt.testing.linearity import HistoryBrokenError as HistoryBrokenError
    from cloudckpt.testing.linearity import check_history as check_history
    from cloudckpt.testing.recorded import check_recorded as check_recorded
    from cloudckpt.testing.runs import RunConformance as RunConformance

_HOMES = {
    "conformance": ("StorageConformance",),
    "driver": ("Client", "Driver"),
    "faults": ("Call", "Effect", "Fault", "FaultyStorage", "Plan", "SimulatedCrash", "every_fault"),
    "histories": ("Operation", "Recorder", "by_run", "read_history"),
    "invariants": ("LAWS", "LawBrokenError", "Ledger", "check_laws"),
    "linearity": ("Figures", "HistoryBrokenError", "RULES", "check_history"),
    "recorded": ("check_recorded",),
    "runs": ("RunConformance",),
}
"""Module to its names that are public."""

__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605 - one list is enough

if sys.modules.get("pytest") is not None:
    # Otherwise a failed law would say "AssertionError" and not what was compared:
    # pytest rewrites the asserts of test files only. It has to come before the import.
    sys.modules["pytest"].register_assert_rewrite(
        *(f"cloudckpt.testing.{name}" for name in ("concurrency", "conformance", "driver", "races", "runs"))
    )


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
