"""Verification finds an edit of the past by somebody who made the digests of the documents right again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cloudckpt import keys
from cloudckpt.format import encode_manifest
from cloudckpt.model import Manifest
from tests.protocol import damaged as worlds
from tests.protocol.damaged import KEY, LONG, RUN, LongWorld, found

long_world = worlds.long_world
world = worlds.world


Edit = Callable[[Manifest], Manifest]


def edited(world: LongWorld, edit: Edit) -> None:
    world.write(KEY, encode_manifest(edit(world.manifest)))


def second(**changes: Any) -> Edit:
    """Change the second newest checkpoint."""
    return lambda m: replace(
        m, checkpoints=(m.checkpoints[0], replace(m.checkpoints[1], **changes), *m.checkpoints[2:])
    )


@pytest.mark.parametrize(
    ("edit", "kinds"),
    [
        (second(step=99), {("chain", LONG - 1)}),
        (second(metadata={"approved": True}), {("chain", LONG - 1)}),
        (second(commit="f" * 16), {("chain", LONG - 1)}),
        (second(size=7), {("chain", LONG - 1), ("order", LONG - 1)}),
        (second(epoch=9), {("chain", LONG - 1), ("order", LONG - 1)}),
        (second(parent=3), {("chain", LONG - 1)}),
        (second(parent_digest="0" * 64), {("chain", LONG - 1), ("chain", LONG - 2)}),
        (second(seq=LONG), {("chain", LONG), ("order", LONG)}),
        (lambda m: replace(m, checkpoints=m.checkpoints[1:]), {("order", LONG - 1)}),
        (lambda m: replace(m, checkpoints=()), {("order", 0)}),
        (lambda m: replace(m, recent=("f" * 16, *m.recent[1:])), {("chain", LONG)}),
        (lambda m: replace(m, status="deleted"), {("order", None)}),
    ],
)
def test_an_edit_of_the_past_is_found(world: LongWorld, edit: Edit, kinds: set[tuple[str, int]]) -> None:
    edited(world, edit)
    assert {(kind, seq) for kind, seq, _ in found(world, 1)} == kinds


def test_the_chain_goes_on_from_the_manifest_into_the_pages(world: LongWorld) -> None:
    """Its oldest checkpoint of its own says what the newest one of the pages was."""
    oldest = world.manifest.checkpoints[-1].seq
    edited(
        world,
        lambda m: replace(
            m, checkpoints=(*m.checkpoints[:-1], replace(m.checkpoints[-1], parent_digest="0" * 64))
        ),
    )
    assert ("chain", oldest - 1) in {(kind, seq) for kind, seq, _ in found(world, 1)}


def test_what_may_be_said_of_a_checkpoint_later_is_no_edit_of_the_past(world: LongWorld) -> None:
    for seq in (LONG, LONG - 1, 9):
        world.run.tag(f"t{seq}", seq=seq)
        world.run.annotate({"said": "later"}, seq=seq)
        world.run.hold("for the auditors", seq=seq)
    assert found(world, 3) == []


@pytest.mark.parametrize(
    "name", ["count", "held", "newest", "oldest", "since", "until", "steps", "tags", "stored"]
)
def test_a_page_that_is_not_what_its_reference_says_is_found(world: LongWorld, name: str) -> None:
    """Whoever looks for a tag or a step skips pages by their references."""
    page = world.manifest.history[-1]
    now = getattr(page, name)
    others = {"steps": (1, 2), "tags": (), "since": page.until, "until": page.since}
    wrong = replace(page, **{name: others[name] if name in others else now + 1})
    edited(world, lambda m: replace(m, history=(*m.history[:-1], wrong)))
    problems = world.run.verify().problems
    assert {problem.kind for problem in problems} == {"page-reference"}
    assert f": {name}" in problems[0].what


def test_a_reference_to_another_runs_object_is_found(world: LongWorld) -> None:
    """What is deleted with that run would be lost to this one."""
    head = world.manifest.checkpoints[0]
    away = keys.object_key("other", head.seq, head.digest, "ab")
    for key in (away, "objects/x", keys.objects_prefix(RUN) + "../x"):
        with world.restored():
            there = replace(head, extents=(replace(head.extents[0], key=key),))
            edited(world, lambda m, there=there: replace(m, checkpoints=(there, *m.checkpoints[1:])))
            for depth in (1, 2, 3):
                assert found(world, depth) == [("object-key", LONG, key)]
