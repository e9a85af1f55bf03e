"""Wrong variants among real processes; the contest of `tests/protocol/histories/` must refuse each.

Each is put in place in the contest's own process, and so in every process it forks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudckpt import load
from cloudckpt.commit import RunWriter
from cloudckpt.errors import FencedError
from cloudckpt.pointer import Base

SECONDS = 2.5
TRIES = 20
"""As many contests as it takes: nobody can say when the processes meet. Mostly the first one will do."""


def saving_without_a_look_at_the_epoch() -> None:
    RunWriter._check = lambda *_: None  # type: ignore[method-assign]


def loading_by_a_pointer_that_is_kept_for_a_moment() -> None:
    right = load.read_base
    kept: dict[str, tuple[float, Base | None]] = {}

    async def read_base(storage: Any, run: str) -> Base | None:
        if run not in kept or time.monotonic() - kept[run][0] > 0.05:
            kept[run] = time.monotonic(), await right(storage, run)
        return kept[run][1]

    load.read_base = read_base


def answering_before_it_is_known() -> None:
    right = RunWriter.save

    async def save(self: RunWriter, draft: Any) -> Any:
        before = self._base
        try:
            return await right(self, draft)
        except FencedError:
            if before is None or before.manifest.head is None:
                raise
            return before.manifest, before.manifest.head

    RunWriter.save = save  # type: ignore[method-assign]


VARIANTS: dict[str, Callable[[], None]] = {
    variant.__name__: variant
    for variant in (
        saving_without_a_look_at_the_epoch,
        loading_by_a_pointer_that_is_kept_for_a_moment,
        answering_before_it_is_known,
    )
}


def live(variant: str, url: str, seed: str) -> None:
    from tests.protocol.histories import contest

    VARIANTS[variant]()
    contest.main(url, {}, int(seed), SECONDS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_among_real_processes(variant: str, tmp_path: Path) -> None:
    program = f"import sys; from {__name__} import live; live(*sys.argv[1:])"
    for seed in range(TRIES):
        done = subprocess.run(
            [sys.executable, "-c", program, variant, f"file://{tmp_path}/{seed}", str(seed)],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            break
    assert " is broken (" in done.stderr, f"not caught in {TRIES} tries: {done.stderr}"
