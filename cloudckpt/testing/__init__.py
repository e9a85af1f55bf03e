"""What proves a store or an engine right, for this package's tests and for anybody's.

Owns: the conformance suite of the storage contract (`conformance.py`, a pytest
class, with `driver.py` and `races.py` beneath it), a wrapper that fails on
purpose (`faults.py`), and the laws of a run (`invariants.py`). Nothing in the
product imports it, and only `conformance.py` needs pytest.
"""

from __future__ import annotations

import sys

if "pytest" in sys.modules:
    # Otherwise a failed law would say "AssertionError" and not what was compared:
    # pytest rewrites the asserts of test files only. It has to come before the import.
    sys.modules["pytest"].register_assert_rewrite(
        *(f"cloudckpt.testing.{name}" for name in ("concurrency", "conformance", "driver", "races", "runs"))
    )
