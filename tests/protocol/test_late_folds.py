"""Pages that are made ready aside by a thread that begins late: after somebody else has written the manifest.

All threads for work aside may be busy with other runs of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloudckpt import runner
from cloudckpt.retention import Retention
from cloudckpt.run import Run
from tests.protocol.scripted import AtOnce, WhenAwaited
from tests.protocol.test_history import RUN, World, small, state_of

__all__ = ["small"]

SAID: dict[str, Callable[[Run], Any]] = {
    "a hold": lambda run: run.hold("case 7", whole=True),
    "other rules": lambda run: run.retain(Retention(keep_last=1000)),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_what_expires_by_pages_made_ready_late_is_what_stands_by_then(
    said: Callable[[Run], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was planned for the manifest before the hold, and passed for what was made ready after it."""
    late: list[Any] = []

    def spawn(work: Any) -> Any:
        if work.cr_frame.f_locals.get("rules") is None:
            return AtOnce(work)
        late.append(WhenAwaited(work))  # it applies the rules to pages
        return late[-1]

    monkeypatch.setattr(runner, "_spawn_aside", spawn)
    world = World(saves=0, rules=Retention(keep_last=5))
    with world.store.run(RUN) as run:
        step = 0
        while not late:
            step += 1
            run.save(state_of(step))
        said(world.open(world.inner).run(RUN))
        kept = world.seqs()
        run.save(state_of(step + 1))
        AtOnce(late[0].wait())
        run.save(state_of(step + 2))
    assert world.seqs() == [step + 2, step + 1, *kept]
