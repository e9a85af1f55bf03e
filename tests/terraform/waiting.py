"""More time for a test that gets or runs a large program, before the watch for deadlocks ends it.

Owns: how that watch is set anew. pytest takes it off at the end of the test.
"""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key


def allow(config: pytest.Config, seconds: float) -> None:
    """Let the running test take so long from now on."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[fault_handler_stderr_fd_key])
