"""Names in the store: no two ids share one, and nothing escapes its place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudckpt import keys
from cloudckpt.errors import InvalidInputError

ANY = st.characters(codec=None, categories=None)  # lone surrogates too
IDS = st.text(ANY, min_size=1, max_size=300).filter(
    lambda run: not re.search("[\ud800-\udbff][\udc00-\udfff]", run)
)
# Few letters, long words: where an encoding that is cut or folded would collide.
TRICKY = st.text(st.sampled_from("aA.!/_-~\0ä2e"), min_size=1, max_size=300)
SEGMENT = re.compile(r"[a-z0-9_!-][a-z0-9_.!-]*")


@given(IDS | TRICKY)
def test_a_run_id_makes_one_safe_segment(run: str) -> None:
    """Safe on a file system and in a URL: no slash, no hidden name, no `..`, no upper case."""
    segment = keys.encode_run(run)
    assert SEGMENT.fullmatch(segment)
    assert len(segment) <= 180
    decoded = keys.decode_run(segment)
    assert decoded == run or (decoded is None and len(segment) == 180)


@given(TRICKY, TRICKY)
def test_two_ids_never_share_a_key(one: str, other: str) -> None:
    """Nor do they on a file system that ignores case."""
    if one != other:
        assert keys.manifest_key(one).lower() != keys.manifest_key(other).lower()
        assert not keys.objects_prefix(one).startswith(keys.objects_prefix(other))


@given(st.text(st.sampled_from("ab!z0"), min_size=181, max_size=400))
def test_a_long_id_is_never_taken_for_a_short_one(run: str) -> None:
    """The mark of a cut encoding is no text that an id could produce."""
    assert "!z" not in keys.encode_run(run[:40])
    cut = keys.encode_run(run)
    assert keys.decode_run(cut) is None
    with pytest.raises(InvalidInputError):
        keys.decode_run(cut[:-1])


def test_long_ids_that_differ_at_their_end_differ_in_their_key() -> None:
    long = "x" * 1023
    assert len({keys.manifest_key(long + end) for end in "abcdefgh"}) == 8
    assert len(keys.encode_run("\U0001f600" * 1024)) == 180


@given(IDS | TRICKY, st.integers(0, 40))
def test_a_listing_by_prefix_holds_the_id(run: str, length: int) -> None:
    """The prefix may end in the middle of an id's encoding, never outside of it."""
    assert keys.manifest_key(run).startswith(keys.manifest_prefix(run[:length]))


@pytest.mark.parametrize(
    "segment", ["", "A", ".", "..", "a/b", "!", "!z", "!2", "!2E", "!61", ".a", "!ff", "ä"]
)
def test_what_no_id_encodes_to_is_refused(segment: str) -> None:
    """Someone else's file beside ours must not turn up as a run."""
    with pytest.raises(InvalidInputError):
        keys.decode_run(segment)


@pytest.mark.parametrize("bad", ["", "x" * 1025, None, 5, b"run", ["run"], "\ud83d\ude00"])
def test_an_unusable_id_is_refused(bad: object) -> None:
    """Two surrogates that JSON joins into one character would make two ids one."""
    with pytest.raises(InvalidInputError, match="run id"):
        keys.check_run_id(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("run", ["x" * 1024, "ä" * 1024, "😀!" * 500, "\udc80" * 600])
def test_a_cut_segment_tells_how_its_id_begins(run: str) -> None:
    """That much of a run whose manifest is damaged can still be shown."""
    shown = keys.cut_run(keys.encode_run(run))
    assert shown.endswith("…")
    assert run.startswith(shown[:-1])


def test_a_manifest_key_gives_back_its_segment() -> None:
    assert keys.run_segment(keys.manifest_key("A b")) == "!41!20b"
    assert keys.run_segment("manifests/readme.txt") is None
    assert keys.run_segment("objects/a.json") is None


def test_an_object_key_promises_its_digest() -> None:
    key = keys.object_key("a-b/c", 12, "ab" * 32, "0123")
    assert key == f"objects/a-b!2fc/12-{'ab' * 32}-0123"
    assert keys.object_digest(key) == "ab" * 32


@pytest.mark.parametrize("run", ["a.", "a..", ".", "..", ".a.", "x" * 300 + "."])
def test_no_segment_ends_in_a_dot(run: str) -> None:
    """Azure lets go of it, so that `a.` would be written over `a`."""
    assert not keys.encode_run(run).endswith(".")
    assert keys.decode_run(keys.encode_run(run)) in (run, None)
    for prefix in (run[:n] for n in range(len(run) + 1)):
        assert keys.manifest_key(run).startswith(keys.manifest_prefix(prefix))
