"""Which checkpoints a commit keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudckpt.errors import InvalidInputError
from cloudckpt.model import Entry
from cloudckpt.retention import check_keep_last, plan_expiry
from tests.unit.test_model import entry


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[Entry, ...], int]:
    """Draw checkpoints, newest first, with gaps, tags and rising epochs; and the writer's epoch."""
    seqs = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=25)), reverse=True)
    epochs = sorted(draw(st.lists(st.integers(1, 5), min_size=len(seqs), max_size=len(seqs))), reverse=True)
    tags = draw(st.lists(st.sampled_from([(), (), (), ("t",)]), min_size=len(seqs), max_size=len(seqs)))
    found = tuple(
        replace(entry(seq), epoch=epoch, tags=tag) for seq, epoch, tag in zip(seqs, epochs, tags, strict=True)
    )
    return found, draw(st.integers(epochs[0], 6))


@given(histories(), st.integers(1, 30))
def test_what_is_kept_and_what_is_dropped(history: tuple[tuple[Entry, ...], int], keep_last: int) -> None:
    entries, epoch = history
    plan = plan_expiry(entries, keep_last=keep_last, epoch=epoch)
    assert sorted((*plan.kept, *plan.dropped), key=lambda e: -e.seq) == list(entries), (
        "each is in one of the two"
    )
    assert list(plan.kept) == sorted(plan.kept, key=lambda e: -e.seq)
    assert entries[:keep_last] == plan.kept[: len(entries[:keep_last])]
    assert not [e for e in plan.dropped if e.tags]
    before = [e for e in entries if e.epoch < epoch]
    assert not before or before[0] in plan.kept, "the checkpoint that this writer started from stays"
    assert len(plan.kept) <= keep_last + 1 + len([e for e in entries if e.tags])


@given(histories(), st.integers(1, 30))
def test_expiring_twice_drops_nothing_more(history: tuple[tuple[Entry, ...], int], keep_last: int) -> None:
    entries, epoch = history
    kept = plan_expiry(entries, keep_last=keep_last, epoch=epoch).kept
    assert plan_expiry(kept, keep_last=keep_last, epoch=epoch).dropped == ()


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, None, "3"])
def test_an_unusable_number_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidInputError, match="keep_last"):
        check_keep_last(bad)
