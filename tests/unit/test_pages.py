"""The tree of pages behind a manifest: what a search reads, what an edit makes anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloudckpt import keys
from cloudckpt.errors import CorruptCheckpointError
from cloudckpt.history import Filter, Which, choose, listed
from cloudckpt.model import Entry, Hold, Manifest, Writer
from cloudckpt.pages import FAN, Walk, every_key
from cloudckpt.store import Store
from cloudckpt.testing.driver import by_hand
from tests.protocol.scripted import ScriptedStorage
from tests.unit.test_model import entry

RUN = "r"
AT = datetime(2030, 1, 1, tzinfo=UTC)
LEAF = 4


class Past:
    """A run of `count` checkpoints, of which the newest three are in the manifest."""

    def __init__(self, count: int, **tags: int) -> None:
        named = {seq: name for name, seq in tags.items()}
        self.storage = ScriptedStorage()
        self.pages = Store(lambda: self.storage).run(RUN).access.pages
        self.entries = [
            replace(
                entry(seq),
                step=seq // 2,
                time=AT + timedelta(hours=seq),
                tags=(named[seq],) if seq in named else (),
            )
            for seq in range(count, 0, -1)
        ]
        old = self.entries[3:]
        history: tuple[Any, ...] = ()
        for start in range(len(old) - len(old) % LEAF, -1, -LEAF):
            if old[start : start + LEAF]:
                leaf = by_hand(self.pages.leaf(old[start : start + LEAF]))
                history = by_hand(self.pages.grouped((leaf, *history)))
        writer = Writer("w", "host", 1, AT)
        own = tuple(self.entries[:3])
        self.manifest = Manifest(RUN, count, "n", 1, writer, checkpoints=own, history=history)
        self.storage.calls.clear()

    def all(self) -> list[Entry]:
        return by_hand(listed(self.pages, self.manifest, Filter()))

    def reads(self) -> int:
        made = [op for op, _ in self.storage.calls]
        self.storage.calls.clear()
        assert set(made) <= {"read"}
        return len(made)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 600))
def test_every_checkpoint_is_found_once_and_few_pages_are_named(count: int) -> None:
    past = Past(count)
    assert [one.seq for one in past.all()] == list(range(count, 0, -1))
    levels = [page.level for page in past.manifest.history]
    assert levels == sorted(levels)
    assert all(levels.count(level) <= FAN for level in set(levels))
    assert sum(page.count for page in past.manifest.history) == max(0, count - 3)


def test_a_search_reads_one_page_a_level() -> None:
    past = Past(1500, good=77)
    assert max(page.level for page in past.manifest.history) == 2
    found = by_hand(choose(past.pages, past.manifest, Which(seq=10)))
    assert found == past.entries[1490]
    assert past.reads() == 3
    assert by_hand(choose(past.pages, past.manifest, Which(tag="good"))) == past.entries[1500 - 77]
    assert past.reads() == 3
    assert by_hand(choose(past.pages, past.manifest, Which(step=10))) == past.entries[1500 - 21]
    assert past.reads() <= 4
    assert by_hand(choose(past.pages, past.manifest, Which())) == past.entries[0]
    assert past.reads() == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(3 + LEAF, 600))
@example(3 + LEAF * FAN)
@example(3 + LEAF * FAN * 2)
def test_the_newest_few_are_in_the_manifest_and_one_page(count: int) -> None:
    """When the sixteenth leaf went into a branch at once, the newest few were two pages away."""
    past = Past(count)
    few = by_hand(listed(past.pages, past.manifest, Filter(limit=3 + LEAF)))
    assert [one.seq for one in few] == list(range(count, count - 3 - LEAF, -1))
    assert past.reads() == 1


def test_a_day_is_read_without_the_rest() -> None:
    past = Past(600)
    day = Filter(since=AT + timedelta(hours=100), until=AT + timedelta(hours=104))
    assert [one.seq for one in by_hand(listed(past.pages, past.manifest, day))] == [103, 102, 101, 100]
    assert past.reads() <= 5


def test_an_edit_makes_one_page_a_level_anew() -> None:
    past = Past(1500)
    hold = Hold("me", "audit", AT)
    edited = by_hand(past.pages.edit(past.manifest.history, 10, lambda one: replace(one, hold=hold)))
    assert edited is not None
    history, replaced = edited
    assert [page.level for page in replaced] == [0, 1, 2]
    assert [op for op, _ in past.storage.calls].count("put") == 3
    after = replace(past.manifest, history=history)
    assert sum(page.held for page in history) == 1
    changed = by_hand(listed(past.pages, after, Filter()))
    assert changed == [replace(one, hold=hold) if one.seq == 10 else one for one in past.entries]
    assert past.all() == past.entries, "the old pages are as they were"


def test_an_edit_of_what_is_not_there_makes_nothing() -> None:
    past = Past(30)
    assert by_hand(past.pages.edit(past.manifest.history, 99, lambda one: one)) is None
    gone = past.pages.leaf([past.entries[0], past.entries[9]])
    assert by_hand(past.pages.edit([by_hand(gone)], past.entries[5].seq, lambda one: one)) is None


def test_every_key_that_is_referred_to_is_known() -> None:
    """What a collector would spare: payloads and pages of every level."""
    past = Past(300)
    found = by_hand(every_key(past.pages, past.manifest))
    assert {x.key for one in past.entries for x in one.extents} <= found.keys()
    walk = Walk(past.pages, past.manifest)
    while by_hand(walk.next()) is not None:
        pass
    assert {past.pages.key(page) for page in walk.seen} <= found.keys()
    assert len(walk.seen) == 75 + 4, "all leaves and branches"


@pytest.mark.parametrize("harm", ["missing", "changed", "not ours"])
def test_a_damaged_page_is_told_by_its_key(harm: str) -> None:
    past = Past(30)
    page = past.manifest.history[0]
    key = past.pages.key(page)
    by_hand(past.storage.inner.delete([key]))
    if harm == "changed":
        by_hand(past.storage.inner.put(key, b"x" * 20))
    if harm == "not ours":
        name, _ = by_hand(past.pages._put(1, b"{}"))
        past.manifest = replace(past.manifest, history=(replace(page, name=name),))
        key = keys.page_key(RUN, name)
    with pytest.raises(CorruptCheckpointError) as caught:
        past.all()
    if harm != "not ours":
        assert caught.value.key == key
