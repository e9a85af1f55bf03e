"""How many examples the random tests of the codec try."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# `make test` runs a sample; the long run of the fuzz sets this.
EXAMPLES = int(os.environ.get("CLOUDCKPT_FUZZ_EXAMPLES", "300"))
FUZZ = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
