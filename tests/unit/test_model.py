"""The frozen documents: what can be read off a manifest without I/O."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from cloudckpt.model import CheckpointInfo, Entry, Extent, Manifest, Writer, describe

AT = datetime(2030, 1, 1, tzinfo=UTC)


def entry(seq: int, *extents: tuple[str, int], **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "step": seq,
        "commit": f"c{seq}",
        "epoch": 1,
        "parent": seq - 1 or None,
        "parent_digest": None,
        "digest": "d",
        "size": 1,
        "encoded_digest": "e",
        "encoded_size": 2,
        "codec": "c/1",
        "schema": None,
        "schema_version": None,
        "fingerprint": None,
        "time": AT,
        "tags": (),
        "metadata": {"a": [1]},
        "extents": tuple(Extent(key, 0, n, "d") for key, n in extents),
    }
    return Entry(seq=seq, **{**values, **changes})


def manifest(**changes: Any) -> Manifest:
    return Manifest(run="r", nonce="n", epoch=1, writer=Writer("w", "h", 1, AT), **{"seq": 0, **changes})


def test_a_commit_id_is_found_by_its_seq_for_as_long_as_it_is_known() -> None:
    one = manifest(seq=9, recent=("c9", "c8", "c7"))
    assert [one.commit_of(seq) for seq in range(5, 12)] == [None, None, "c7", "c8", "c9", None, None]


def test_an_object_of_several_checkpoints_counts_once_with_all_that_is_referred_to() -> None:
    one = manifest(checkpoints=(entry(2, ("a", 5), ("b", 1)), entry(1, ("a", 7))))
    assert one.keys() == {"a": 12, "b": 1}


def test_riding_payloads_come_oldest_first() -> None:
    """The oldest is the first that has to make room."""
    one = manifest(
        checkpoints=(entry(3, ("c", 1)), entry(2, ("b", 1)), entry(1, ("a", 1))),
        inline={"c": b"3", "a": b"1"},
    )
    assert list(one.riding().items()) == [("a", b"1"), ("c", b"3")]


def test_the_head_is_the_newest() -> None:
    assert manifest().head is None
    assert manifest(checkpoints=(entry(2), entry(1))).head == entry(2)


def info() -> CheckpointInfo:
    return describe(
        manifest(seq=1, checkpoints=(entry(1, ("a", 1)),), inline={"a": b"x"}), entry(1, ("a", 1))
    )


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy])
def test_what_describes_a_checkpoint_crosses_a_process(again: Any) -> None:
    assert again(info()) == info()
    assert dataclasses.asdict(info())["metadata"] == {"a": [1]}


def test_what_describes_a_checkpoint_has_the_entrys_facts() -> None:
    described = info()
    for name in CheckpointInfo.__dataclass_fields__:
        if name not in ("run", "inline", "measured"):
            assert getattr(described, name) == getattr(entry(1), name)
    assert (described.run, described.inline) == ("r", True)
    assert not describe(manifest(), entry(1, ("a", 1))).inline


def test_documents_do_not_change() -> None:
    for value in (entry(1), manifest(), info()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.seq = 5  # type: ignore[misc]
